"""A tool for an HTTP API, described and not programmed.

    create_invoice = HttpTool(
        "invoice.create", effect=Effect.QUERYABLE,
        url="${BILLING_URL}/customers/{customer}/invoices", key_field="metadata.reference",
        headers={"Authorization": "Bearer {{secret:BILLING_TOKEN}}"},
        request=InvoiceRequest, result=Invoice,
        lookup=LookUp(url="${BILLING_URL}/invoices?reference={key}", items="data",
                      match={"metadata.reference": "{key}"}, paging=Cursor("next", parameter="after")),
        undo=Undo("${BILLING_URL}/invoices/{result.id}"),
        max_request_lifetime=timedelta(seconds=60), consistency_window=timedelta(seconds=10),
    )
    ...
    invoice = ctx.call(create_invoice, InvoiceRequest(customer="c-1", amount=100))

What an answer means, unless ``answers={409: "refused"}`` says otherwise:

* 2xx: it happened. A body that cannot be read leaves the result open, not the effect: it is looked up;
* 4xx, and 301, 307, 308: it did not (``Refused``; 429 as ``RateLimited`` with ``retry_after``), except 408 and
  409, which leave it open;
* everything else, a time-out, a cut connection: it may have happened (``Unanswered``);
* no connection at all: ``NotSent``. Redirects are never followed: a request is sent once.

The result is what the creating answer says, and it is recorded before anything else is asked. A read-back is
another call (``effect=Effect.PURE, method="GET"``), whose failure is its own.
"""

import json
from collections.abc import Collection, Mapping
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypeVar

from models.messages import one_line
from models.schemas import adapter_of
from models.secret import Secret
from tasks import tool_registry
from tasks.certificates import tls_context
from tasks.errors import DefinitionError
from tasks.toolkit import exchange
from tasks.toolkit.exchange import Answer, Meaning, RateLimited, Unreadable
from tasks.toolkit.lookup import Cursor, LinkHeader, Looker, LookUp, NextLink, PageNumber
from tasks.toolkit.outgoing import Body, Outgoing, Undo
from tasks.toolkit.templates import (
    CannotFill,
    Missing,
    Template,
    Values,
    at,
    fields_of,
    plain,
    secrets_in,
    wire_names,
)  # fmt: skip
from tasks.tools import Absent, Effect, Found, Looked, NotSent, Tool, Unanswered, Undecided

if TYPE_CHECKING:
    import httpx2

__all__ = [
    "Cursor", "HttpTool", "LinkHeader", "LookUp", "NextLink", "PageNumber", "RateLimited", "Undo",
    "open_client",
]  # fmt: skip

_KEY_HEADER = "Idempotency-Key"
#: Of the tool's time-out: an unanswered call is over before its caller gives it up, and is known to be over.
_SHARE = 0.95


_ANYTHING: Any = Any
Req = TypeVar("Req", default=Any)
Res = TypeVar("Res", default=Any)


class HttpTool(Tool[Req, Res], Generic[Req, Res], abstract=True):
    """A tool made of descriptions. Declared at the top of a module: look-ups find it by its name.

    ``url``, ``headers`` and the strings of ``body`` are templates (see ``tasks.toolkit.templates``).

    ``body``: everything of the request (the default of POST, PUT and PATCH), ``False``, a list of its
    fields, or an object by paths: ``{"order.sum": "{amount}", "currency": "EUR"}``. ``key_field``: a path
    of the body where the key goes, for services without a key header. ``request`` and ``result`` are
    types as in annotations; without them, JSON is taken as it is. ``result_at`` and ``id_at`` are paths in
    the answer and in the result.
    """

    def __init__(
        self, name: str, *, effect: Effect, url: str, method: str = "POST", version: str = "1",
        request: type[Req] = _ANYTHING, result: type[Res] = _ANYTHING, body: Body | None = None,
        headers: Mapping[str, str | Secret] | None = None, key_header: str | None = _KEY_HEADER,
        key_field: str | None = None, result_at: str = "", id_at: str = "id",
        answers: Mapping[int, Meaning] | None = None, lookup: LookUp | None = None,
        undo: Undo | None = None, key_retention: timedelta | None = None,
        max_request_lifetime: timedelta | None = None, consistency_window: timedelta = timedelta(0),
        timeout: timedelta | None = None, rate_limit: str | float | None = None,
        volatile: Collection[str] = (), secret: Collection[str] = (),
    ) -> None:  # fmt: skip
        owner = f"tool {name}"
        self.name, self.version, self.effect = name, version, effect
        self.key_retention, self.max_request_lifetime = key_retention, max_request_lifetime
        self.consistency_window, self.timeout = consistency_window, timeout
        self.rate_limit = rate_limit
        self.volatile, self.secret = frozenset(volatile), frozenset(secret)
        self._request, self._result, self._result_at = request, result, result_at
        self._answers, self._undo = dict(answers or {}), undo
        filled = {head: Template(text, owner=owner) for head, text in (headers or {}).items()}
        self._create = Outgoing(
            method, url, owner=owner, headers=filled, body=body, key_header=key_header,
            key_field=key_field,
        )  # fmt: skip
        self._undoing = None
        if undo:
            self._undoing = Outgoing(
                undo.method, undo.url, owner=owner, headers=filled, body=undo.body or False,
                key_header=key_header, key_field=None,
            )  # fmt: skip
        self._looker, self._undo_looker = (
            Looker(asked, owner=owner, headers=filled, id_at=id_at) if asked else None
            for asked in (lookup, undo.check if undo else None)
        )
        self._check_holes(owner)
        sent = (method, url, body, headers, key_header, key_field)
        self._told = (version, str(effect), *sent, lookup, undo)
        _register(self)

    def execute(self, request: Req, *, key: str) -> Res:
        """Send once. What comes back is the result, read from the creating answer alone."""
        answer = self._send(self._create, self._values(request, key))
        exchange.check_settled(answer, self._answers)
        try:
            return self._shaped(self._body(answer), self._result_at)
        except Unreadable as error:
            raise Unanswered(
                f"{answer.call.what} was answered {answer.status}, so it happened, but its answer is of no "
                f"use: {error}"
            ) from error

    def lookup(self, request: Req, *, key: str) -> Looked:
        """Ask by GET. Raises when the service does not say."""
        if self._looker is None:
            raise NotImplementedError(f"tool {self.name} has no lookup=")
        found = self._find(self._looker, self._values(request, key))
        match found:
            case Undecided():
                return found
            case []:
                return Absent()
            case [one]:
                return self._one(self._looker, one)
        return self._looker.several(found)

    def compensate(self, request: Req, result: Res, *, key: str) -> dict[str, Any]:
        """Undo it; what was gone already is undone."""
        if self._undoing is None or self._undo is None:
            raise NotImplementedError(f"tool {self.name} has no undo=")
        answer = self._send(self._undoing, self._values(request, key, result))
        gone = answer.status in self._undo.gone
        if not gone:
            exchange.check_settled(answer, self._undo.answers)
        return {"status": answer.status, "already_undone": gone}

    def lookup_compensation(self, request: Req, result: Res, *, key: str) -> Looked:
        """Whether it was undone: gone, or visible in a state that says so."""
        looker = self._undo_looker or self._looker
        if looker is None:
            return Undecided(
                "the tool has neither lookup= nor Undo(check=...): nobody can be asked"
            )
        found = self._find(looker, self._values(request, key, result))
        if isinstance(found, Undecided):
            return found
        left = [one for one in found if not looker.is_undone(one)]
        if len(left) > 1:
            return looker.several(left)
        return Absent() if left else Found(None)

    @property
    def can_look_up(self) -> bool:
        return self._looker is not None

    @property
    def can_look_up_undo(self) -> bool:
        return (self._undo_looker or self._looker) is not None

    @property
    def can_compensate(self) -> bool:
        return self._undo is not None

    def _one(self, looker: Looker, item: Any) -> Looked:
        if looker.is_pending(item):
            again = looker.asked.again_in
            return Undecided(f"{looker.name_of(item)} is there and not ready yet", again_in=again)
        try:
            return Found(self._shaped(item, looker.asked.result_at))
        except Unreadable as error:
            return Undecided(f"{looker.name_of(item)} is there, and is no result: {error}")

    def _send(self, outgoing: Outgoing, values: Values) -> Answer:
        try:
            call = outgoing.fill(values)
        except CannotFill as error:
            raise NotSent(f"{outgoing.what} was not sent: {error}") from error
        seconds = _SHARE * self.promise.timeout
        try:
            client = open_client(timeout=seconds)
        except Exception as error:
            raise NotSent(f"{call.what} was not sent: no client could be made: {error}") from error
        with client:
            return exchange.send(client, call, seconds=seconds)

    def _find(self, looker: Looker, values: Values) -> list[Any] | Undecided:
        with open_client(timeout=self.promise.timeout) as client:
            return looker.find(client, values, seconds=self.promise.timeout)

    def _values(self, request: Any, key: str, result: Any = None) -> Values:
        try:
            hidden = secrets_in(request, self.secret)
            return Values(key, plain(request, reveal=True), plain(result), hidden=hidden)
        except CannotFill as error:
            raise NotSent(f"{self._create.what} was not sent: {error}") from error

    def _body(self, answer: Answer) -> Any:
        """The answer's JSON; an empty answer has at most a ``Location``."""
        body, location = answer.json(), answer.headers.get("location")
        return {"location": location} if body is None and location else body

    def _shaped(self, structure: Any, path: str) -> Res:
        """A result as ``result=`` wants it. Raises ``Unreadable``."""
        try:
            found = at(structure, path)
            if self._result is not _ANYTHING:
                found = self._adapter.validate_json(json.dumps(found))
            shaped: Res = found
            return shaped
        except Missing as error:
            raise Unreadable(f"it has no result at {path!r}: {error}") from None
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"])) or "it"
            raise Unreadable(f"{where}: {one_line(first['msg'])}") from None

    @cached_property
    def _adapter(self) -> "TypeAdapter[Any]":
        return adapter_of(self._result, f"the result of {self.name}")

    def _annotation(self, place: int, parameter: str) -> Any:
        del parameter  # they are said, not annotated
        return (self._request, self._result)[place]

    def _check_holes(self, owner: str) -> None:
        """Refuse at its import what could only fail later, or could not be looked up."""
        looked = self._looker.fields if self._looker else frozenset()
        undone = self._undoing.fields if self._undoing else frozenset()
        checked = self._undo_looker.fields if self._undo_looker else frozenset()
        for hole in sorted(self._create.fields | looked | undone | checked):
            top = hole.removeprefix("request.").partition(".")[0]
            known = fields_of(self._request)
            if hole != "key" and top != "result" and known is not None and top not in known:
                raise DefinitionError(f"{owner}: its requests have no field {top!r}")
        for hole in sorted(looked | undone | checked):
            path = hole.removeprefix("request.")
            hidden = wire_names(self._request, self.secret)
            if any(path == one or path.startswith(f"{one}.") for one in hidden):
                raise DefinitionError(
                    f"{owner}: {path!r} is secret, so no look-up or undo knows it"
                )
        if any(hole.startswith("result.") for hole in self._create.fields | looked):
            raise DefinitionError(f"{owner}: only what undoes it knows its result")
        if self.effect is Effect.IDEMPOTENT and not self._create.carries_key:
            raise DefinitionError(
                f"{owner}: an IDEMPOTENT tool sends its key: key_header= or key_field="
            )


def open_client(*, timeout: float) -> "httpx2.Client":
    """A client for one exchange: every request of these tools goes through one made here.

    Never kept: a pooled connection that the service closed meanwhile would make a request that was not sent
    look like one that was.
    """
    import httpx2  # noqa: PLC0415 - a tenth of a second, for processes that only declare tools

    return httpx2.Client(verify=tls_context(), timeout=timeout, follow_redirects=False)


def _register(made: HttpTool[Any, Any]) -> None:
    known = tool_registry.tools().get(made.name)
    if isinstance(known, HttpTool) and known._told != made._told:
        raise DefinitionError(
            f"two HTTP tools are called {made.name!r}: rename one, since a look-up after a crash finds a tool "
            "by its name"
        )
    tool_registry.register_instance(made)
