"""Steps whose effects go through ``ctx.call``, mostly at a service that acts as often as it is asked."""

import http.client
import json
import os
import signal
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar
from urllib.parse import quote, urlsplit

from models.failpoints import FailPoint
from tasks import Absent, Context, Effect, Found, Refused, Tool, step, workflow
from tasks.canvas import Canvas
from tasks.tools import Looked
from tests.agents.outside import ask, note

PATIENCE = 90.0  #: seconds; longer than any service here holds a request
POISON = "poison"  #: in an order's name: whoever carries it does not live to hear the answer


@dataclass(frozen=True)
class Order:
    """What is asked for; ``name`` is the business intent it is counted by."""

    name: str
    servers: Any = 1
    labels: dict[str, Any] = field(default_factory=dict)
    asked_at: str = ""
    trace: str = ""
    token: str = ""


@dataclass(frozen=True)
class Placed:
    resource_id: str


class _Ordering(Tool[Order, Placed], abstract=True):
    """``kind`` says whether the service honours the key, ``hears_for`` how long its answer is listened for."""

    kind: ClassVar[str] = "plain"
    hears_for: ClassVar[float] = PATIENCE
    volatile, secret = frozenset({"asked_at", "trace"}), frozenset({"token"})

    def execute(self, request: Order, *, key: str) -> Placed:
        body = {"name": request.name, "servers": request.servers, "labels": request.labels}
        headers = {"Idempotency-Key": key, "Authorization": request.token}
        made = _http("POST", f"/{self.kind}/{quote(request.name)}", body, headers, self.hears_for)
        if POISON in request.name:
            os.kill(os.getpid(), signal.SIGKILL)
        return Placed(made["resource_id"])


class _Asked(_Ordering, abstract=True):
    """Can be asked by the key what became of an order."""

    effect = Effect.QUERYABLE

    def lookup(self, request: Order, *, key: str) -> Looked:
        items = _http("GET", f"/resources?key={quote(key, safe='')}")["items"]
        return Found(Placed(items[0]["resource_id"])) if items else Absent()

    def compensate(self, request: Order, result: Placed, *, key: str) -> bool:
        return bool(_http("DELETE", f"/resources/{result.resource_id}")["undone"])


class Place(_Asked):
    """Waits for its answer for as long as it takes."""

    name, max_request_lifetime = "ledgered.place", timedelta(seconds=1)


class Brisk(_Asked):
    """So short of time that what is not there is soon believed absent."""

    name, timeout = "ledgered.brisk", timedelta(seconds=2)
    max_request_lifetime = timedelta(seconds=0.5)


class Undeclared(_Asked):
    """Stops listening long before its request has landed, and does not say how long that can take."""

    name, hears_for = "ledgered.undeclared", 0.5


class Declared(Undeclared):
    """The same, and says how long it can take."""

    name, timeout = "ledgered.declared", timedelta(seconds=2)
    max_request_lifetime = timedelta(seconds=6)


class Keyed(_Ordering):
    """Honours its key; cannot be asked."""

    name, effect, kind = "ledgered.keyed", Effect.IDEMPOTENT, "idempotent"
    key_retention = timedelta(hours=1)


class HastyKeyed(Keyed):
    """Stops listening before its request has landed."""

    name, hears_for = "ledgered.hasty-keyed", 0.5


class Blind(_Ordering):
    """Knows no key, and cannot be asked."""

    name, effect = "ledgered.blind", Effect.ONCE


class HastyBlind(Blind):
    """The same, and stops listening before its request has landed."""

    name, hears_for = "ledgered.hasty-blind", 0.5


class ReadBack(Tool[Placed, str]):
    """Reads what an order has come to."""

    name, effect = "ledgered.read-back", Effect.PURE

    def execute(self, request: Placed, *, key: str) -> str:
        return str(_http("GET", f"/resources/{request.resource_id}")["status"])


TOOLS: dict[str, type[_Ordering]] = {
    kind.name.partition(".")[2]: kind
    for kind in (Place, Brisk, Declared, Undeclared, Keyed, HastyKeyed, Blind, HastyBlind)
}


@step
def prepare(ctx: Context, name: str) -> str:
    note(ctx)
    return name


@step
def order(ctx: Context, name: str, *, tool: str) -> dict[str, str]:
    note(ctx)
    placed = ctx.call(TOOLS[tool](), Order(name))
    return {"resource_id": placed.resource_id, "by": f"attempt {ctx.attempt}"}


@step
def report(ctx: Context, placed: dict[str, str]) -> str:
    note(ctx)
    return placed["resource_id"]


#: What a second attempt spells otherwise without meaning anything else.
SPELLINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "dict order": ({"labels": {"a": 1, "b": {"c": 2, "d": 3}}}, {"labels": {"b": {"d": 3, "c": 2}, "a": 1}}),
    "number spelling": ({"servers": 1, "labels": {"n": 10}}, {"servers": 1.0, "labels": {"n": 10.0}}),
    "new time": ({"asked_at": "2030-01-01T00:00:00Z"}, {"asked_at": "2030-01-01T00:05:00Z"}),
    "new trace": ({"trace": "4bf92f35"}, {"trace": "00f067aa"}),
    "rotated token": ({"token": "Bearer old"}, {"token": "Bearer new"}),
}  # fmt: skip


@step
def respell(ctx: Context, name: str, *, spelling: str) -> str:
    """Asks for the same in other words in every attempt but the first."""
    note(ctx)
    words = SPELLINGS[spelling][min(ctx.attempt, 2) - 1]
    return ctx.call(Place(), Order(name, **words)).resource_id


@step
def enlarge(ctx: Context, name: str, *, tool: str) -> str:
    """Asks for one server in its first attempt, and for ten in any other."""
    note(ctx)
    return ctx.call(TOOLS[tool](), Order(name, 1 if ctx.attempt == 1 else 10)).resource_id


@step(max_retries=4, default_retry_delay=0.2, retry_jitter=False)
def order_and_read(ctx: Context, name: str) -> list[str]:
    note(ctx)
    placed = ctx.call(Place(), Order(name))
    return [placed.resource_id, ctx.call(ReadBack(), placed)]


@step
def mail(ctx: Context, batch: str, people: int) -> list[str]:
    """One letter after another, in a loop."""
    note(ctx)
    letters = [Order(f"{batch}-{number:02}") for number in range(1, people + 1)]
    return [ctx.call(Place(), letter).resource_id for letter in letters]


@step
def close(ctx: Context, resources: list[str]) -> int:
    note(ctx)
    return len(resources)


@step
def fatal(ctx: Context, name: str, *, tool: str) -> None:
    """Dies in the air, and, when it is told that the order was placed, once more."""
    note(ctx)
    ctx.call(TOOLS[tool](), Order(f"{name}-{POISON}"))
    os.kill(os.getpid(), signal.SIGKILL)


@step(max_retries=2, default_retry_delay=0, retry_jitter=False)
def unsteady(ctx: Context, name: str) -> str:
    """Waits for the model in every second attempt, and fails in all of them."""
    note(ctx)
    if ctx.attempt % 2 == 0:
        ask(f"{name}-{ctx.attempt}")
    raise Refused(f"{name}, attempt {ctx.attempt}")


def _ordered(name: str, tool: str = "place") -> Canvas:
    return prepare.s(name) | order.s(tool=tool) | report.s()


#: ``ledgered-E1`` and so on, and ``ledgered`` for faults that come from outside.
for _name in ("ledgered", *(f"ledgered-{point}" for point in FailPoint)):
    workflow(_name, version="1", steps=[prepare, order, report])(_ordered)


@workflow("ledgered-last", version="1")
def ordering_last(name: str, tool: str = "place") -> Canvas:
    return order.s(name, tool=tool)


@workflow("ledgered-respelled", version="1")
def respelling(name: str, spelling: str) -> Canvas:
    return respell.s(name, spelling=spelling)


@workflow("ledgered-enlarged", version="1")
def enlarging(name: str, tool: str) -> Canvas:
    return enlarge.s(name, tool=tool)


@workflow("ledgered-read-back", version="1")
def reading_back(name: str) -> Canvas:
    return order_and_read.s(name)


@workflow("ledgered-mailing", version="1")
def mailing(batch: str, people: int) -> Canvas:
    return mail.s(batch, people) | close.s()


@workflow("ledgered-fatal", version="1")
def dying(name: str, tool: str) -> Canvas:
    return fatal.s(name, tool=tool)


@workflow("ledgered-unsteady", version="1")
def wavering(name: str) -> Canvas:
    return unsteady.s(name)


def _http(
    method: str, path: str, body: object = None, headers: dict[str, str] | None = None,
    timeout: float = PATIENCE,
) -> dict[str, Any]:  # fmt: skip
    address = urlsplit(os.environ["ONWARD_TEST_FX"])
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=timeout)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers or {})
        response = connection.getresponse()
        answer: dict[str, Any] = json.loads(response.read())
    finally:
        connection.close()
    if 400 <= response.status < 500:
        raise Refused(f"{method} {path} was refused: {response.status} {answer}")
    if response.status != 200:
        raise RuntimeError(f"{method} {path}: {response.status} {answer}")
    return answer
