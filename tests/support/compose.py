"""The compose file as the real Compose reads it, and its services as processes of this machine."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import compose

from ops.stack.binaries import postgres_programs, valkey_program

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker-compose.yml"
PASSWORD = "me:compose-test"


def compose_binary() -> Path:
    """The Compose command itself: the console script of its package always exits 0."""
    return Path(compose.__file__).parent / "docker-compose"


def config(environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """``docker compose config`` over every profile, as JSON."""
    return subprocess.run(
        [compose_binary(), "-f", FILE, "--profile", "*", "config", "--format", "json"],
        env={"PATH": os.environ["PATH"], **(environment or {})},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def services(**environment: str) -> dict[str, Any]:
    """Every service with its anchors, variables and defaults resolved."""
    done = config({"FLOWER_BASIC_AUTH": PASSWORD, **environment})
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["services"]
    return found


@dataclass(frozen=True)
class Place:
    """What differs between a container and a process here: addresses, ports, directories. Nothing else."""

    replace: Mapping[str, str]
    directory: Path

    def text(self, value: str) -> str:
        """A value of the compose file as it reads here."""
        # Compose writes a dollar that is meant for the container's shell twice.
        value = value.replace("$$", "$")
        if not self.replace:
            return value
        # In one go: what was put in is not looked at again.
        there = "|".join(re.escape(word) for word in self.replace)
        return re.sub(there, lambda found: self.replace[found.group()], value)

    def environment(self, service: Mapping[str, Any]) -> dict[str, str]:
        """The service's own environment, and what the image brings."""
        programs = self.directory / "programs"
        return {
            "PATH": os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]),
            "HOME": str(self.directory),
            "HOSTNAME": socket.gethostname(),
            "PYTHONUNBUFFERED": "1",
            **{name: self.text(value) for name, value in (service.get("environment") or {}).items()},
        }  # fmt: skip

    def command(self, service: Mapping[str, Any]) -> list[str]:
        """The service's command line, word by word."""
        return [self.text(word) for word in service["command"]]

    def check(self, service: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
        """Run the service's health check once."""
        kind, *words = service["healthcheck"]["test"]
        words = [self.text(word) for word in words]
        return subprocess.run(
            words if kind == "CMD" else ["/bin/sh", "-c", words[0]], env=self.environment(service),
            cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip


def install_programs(directory: Path) -> None:
    """What the images of Postgres and Valkey have on their PATH, under the names they have there."""
    programs = directory / "programs"
    programs.mkdir()
    (programs / "valkey-server").symlink_to(valkey_program())
    isready = shutil.which("pg_isready", path=str(postgres_programs()))
    assert isready is not None
    (programs / "pg_isready").symlink_to(isready)


def free_port() -> int:
    """A port nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
