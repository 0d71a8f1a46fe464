"""A wire between client and server that a test can cut at a chosen instant."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from urllib.parse import urlsplit, urlunsplit

CHUNK = 65536
#: Tags by which Postgres says that a statement has run.
RAN = (b"SELECT ", b"INSERT 0 ")


class Cut(StrEnum):
    """Where the next exchange is cut; once, then the wire is whole again."""

    REQUEST = "request"  #: the server never hears of it
    ANSWER = "answer"  #: the server has done it and answered, the client hears nothing


class Wire:
    """One proxy in front of a server."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = [self._listener]
        self._cut: Cut | None = None
        self._at = b""
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def cut_next(self, cut: Cut, *, at: bytes = b"") -> None:
        """Cut the next exchange of any connection, or the next in which these bytes appear."""
        self._cut, self._at = cut, at

    def close(self) -> None:
        for one in self._open:
            _end(one)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            self._open += [client, server]
            _Exchange(self, client, server).start()

    def take_cut(self, cut: Cut, data: bytes) -> bool:
        """Whether this instant is the chosen one."""
        # A statement is parsed in an exchange of its own: what counts is that it has run.
        tags = RAN if cut is Cut.ANSWER and not self._at else (self._at,)
        if self._cut is not cut or not any(tag in data for tag in tags):
            return False
        self._cut = None
        self.cuts += 1
        return True


class _Exchange:
    def __init__(self, wire: Wire, client: socket.socket, server: socket.socket) -> None:
        self._wire = wire
        self._client = client
        self._server = server

    def start(self) -> None:
        threading.Thread(target=self._requests, daemon=True).start()
        threading.Thread(target=self._answers, daemon=True).start()

    def _requests(self) -> None:
        self._carry(self._client, self._server, Cut.REQUEST)

    def _answers(self) -> None:
        self._carry(self._server, self._client, Cut.ANSWER)

    def _carry(self, source: socket.socket, target: socket.socket, cut: Cut) -> None:
        with suppress(OSError):  # the other direction was cut
            for data in _stream(source):
                if self._wire.take_cut(cut, data):
                    break
                target.sendall(data)
        self._end()

    def _end(self) -> None:
        _end(self._client)
        _end(self._server)


def _stream(source: socket.socket) -> Iterator[bytes]:
    while data := source.recv(CHUNK):
        yield data


def _end(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()


@contextmanager
def wire_to(url: str) -> Iterator[tuple[Wire, str]]:
    """A wire to the server of a URL, and the URL that goes through it."""
    parts = urlsplit(url)
    wire = Wire(parts.hostname or "127.0.0.1", parts.port or 5432)
    host = f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{wire.port}".removeprefix("@")
    try:
        yield wire, urlunsplit(parts._replace(netloc=host))
    finally:
        wire.close()
