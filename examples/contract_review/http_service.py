"""A small JSON-over-HTTP service: threads, keep-alive, exact errors. Both services stand on it.

Standard library only, and nothing of Onward: these processes are the outside world, whose counts
are held against the journal's.
"""

import argparse
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

BODY_LIMIT = 8 * 1024 * 1024  #: bytes of one request
IDLE_LIMIT = 120.0  #: seconds a connection may be silent before its thread is given back

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Request:
    """One request with its body read."""

    path: str
    query: Mapping[str, Sequence[str]]
    headers: Mapping[str, str]  #: names in lower case
    body: bytes

    def json_object(self) -> dict[str, Any]:
        """The body as a JSON object, or a refusal with status 400."""
        try:
            value = json.loads(self.body)
        except ValueError as error:
            raise Refusal(400, f"the body is not JSON: {error}") from None
        if not isinstance(value, dict):
            raise Refusal(400, "the body is not a JSON object")
        return value


@dataclass(frozen=True, slots=True)
class Reply:
    """What goes back."""

    body: object
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


class Refusal(Exception):
    """A request that is answered with an error; the message is for its sender."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(status, message)
        self.status, self.message = status, message

    def reply(self) -> Reply:
        """In the form in which OpenAI's endpoints answer, since SDKs show the message inside."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        return Reply({"error": {"message": self.message, "type": kind}}, self.status)


class Cut(Exception):  # the caller's connection ends here, as when a network fails
    """What was asked is done, and its answer is to be lost."""


#: (method, first part of the path) -> what answers it
Routes = Mapping[tuple[str, str], Callable[[Request], Reply]]


class Server(ThreadingHTTPServer):
    """Threads that end with the process; a backlog that takes a whole pool reconnecting at once."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], routes: Routes) -> None:
        super().__init__(address, type("RoutedHandler", (_Handler,), {"routes": routes}))

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed in the middle of a request is normal here, and no news."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else an answer of two packets waits 40 ms for the client's ack
    wbufsize = -1  # headers and body leave in one packet
    timeout = IDLE_LIMIT
    routes: ClassVar[Routes]

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_DELETE(self) -> None:
        self._answer("DELETE")

    def log_message(self, format: str, *args: Any) -> None:
        """No line for each request: there are hundreds a second, and the stores count them."""

    def _answer(self, method: str) -> None:
        try:
            reply = self._dispatch(method)
        except Refusal as refusal:
            reply = refusal.reply()
        except Cut:
            self.close_connection = True
            return
        except Exception:
            log.exception("%s %s failed", method, self.path)
            reply = Refusal(500, "the service failed; its log says why").reply()
        data = json.dumps(reply.body, ensure_ascii=False).encode()
        self.send_response(reply.status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def _dispatch(self, method: str) -> Reply:
        parts = urlsplit(self.path)
        body = self._body()
        route = self.routes.get((method, parts.path)) or self.routes.get(
            (method, _first(parts.path))
        )
        if route is None:
            raise Refusal(404, f"there is no {method} {parts.path}")
        headers = {name.lower(): value for name, value in self.headers.items()}
        return route(Request(parts.path, parse_qs(parts.query), headers, body))

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "0")
        if self.headers.get("Transfer-Encoding") or not length.isdigit():
            self.close_connection = True
            raise Refusal(411, "send the body with a Content-Length")
        if int(length) > BODY_LIMIT:
            self.close_connection = True
            raise Refusal(413, f"the body has {length} bytes, and {BODY_LIMIT} are the limit")
        return self.rfile.read(int(length))


def parser(name: str, description: str) -> argparse.ArgumentParser:
    """The options that both services share."""
    options = argparse.ArgumentParser(
        prog=f"python -m examples.contract_review.{name}", description=description
    )
    options.add_argument("--host", default="127.0.0.1")
    options.add_argument("--port", type=int, default=0, help="0 takes a free one and prints it")
    options.add_argument("--port-file", type=Path, help="written once the service listens")
    return options


def serve(routes: Routes, options: argparse.Namespace, *, name: str) -> None:
    """Answer requests until SIGTERM or Ctrl-C. What was answered was stored before."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    try:
        server = Server((options.host, options.port), routes)
    except OSError as error:
        raise SystemExit(
            f"{name}: cannot listen on {options.host}:{options.port}: {error.strerror}"
        ) from None
    signal.signal(signal.SIGTERM, _stopper(server))
    signal.signal(signal.SIGINT, _stopper(server))
    port = server.server_address[1]
    if options.port_file:
        _write_whole(options.port_file, f"{port}\n")
    sys.stdout.write(f"{name} listens on http://{options.host}:{port}\n")
    sys.stdout.flush()
    server.serve_forever()
    server.server_close()


def _stopper(server: Server) -> Callable[[int, FrameType | None], None]:
    """``shutdown`` waits for the loop that the signal interrupted, so it must run beside it."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        threading.Thread(target=server.shutdown, daemon=True).start()

    return stop


def _write_whole(path: Path, text: str) -> None:
    """Whoever sees the file sees all of it."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text)
    draft.replace(path)


def _first(path: str) -> str:
    """``/filings/7`` -> ``/filings/``: the key of a route that takes an id."""
    return "/".join(path.split("/")[:2]) + "/"
