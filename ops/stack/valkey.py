"""The Valkey of a home: the broker. It persists because a lost queue costs time, not steps."""

import shutil
import signal
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import redis

from ops.stack import binaries, identity
from ops.stack.home import Home, write_private
from ops.stack.privilege import server_environment
from ops.stack.process import Program, Stage, send

NAME: Final = "valkey"


def data_of(home: Home) -> Path:
    return home.path / "valkey"


@dataclass(frozen=True, slots=True)
class Valkey:
    """The one Valkey server of a home."""

    home: Home
    port: int
    databases: int = 16

    @property
    def data(self) -> Path:
        return data_of(self.home)

    @property
    def url(self) -> str:
        return f"redis://:{self.home.secret(NAME)}@127.0.0.1:{self.port}/0"

    def program(self) -> Program:
        self.data.mkdir(mode=0o700, exist_ok=True)
        config = (
            self.data / "valkey.conf"
        )  # a file: arguments can be read by every user of the machine
        write_private(config, self._config())
        return Program(
            name=NAME,
            argv=(str(binaries.valkey_program()), str(config)),
            env=server_environment(),
            cwd=self.data,
            log=self.home.log(NAME),
            stage=Stage.BROKER,
            death_signal=signal.SIGTERM,
            may_start=partial(is_vacant, self.data),
        )

    def is_ready(self) -> bool:
        with redis.Redis.from_url(self.url, socket_timeout=3) as client:
            try:
                return bool(client.ping())
            except redis.RedisError:  # not listening, or still loading its data
                return False

    def wipe(self) -> None:
        """Forget every message, as after the loss of a disk. Only while it is down."""
        shutil.rmtree(self.data / "appendonlydir", ignore_errors=True)

    def _config(self) -> str:
        return "\n".join(
            (
                "bind 127.0.0.1",
                f"port {self.port}",
                f"requirepass {self.home.secret(NAME)}",
                f'dir "{self.data}"',
                "appendonly yes",
                "appendfsync everysec",
                'save ""',
                "maxmemory-policy noeviction",  # an evicted queue is a silently emptied one
                "maxclients 1000",
                f"databases {self.databases}",
                "",
            )
        )


def is_vacant(data: Path) -> bool:
    """Whether a data directory is free to be served; a leftover server is asked to leave.

    Valkey itself would not notice: two servers on one directory spoil each other's files. The one
    of a killed supervisor may still be writing its last second.
    """
    leftovers = identity.processes_in(data)
    for pid in leftovers:
        send(pid, signal.SIGTERM)
    return not leftovers
