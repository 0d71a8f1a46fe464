"""A server that answers with whatever bytes a test has prepared, correct HTTP or not, and counts its requests."""

import json
import socket
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Liar:
    """Each request is answered by the next of the prepared answers, the last of them for ever."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self._answers: deque[bytes] = deque()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"

    def says(self, *answers: bytes) -> None:
        self._answers = deque(answers)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)

    def _serve(self) -> None:
        while True:
            try:
                link, _ = self._listener.accept()
            except OSError:
                return
            with link:
                self._answer(link)

    def _answer(self, link: socket.socket) -> None:
        request = b""
        try:
            while not _is_whole(request):
                if not (piece := link.recv(65536)):
                    return
                request += piece
            self.asked.append(request)
            link.sendall(self._answers.popleft() if len(self._answers) > 1 else self._answers[0])
        except OSError:
            return  # whoever asked has gone


def _is_whole(request: bytes) -> bool:
    head, end, body = request.partition(b"\r\n\r\n")
    if not end:
        return False
    length = next(
        (
            int(line.split(b":")[1])
            for line in head.lower().split(b"\r\n")
            if line.startswith(b"content-length:")
        ),
        0,
    )
    return len(body) >= length


def answer(body: bytes | dict[str, Any], *, status: int = 200, **headers: str) -> bytes:
    """An answer over HTTP; ``retry_after="1"`` is the header ``retry-after``."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    fields = {"content-type": "application/json", "content-length": str(len(content))}
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status} Said\r\n{head}connection: close\r\n\r\n".encode("latin-1") + content


@contextmanager
def liar() -> Iterator[Liar]:
    server = Liar()
    try:
        yield server
    finally:
        server.close()
