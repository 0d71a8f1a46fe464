"""The service over HTTP: what each address does, and how ordered faults are carried out."""

import hashlib
import json
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from ops.testing.outside.ledger import Ledger
from ops.testing.outside.orders import Fault, Holds, Orders, Subject, fault_of

_PAGING = ("cursor", "page")


@dataclass(frozen=True, slots=True)
class Reply:
    """What goes back when nothing is done to it."""

    status: int
    body: object
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Ways:
    """How the service behaves for everybody."""

    page_size: int = 50
    key_retention: float | None = None  #: seconds for which a key is honoured; None: for ever
    authorization: str | None = None  #: the header's value that is let in; None: everybody is


class Service(ThreadingHTTPServer):
    """The service and its state."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, store: Path, *, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.ledger = Ledger(store)
        self.orders = Orders()
        self.holds = Holds()
        self.ways = Ways()
        self.scripts: dict[str, str] = {}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that was killed in the middle of its request is normal here."""

    def administer(self, what: str, order: dict[str, Any]) -> dict[str, Any]:
        """One order of a test. Raises ``KeyError`` or ``TypeError`` for what is none."""
        subject = (str(order.get("name", "")), str(order.get("on", "create")))
        match what:
            case "hold":
                self.holds.order(subject, order["where"], order["times"])
            case "release":
                return {"released": self.holds.release(order["name"], order["count"])}
            case "fault":
                fault = fault_of(order["fault"], order)
                self.orders.add(subject, order["fault"], fault=fault, times=order["times"])
            case "clear":
                self.orders.clear(order["name"])
            case "ways":
                self.ways = Ways(**order)
            case "script":
                self.scripts[order["name"]] = order["text"]
            case _:
                return self._meddle(what, order)
        return {}

    def _meddle(self, what: str, order: dict[str, Any]) -> dict[str, Any]:
        """What somebody does at the service by hand: counted by nobody."""
        match what:
            case "make":
                body = json.dumps(order["body"]).encode()
                made, _ = self.ledger.apply(
                    order["name"], key=order["key"], honoured=False, digest="", body=body
                )
                return made
            case "remove":
                return {"removed": self.ledger.remove(_number(order["id"]))}
            case "rename":
                return {"renamed": self.ledger.rename(_number(order["id"]), order["to"])}
            case "forget":
                forgotten = self.ledger.forget_keys(order["name"], in_lookups=order["in_lookups"])
                return {"forgotten": forgotten}
        raise KeyError(what)


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Service

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        query = dict(parse_qsl(address.query, keep_blank_values=True))
        name = query.get("name", "")
        match address.path.strip("/").split("/"):
            case ["held"]:
                self._send(Reply(200, {"held": self.server.holds.held(name)}))
            case ["counts"]:
                self._send(Reply(200, self.server.ledger.counts(name)))
            case ["ledger", "resources"]:
                self._send(Reply(200, {"resources": self.server.ledger.resources(name)}))
            case ["ledger", "calls"]:
                self._send(Reply(200, {"calls": self.server.ledger.calls(name)}))
            case ["resources"]:
                self._look_up(query)
            case ["resources", label]:
                self._look_at(_number(label))
            case _:
                self._send(Reply(404, {"error": f"nothing is at {address.path}"}))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        match urlsplit(self.path).path.strip("/").split("/", 1):
            case ["admin", what]:
                self._administer(what, body)
            case ["resources", rest] if rest.endswith("/cancel"):
                self._undo(_number(rest.removesuffix("/cancel")), delete=False)
            case [("idempotent" | "plain") as kind, name]:
                self._create(kind, unquote(name), body)
            case ["llm", name]:
                self._answer_as_model(unquote(name), body)
            case _:
                self._send(Reply(404, {"error": f"nothing is at {self.path}"}))

    def do_DELETE(self) -> None:
        match urlsplit(self.path).path.strip("/").split("/"):
            case ["resources", label]:
                self._undo(_number(label), delete=True)
            case _:
                self._send(Reply(404, {"error": f"nothing is at {self.path}"}))

    def _create(self, kind: str, name: str, body: bytes) -> None:
        key, digest = self.headers.get("Idempotency-Key"), hashlib.sha256(body).hexdigest()
        ledger, retention = self.server.ledger, self.server.ways.key_retention
        ledger.note_call(kind, name, key=key, digest=digest)

        def act(fault: Fault) -> Reply:
            made, fits = ledger.apply(
                name, key=key, honoured=kind == "idempotent", digest=digest, body=body,
                retention=retention, hidden=fault.hidden, provisioning=fault.provisioning,
            )  # fmt: skip
            if not fits:
                made = {**made, "error": "this key was used for another request"}
            return Reply(200 if fits else 409, made)

        self._serve((name, "create"), act)

    def _answer_as_model(self, name: str, body: bytes) -> None:
        digest = hashlib.sha256(body).hexdigest()
        number = self.server.ledger.note_call("llm", name, digest=digest)
        text = self.server.scripts.get(name, json.dumps({"answer": number}))
        self._serve((name, "create"), lambda _fault: Reply(200, {"text": text}))

    def _look_up(self, query: dict[str, str]) -> None:
        ledger, key = self.server.ledger, query.get("key")
        name = query.get("name") or (ledger.intent_of(key=key) if key else "")
        ledger.note_call("lookup", name, key=key)
        self._serve((name, "lookup"), lambda _fault: self._page(query))

    def _page(self, query: dict[str, str]) -> Reply:
        size, number = self.server.ways.page_size, int(query.get("page", 1))
        wanted = {field: value for field, value in query.items() if field not in _PAGING}
        after = int(query.get("cursor", "after-0").removeprefix("after-"))
        found = self.server.ledger.find(
            wanted, after=after, skip=(number - 1) * size, limit=size + 1
        )
        items, page = found[:size], {"page": number}
        if len(found) <= size:
            return Reply(200, {"items": items, "next_cursor": None, "next": None, **page})
        cursor = f"after-{_number(items[-1]['id'])}"
        following = f"/resources?{urlencode({**wanted, 'cursor': cursor})}"
        body = {"items": items, "next_cursor": cursor, "next": following, **page}
        return Reply(200, body, {"Link": f'<{following}>; rel="next"'})

    def _look_at(self, number: int) -> None:
        name = self.server.ledger.intent_of(number=number)
        self.server.ledger.note_call("lookup", name)

        def act(_fault: Fault) -> Reply:
            found = self.server.ledger.get(number)
            return Reply(200, found) if found else _missing(number)

        self._serve((name, "lookup"), act)

    def _undo(self, number: int, *, delete: bool) -> None:
        ledger = self.server.ledger
        name, key = ledger.intent_of(number=number), self.headers.get("Idempotency-Key")
        ledger.note_call("delete", name, key=key)

        def act(_fault: Fault) -> Reply:
            if delete:
                return Reply(200, {"undone": True}) if ledger.remove(number) else _missing(number)
            if ledger.cancel(number):
                return Reply(200, ledger.get(number) or {})
            return Reply(409, {"error": f"res-{number} is cancelled or gone already"})

        self._serve((name, "delete"), act)

    def _serve(self, subject: Subject, act: Callable[[Fault], Reply]) -> None:
        """Do what was asked, and to the caller what was ordered."""
        world, fault = self.server, self.server.orders.take(*subject)
        if (wanted := world.ways.authorization) and self.headers.get("Authorization") != wanted:
            return self._send(Reply(401, {"error": "nobody may do that without authorization"}))
        world.holds.wait(subject, "before")
        if fault.delay and fault.cut_first:
            threading.Thread(target=_later, args=(fault, act), daemon=True).start()
            return self._cut()
        time.sleep(max(fault.delay, fault.silent))
        reply = act(fault) if fault.applied else Reply(500, {"error": "ordered by the test"})
        world.holds.wait(subject, "after")
        if fault.cut or fault.silent:
            return self._cut()
        return self._send(_altered(reply, fault), garbled=fault.garbled)

    def _administer(self, what: str, body: bytes) -> None:
        try:
            self._send(Reply(200, self.server.administer(what, json.loads(body))))
        except (KeyError, TypeError, ValueError) as error:
            self._send(Reply(400, {"error": f"no such order: {what}: {error!r}"}))

    def _send(self, reply: Reply, *, garbled: bool = False) -> None:
        data = b'{"id": "res-' if garbled else json.dumps(reply.body).encode()
        headers = {
            "Content-Type": "application/json", "Content-Length": str(len(data)), **reply.headers,
        }  # fmt: skip
        try:
            self.send_response(reply.status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)
        except OSError:
            self.close_connection = True  # the caller was killed, as it should be

    def _cut(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *_: Any) -> None:
        """The ledger is the log."""


def _later(fault: Fault, act: Callable[[Fault], Reply]) -> None:
    time.sleep(fault.delay)
    act(fault)


def _altered(reply: Reply, fault: Fault) -> Reply:
    if fault.status is None:
        return reply
    return Reply(fault.status, {"error": "ordered by the test"}, fault.headers)


def _missing(number: int) -> Reply:
    return Reply(404, {"error": f"there is no res-{number}"})


def _number(label: str) -> int:
    digits = label.removeprefix("res-")
    return int(digits) if digits.isdecimal() and len(digits) < 16 else 0
