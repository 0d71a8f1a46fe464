"""The models over HTTP: what a request goes through, from its arrival to its answer or its fault."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from ops.testing.outside.models import anthropic_wire, openai_wire
from ops.testing.outside.models.asked import KINDS, Asked
from ops.testing.outside.models.checks import Rejected, check
from ops.testing.outside.models.ledger import Ledger
from ops.testing.outside.models.produced import Turn, price, produce
from ops.testing.outside.models.script import Answer, Gates, Script, Ways
from ops.testing.outside.models.sending import Sender


class Limited(Exception):
    """More requests in this second than there may be."""


class Service(ThreadingHTTPServer):
    """The models and their state."""

    daemon_threads = True
    request_queue_size = 512

    def __init__(self, store: Path, *, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.ledger = Ledger(store)
        self.script = Script()
        self.gates = Gates()
        self.ways = Ways()
        self._lock = threading.Lock()
        self._second, self._in_second = 0, 0
        self._now, self._most = 0, 0
        self._limited = count()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that was killed in the middle of its request is normal here."""

    def administer(self, what: str, order: dict[str, Any]) -> dict[str, Any]:
        """One order of a test. Raises ``KeyError`` or ``TypeError`` for what is none."""
        match what:
            case "script":
                self.script.add(order)
            case "clear":
                self.script.clear()
            case "ways":
                self.ways, self._second = Ways(**order), 0
            case "release":
                return {"released": self.gates.release(order["name"])}
            case _:
                raise KeyError(what)
        return {}

    def told(self, what: str, query: dict[str, str]) -> dict[str, Any]:
        """What a test wants to know."""
        match what:
            case "calls":
                return {"calls": self.ledger.calls(query.get("match", ""), query.get("kind"))}
            case "billed":
                return self.ledger.billed(query.get("match", ""))
            case "held":
                return {"held": self.gates.held(query["name"])}
            case "now":
                with self._lock:
                    return {"at_once": self._now, "most_at_once": self._most}
        raise KeyError(what)

    @contextmanager
    def counted(self) -> Iterator[None]:
        """While a request is being answered."""
        with self._lock:
            self._now += 1
            self._most = max(self._most, self._now)
        try:
            yield
        finally:
            with self._lock:
                self._now -= 1

    def admit(self) -> None:
        """Raises ``Limited`` for one request too many in this second."""
        limit, second = self.ways.requests_per_second, int(self.ledger.now())
        with self._lock:
            if second != self._second:
                self._second, self._in_second = second, 0
            self._in_second += 1
            if limit is not None and self._in_second > limit:
                raise Limited

    def dated(self) -> bool:
        """Whether the next 429 of the limit names its instant as a date."""
        form = self.ways.retry_form
        return form == "date" or (form == "mixed" and next(self._limited) % 2 == 1)


class Handler(Sender):
    """One request."""

    server: Service

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        path = address.path.strip("/").removeprefix("v1/")
        match path.split("/"):
            case [what] if what.startswith("_"):
                self._control(what[1:], dict(parse_qsl(address.query)))
            case ["models"]:
                self.send_json(200, {"object": "list", "data": []})
            case ["responses", response_id]:
                self._look(response_id)
            case _:
                self.send_json(404, {"error": {"message": f"nothing is at {address.path}"}})

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = urlsplit(self.path).path.strip("/").removeprefix("v1/")
        if path.startswith("_"):
            return self._control(path[1:], json.loads(data), ordered=True)
        kind = KINDS.get(path)
        with self.server.counted():
            body = _object(data)
            if kind is None or body is None:
                return self._strange(path, data, known=kind is not None)
            return self._infer(Asked(kind, body))

    def _control(self, what: str, given: dict[str, Any], *, ordered: bool = False) -> None:
        status = 200
        try:
            done = (self.server.administer if ordered else self.server.told)(what, given)
        except (KeyError, TypeError, ValueError) as error:
            done, status = {"error": f"no such order: {what}: {error!r}"}, 400
        self.send_json(status, done)

    def _strange(self, path: str, data: bytes, *, known: bool) -> None:
        """A request that no model understands, counted all the same."""
        call = self._note(
            "other", model="", digest="", text=f"{path}\n{data.decode(errors='replace')}"
        )
        status = 400 if known else 404
        self.server.ledger.end(call, "rejected", status=status)
        self.send_json(status, openai_wire.error(status, f"cannot read this, at /{path}", None))

    def _infer(self, asked: Asked) -> None:
        ledger, ways = self.server.ledger, self.server.ways
        call = self._note(
            asked.kind, model=asked.model, digest=asked.digest, text=asked.text,
            request=json.dumps(asked.body, ensure_ascii=False), stream=asked.stream,
        )  # fmt: skip
        if ways.authorization is not None and not self._is_let_in(ways.authorization):
            return self._fail(asked, call, Answer(status=401, code="invalid_api_key"), "rejected")
        if asked.model in ways.withdrawn:
            return self._fail(asked, call, Answer(status=404, code="model_not_found"), "rejected")
        try:
            self.server.admit()
            check(asked, alternation=ways.alternation)
        except Limited:
            limited = Answer(status=429, retry_after=ways.retry_after, dated=self.server.dated())
            return self._fail(asked, call, limited, "limited")
        except Rejected as error:
            ledger.end(call, "rejected", status=400)
            self.send_json(400, _error(asked, 400, str(error), None))
            return None
        return self._answer(
            asked, call, self.server.script.take(asked.kind, asked.text, asked.last)
        )

    def _answer(self, asked: Asked, call: int, answer: Answer) -> None:
        if answer.hold:
            self.server.gates.wait(answer.hold)
        time.sleep(answer.delay)
        if answer.cut == "before":
            self.server.ledger.end(call, "cut", status=None)
            self.cut()
            return None
        if answer.status >= 400:
            return self._fail(asked, call, answer, "limited" if answer.status == 429 else "failed")
        self._deliver(asked, call, answer)

    def _deliver(self, asked: Asked, call: int, answer: Answer) -> None:
        """Produce it, bill it, and send it or what a fault leaves of it."""
        ledger = self.server.ledger
        turn = produce(asked, answer, number=call, created=int(ledger.now()))
        ledger.bill(
            call, tokens_in=turn.tokens_in, tokens_out=turn.tokens_out,
            cost=price(turn, self.server.ways.prices, model=asked.model), lost=answer.is_lost,
        )  # fmt: skip
        if not self._send_turn(asked, answer, turn) and not answer.is_lost:
            ledger.end(call, "lost", status=None)

    def _send_turn(self, asked: Asked, answer: Answer, turn: Turn) -> bool:
        """Whether the caller got all of it."""
        if answer.cut == "after":
            return self.cut()
        if answer.malformed:
            return self.send_data(200, b'{"id": "chatcmpl-', {}) and False
        if asked.background:
            return self._begin(answer, turn)
        if asked.stream and asked.kind != "embeddings":
            return self.send_stream(_events(asked, turn), answer, named=asked.kind != "chat")
        return self.send_json(200, _body(asked, turn), half=answer.cut == "half")

    def _begin(self, answer: Answer, turn: Turn) -> bool:
        done = openai_wire.response(turn)
        self.server.ledger.keep(done["id"], done, polls=answer.polls, forgotten=answer.forgotten)
        return self.send_json(200, openai_wire.unfinished(done, "queued"))

    def _look(self, response_id: str) -> None:
        ledger = self.server.ledger
        call = self._note("poll", model="", digest="", text=response_id)
        if (found := ledger.look(response_id)) is None:
            ledger.end(call, "rejected", status=404)
            message = f"Response with id '{response_id}' not found."
            self.send_json(404, openai_wire.error(404, message, None))
            return
        response, there = found
        ledger.end(call, "answered", status=200)
        shown = response if there else openai_wire.unfinished(response, "in_progress")
        self.send_json(200, shown)

    def _fail(self, asked: Asked, call: int, answer: Answer, outcome: str) -> None:
        ledger, after = self.server.ledger, answer.retry_after
        now = ledger.now()
        headers = {}
        if after is not None:
            # A date has whole seconds: it may be up to one later than what was ordered, never earlier.
            moment = float(int(now + after) + 1) if answer.dated else now + after
            headers["Retry-After"] = (
                formatdate(moment, usegmt=True) if answer.dated else f"{after:g}"
            )
        not_before = None if after is None else now + after
        ledger.end(call, outcome, status=answer.status, not_before=not_before)
        message = f"{answer.code}: {asked.model}" if answer.code else "ordered by the test"
        self.send_json(answer.status, _error(asked, answer.status, message, answer.code), headers)

    def _note(
        self,
        kind: str,
        *,
        model: str,
        digest: str,
        text: str,
        request: str = "",
        stream: bool = False,
    ) -> int:
        return self.server.ledger.note(
            kind, model=model, digest=digest, text=text, request=request,
            headers=dict(self.headers.items()), stream=stream,
        )  # fmt: skip

    def _is_let_in(self, key: str) -> bool:
        return key in (
            self.headers.get("x-api-key"),
            (self.headers.get("Authorization") or "").removeprefix("Bearer "),
        )


def _body(asked: Asked, turn: Turn) -> dict[str, Any]:
    match asked.kind:
        case "chat":
            return openai_wire.chat(turn)
        case "responses":
            return openai_wire.response(turn)
        case "messages":
            return anthropic_wire.message(turn)
    return openai_wire.embeddings(asked.body, turn)


def _events(asked: Asked, turn: Turn) -> tuple[list[openai_wire.Event], int]:
    match asked.kind:
        case "chat":
            usage = bool((asked.body.get("stream_options") or {}).get("include_usage"))
            return openai_wire.chat_events(turn, usage=usage)
        case "responses":
            return openai_wire.response_events(turn)
    return anthropic_wire.message_events(turn)


def _error(asked: Asked, status: int, message: str, code: str | None) -> dict[str, Any]:
    if asked.kind == "messages":
        return anthropic_wire.error(status, message)
    return openai_wire.error(status, message, code)


def _object(data: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(data)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
