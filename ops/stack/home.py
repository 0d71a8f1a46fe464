"""The home directory of one local stack: its lock, its ports, its secrets and its logs."""

import fcntl
import hashlib
import json
import os
import secrets
import shlex
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

from ops.stack.errors import HomeInUse, StackError

#: Below the range from which Linux and macOS take the ports of outgoing connections: a port chosen
#: here is not taken by a passing client while the stack is down.
PORTS = range(20_000, 30_000)


@dataclass(frozen=True, slots=True)
class Home:
    """Where one local stack keeps everything it owns. Deleting it while down forgets the stack."""

    path: Path

    @classmethod
    def at(cls, path: Path | str) -> Self:
        return cls(Path(path).expanduser().resolve())

    @property
    def state_file(self) -> Path:
        return self.path / "state.json"

    def log(self, name: str) -> Path:
        return self.path / "logs" / f"{name}.log"

    def create(self) -> None:
        """Make the directory, closed to other users: it holds passwords and prompts."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self.path / "logs").mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise StackError(
                f"cannot create the home {self.path}: {error.strerror}; "
                "set ONWARD_HOME to another place"
            ) from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the home. The kernel lets go of the lock when the holder dies, however it dies.

        Raises HomeInUse: two servers on one Valkey data directory would not refuse each other.
        """
        self.create()
        with (self.path / "lock").open("a") as file:
            if not _try_lock(file):
                raise HomeInUse(
                    f"{self.path} is in use by {self._holder()}; stop it with `onward down`, "
                    "or set ONWARD_HOME to another directory"
                )
            file.truncate(0)
            file.write(f"`{_own_command()}` (pid {os.getpid()})")
            file.flush()
            yield

    def is_locked(self) -> bool:
        """Whether some process runs the stack of this home right now."""
        lock = self.path / "lock"
        if not lock.exists():
            return False
        with lock.open("a") as file:
            return not _try_lock(file)

    def _holder(self) -> str:
        return (self.path / "lock").read_text() or "another process"

    def secret(self, name: str) -> str:
        """A password of this home, made at its first use and readable by its owner only."""
        file = self.path / "secrets" / name
        if not file.exists():
            file.parent.mkdir(mode=0o700, exist_ok=True)
            write_private(file, secrets.token_urlsafe(24))
        return file.read_text()

    def port(self, name: str) -> int:
        """The port of a server: ``ONWARD_<NAME>_PORT``, else the remembered one, else a free one.

        A remembered port that a stranger took meanwhile is replaced; a port the user asked for is
        refused instead. Call it only while nothing of ours listens, and under the lock.
        """
        variable = f"ONWARD_{name.upper()}_PORT"
        if asked := os.environ.get(variable):
            return _asked_port(variable, asked)
        remembered = self._ports()
        port = remembered.get(name)
        if port is None or not is_free(port):
            port = self._choose(name, taken=set(remembered.values()))
            write_private(self.path / "ports.json", json.dumps({**remembered, name: port}))
        return port

    def _ports(self) -> dict[str, int]:
        file = self.path / "ports.json"
        ports: dict[str, int] = json.loads(file.read_text()) if file.exists() else {}
        return ports

    def _choose(self, name: str, *, taken: set[int]) -> int:
        # Begin at a place that differs by home: two checkouts that start at once look elsewhere.
        digest = hashlib.sha256(f"{self.path}:{name}".encode()).digest()
        first = int.from_bytes(digest[:4]) % len(PORTS)
        for offset in range(len(PORTS)):
            port = PORTS[(first + offset) % len(PORTS)]
            if port not in taken and is_free(port):
                return port
        raise StackError(f"no free port for {name} between {PORTS.start} and {PORTS.stop}")


def is_free(port: int) -> bool:
    """Whether a server could listen on this port of the loopback address now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the servers do
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def write_private(file: Path, text: str) -> None:
    """Replace a file at once: a reader sees the old or the new text, and only we are readers."""
    draft = file.with_name(f"{file.name}.{os.getpid()}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
        out.write(text)
    draft.replace(file)


def _try_lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _own_command() -> str:
    program, *arguments = sys.argv or ["python"]
    return shlex.join([Path(program).name, *arguments])[:120]


def _asked_port(variable: str, asked: str) -> int:
    if not (asked.isascii() and asked.isdecimal()) or not 0 < int(asked) < 65_536:
        raise StackError(f"{variable}={asked} is not a port number; use 1 to 65535 or unset it")
    if not is_free(int(asked)):
        raise StackError(f"{variable}={asked}: something else listens on that port; choose another")
    return int(asked)
