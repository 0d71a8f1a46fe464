"""Looking for a value everywhere that Onward writes: journal, broker, files, Flower, command line, metrics."""

import base64
import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import redis

from models import database
from models.artifacts.store import Store
from models.settings import settings
from ops.metrics import render
from tests.support.backups import plain
from tests.support.cli import cli_for
from tests.support.world import World

#: Below a world's directory: the outside world, and the secrets themselves.
_NOT_OURS = ("fx", "models", "secrets")


def forms(canary: str) -> set[bytes]:
    """The value as it is, its heart, and what base64 and hex make of it, at every alignment."""
    data = canary.encode()
    found = {data, data.hex().encode(), data[4:-4]}
    for before in range(3):
        whole = base64.b64encode(b"\0" * before + data)
        found.add(whole[4:-4])
    return found


class Places:
    """Everything written about a world, by the name of the place."""

    def __init__(self, world: World, *, servers: Path) -> None:
        """``servers``: where Postgres and Valkey write their logs."""
        self._world, self._servers = world, servers
        self.more: dict[str, bytes] = {}  #: what the test itself has captured
        self.told = bytearray()  #: what the broker was told, as ``monitored`` hears it

    def texts(self, *run_ids: str) -> Iterator[tuple[str, bytes]]:
        yield "pg_dump", plain(settings().database_url)
        yield from self._broker()
        yield from self._files(self._world.directory)
        yield from self._files(self._servers)
        yield from self._artifacts()
        yield "valkey MONITOR", bytes(self.told)
        yield "metrics", render()
        for run_id in run_ids[:2]:  # seconds each; they say what the journal has
            for words in (("show", run_id), ("show", run_id, "--json")):
                yield f"onward runs {' '.join(words)}", self._cli("runs", *words)
        yield from self.more.items()

    def found(self, *canaries: str, run_ids: tuple[str, ...] = ()) -> dict[str, list[str]]:
        """Where which of these are, with what stands around them."""
        wanted = {form: canary for canary in canaries for form in forms(canary)}
        found: dict[str, list[str]] = {}
        for place, text in self.texts(*run_ids):
            for form in wanted:
                at = text.find(form)
                if at >= 0:
                    shown = text[max(0, at - 300) : at + 80].decode("utf-8", "replace")
                    found.setdefault(place, []).append(shown)
        return found

    def _broker(self) -> Iterator[tuple[str, bytes]]:
        raw = redis.Redis.from_url(settings().broker_url)
        with raw:
            for key in raw.scan_iter():
                yield f"valkey {key!r}", key + b" " + _content(raw, key)

    def _files(self, top: Path) -> Iterator[tuple[str, bytes]]:
        for path in sorted(top.rglob("*")):
            inside = path.relative_to(top).parts
            if path.is_file() and inside[0] not in _NOT_OURS:
                yield f"file {'/'.join(inside)}", path.read_bytes()

    def _artifacts(self) -> Iterator[tuple[str, bytes]]:
        """As their readers get them: on the disk they are compressed."""
        store = Store(str(self._world.directory / "artifacts"))
        for (digest,) in database.fetch("SELECT digest FROM artifact", {}):
            yield f"artifact {digest}", store.get(digest)

    def _cli(self, *arguments: str) -> bytes:
        onward = cli_for(
            Path.cwd(),
            ONWARD_DATABASE_URL=settings().database_url, ONWARD_BROKER_URL=settings().broker_url,
            ONWARD_AGENTS=self._world.cluster.services.agents,
        )  # fmt: skip
        said = onward(*arguments)
        assert said.code == 0, said
        return f"{said.out}\n{said.err}".encode()


def _content(link: Any, key: bytes) -> bytes:
    found: bytes = _read(link, key)
    return found


def _read(link: Any, key: bytes) -> Any:
    match link.type(key):
        case b"string":
            return link.get(key) or b""
        case b"list":
            return b"\n".join(link.lrange(key, 0, -1))
        case b"set":
            return b"\n".join(link.smembers(key))
        case b"zset":
            return b"\n".join(member for member, _ in link.zrange(key, 0, -1, withscores=True))
        case b"hash":
            return b"\n".join(part for pair in link.hgetall(key).items() for part in pair)
        case other:
            raise AssertionError(f"{key!r} is {other!r}")


@contextmanager
def monitored(heard: bytearray) -> Iterator[None]:
    """Hear everything that the broker is told meanwhile."""
    address = urlsplit(settings().broker_url)
    stopping = threading.Event()
    with socket.create_connection((address.hostname, address.port or 6379), timeout=20) as link:
        if address.password:
            link.sendall(f"AUTH {address.password}\r\n".encode())
        link.sendall(b"MONITOR\r\n")
        heard.extend(link.recv(1 << 16))
        assert b"+OK" in heard, heard
        link.settimeout(0.2)

        def listen() -> None:
            while not stopping.is_set():
                try:
                    heard.extend(link.recv(1 << 20))
                except TimeoutError:
                    continue

        thread = threading.Thread(target=listen, name="monitor")
        thread.start()
        try:
            yield
        finally:
            stopping.set()
            thread.join()


class _Echo(BaseHTTPRequestHandler):
    """Answers with the status of its path and everything that it was sent."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        sent = {"Authorization": self.headers["Authorization"], **dict(self.headers)}
        said = json.dumps({"you sent": sent, "body": body}).encode()
        self.send_response(int(self.path.strip("/")))
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""


@contextmanager
def echoing() -> Iterator[str]:
    """The address of a service that repeats what it is sent, its headers too."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Echo) as server:
        thread = threading.Thread(target=server.serve_forever, name="echo")
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def write_secrets(directory: Path, **values: str) -> None:
    """Secrets as files, replaced as a whole as Kubernetes does."""
    directory.mkdir(exist_ok=True)
    for name, value in values.items():
        fresh = directory / f".{name}"
        fresh.write_text(f"{value}\n")
        os.replace(fresh, directory / name)
