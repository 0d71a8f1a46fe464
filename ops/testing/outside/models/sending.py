"""How an answer goes back: whole, as a stream, or broken in the way that was ordered."""

import json
import socket
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from typing import Any, Literal

from ops.testing.outside.models.openai_wire import Event
from ops.testing.outside.models.script import Answer


class Sender(BaseHTTPRequestHandler):
    """HTTP/1.1, so that a stream that breaks differs from one that ends."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two writes, and the second waited 40 ms
    timeout = 120  #: seconds that a kept connection may be idle

    def send_json(
        self,
        status: int,
        body: object,
        headers: dict[str, str] | None = None,
        *,
        half: bool = False,
    ) -> bool:
        """Whether all of it was sent; ``half`` breaks the connection on the way."""
        data = json.dumps(body, ensure_ascii=False).encode()
        return self.send_data(status, data, headers or {}, half=half)

    def send_data(
        self, status: int, data: bytes, headers: dict[str, str], *, half: bool = False
    ) -> bool:
        """Bytes as JSON, whatever they are."""
        sent = {"Content-Type": "application/json", "Content-Length": str(len(data)), **headers}
        try:
            self._head(status, sent)
            self.wfile.write(data[: len(data) // 2] if half else data)
        except OSError:
            return self._gone()
        return self.cut() if half else True

    def send_stream(self, stream: tuple[list[Event], int], answer: Answer, *, named: bool) -> bool:
        """Server-sent events in chunks; whether all of them were sent."""
        events, end = stream
        whole = answer.ends is None and answer.cut is None
        if "half" in (answer.cut, answer.ends) or answer.ends == "error":
            events = events[: max(1, (len(events) - end + 1) // 2)]
        elif answer.ends == "unfinished":
            events = events[:-end]
        if answer.ends == "error":
            failure = {"type": "overloaded_error", "message": "ordered by the test"}
            events = [*events, {"type": "error", "error": failure}]
        try:
            self._head(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})
            for event in events:
                self._chunk(_lines(event, named=named))
                time.sleep(answer.chunk_delay)
            if answer.cut == "half":
                return self.cut()
            self._chunk(b"")
        except OSError:
            return self._gone()
        return whole

    def cut(self) -> Literal[False]:
        """Close the connection in the middle of whatever it was."""
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        return False

    def log_message(self, *_: Any) -> None:
        """The ledger is the log."""

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _gone(self) -> Literal[False]:
        self.close_connection = True  # the caller was killed, as it should be
        return False


def _lines(event: Event, *, named: bool) -> bytes:
    """One event. Chat completions' have no names, the other dialects' have."""
    data = event if isinstance(event, str) else json.dumps(event, ensure_ascii=False)
    head = f"event: {event['type']}\n" if named and isinstance(event, dict) else ""
    return f"{head}data: {data}\n\n".encode()
