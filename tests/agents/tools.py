"""Tools that reach the outside world over HTTP, and steps that call them in every way there is."""

import asyncio
import http.client
import json
import os
import sys
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from models.failpoints import FailPoint
from tasks import Context, Effect, Refused, Tool, group, step, tool, workflow
from tasks.canvas import Canvas
from tests.agents.outside import note

POINTS = tuple(point for point in FailPoint if point.startswith("E"))


@dataclass(frozen=True)
class Order:
    """What is asked for; ``intent`` is the name it is counted by."""

    intent: str
    servers: int = 1
    asked_at: str = ""


@dataclass(frozen=True)
class Receipt:
    resource_id: str
    servers: int


class Provider(Tool[Order, Receipt]):
    """Honours the key: sent again after a crash."""

    name, effect = "provider.order", Effect.IDEMPOTENT
    key_retention, max_request_lifetime = timedelta(hours=1), timedelta(seconds=5)
    volatile = frozenset({"asked_at"})

    def execute(self, request: Order, *, key: str) -> Receipt:
        answer = _post(f"/idempotent/{request.intent}", {"servers": request.servers}, key=key)
        return Receipt(answer["resource_id"], request.servers)


class Hasty(Provider):
    name, timeout = "provider.hasty", timedelta(seconds=1)


class Paced(Provider):
    name, rate_limit = "provider.paced", "5/s"


class Blind(Tool[Order, Receipt]):
    """Knows no key and no look-up: never asked twice."""

    name, effect = "blind.order", Effect.ONCE

    def execute(self, request: Order, *, key: str) -> Receipt:
        answer = _post(f"/plain/{request.intent}", asdict(request), key=key)
        return Receipt(answer["resource_id"], request.servers)


class Odd(Blind):
    """Returns what the journal cannot hold."""

    name = "blind.odd"

    def execute(self, request: Order, *, key: str) -> Receipt:
        made = super().execute(request, key=key)
        return Receipt(made.resource_id, {made.servers})  # type: ignore[arg-type]


@tool("model.ask", effect=Effect.PURE)
async def ask(prompt: str, *, key: str) -> str:
    answer = await asyncio.to_thread(_post, f"/llm/{prompt}", {"prompt": prompt}, key=key)
    return str(answer["text"])


@step
def order(ctx: Context, intent: str) -> Receipt:
    note(ctx)
    return ctx.call(Provider(), Order(intent, asked_at=f"attempt {ctx.attempt}"))


@step
def report(ctx: Context, receipt: Receipt) -> dict[str, Any]:
    note(ctx)
    return {"resource_id": receipt.resource_id, "reported": "yes"}


@step
def wavering(ctx: Context, intent: str) -> Receipt:
    """Asks for one server, and for ten in the next attempt."""
    note(ctx)
    made = ctx.call(Provider(), Order(intent, 1 if ctx.attempt == 1 else 10))
    ctx.call(ask, f"{intent}-model")
    return made


@step
def deaf(ctx: Context, intent: str) -> str:
    """Swallows every signal there is and says that all is well."""
    note(ctx)
    for name in ("first", "second"):
        try:
            ctx.call(Blind(), Order(f"{intent}-{name}"), name=name)
        except BaseException:
            note(ctx, "swallowed")
    return "all is well"


@step
def odd(ctx: Context, intent: str) -> Receipt:
    note(ctx)
    return ctx.call(Odd(), Order(intent))


@step
def many(ctx: Context, intent: str) -> list[str]:
    """Two tools, a loop, and a question between."""
    note(ctx)
    made = [ctx.call(Provider(), Order(f"{intent}-{place}")).resource_id for place in range(3)]
    made.append(ctx.call(ask, f"{intent}-model"))
    made.append(ctx.call(Hasty(), Order(f"{intent}-other")).resource_id)
    return made


@step
def choosing(ctx: Context, intent: str) -> Receipt:
    """Takes the second offer when the first is refused."""
    note(ctx)
    try:
        return ctx.call(Provider(), Order(f"{intent}-first"))
    except Refused:
        return ctx.call(Provider(), Order(f"{intent}-second"))


@step(max_retries=1, default_retry_delay=0)
def leaving(ctx: Context, intent: str) -> Receipt:
    """Ends its process, or thinks so."""
    note(ctx)
    sys.exit(f"{intent} is none of my business")


@step
def member(ctx: Context, number: int, *, intent: str) -> str:
    note(ctx)
    return ctx.call(Provider(), Order(f"{intent}-{number}")).resource_id


@step
def paced(ctx: Context, number: int, *, intent: str) -> str:
    return ctx.call(Paced(), Order(f"{intent}-{number}")).resource_id


@step(soft_time_limit=1.0, time_limit=20.0)
def warned(ctx: Context, intent: str) -> Receipt:
    note(ctx)
    return ctx.call(Provider(), Order(intent))


@step
def joined(ctx: Context, made: list[str]) -> list[str]:
    note(ctx)
    return made


@step
async def gathering(ctx: Context, intent: str) -> list[str]:
    note(ctx)
    made = await asyncio.gather(
        *(
            ctx.acall(Provider(), Order(f"{intent}-{place}"), name=f"place {place}")
            for place in range(4)
        )
    )
    return [one.resource_id for one in made]


@step
async def awaiting(ctx: Context, intent: str) -> list[str]:
    """One call after another, in the body's own task: their order is fixed."""
    note(ctx)
    first = await ctx.acall(Provider(), Order(f"{intent}-0"))
    second = ctx.call(Provider(), Order(f"{intent}-1"))
    third = await ctx.acall(Provider(), Order(f"{intent}-2"))
    return [
        first.resource_id,
        second.resource_id,
        third.resource_id,
        ctx.call(ask, f"{intent}-model"),
    ]


@step
async def disordered(ctx: Context, intent: str) -> list[Receipt]:
    """Gathers without names, which only chance would order."""
    note(ctx)
    return await asyncio.gather(
        *(ctx.acall(Provider(), Order(f"{intent}-{place}")) for place in range(2)),
        _ask(ctx, intent),
    )


async def _ask(ctx: Context, intent: str) -> Receipt:
    return await ctx.acall(Provider(), Order(f"{intent}-task"))


@step
def hasty(ctx: Context, intent: str) -> Receipt:
    note(ctx)
    return ctx.call(Hasty(), Order(intent))


@step(max_retries=3, default_retry_delay=0)
def persistent(ctx: Context, intent: str) -> Receipt:
    note(ctx)
    return ctx.call(Provider(), Order(intent))


def _ordered(intent: str) -> Canvas:
    return order.s(intent) | report.s()


#: ``tools-E1`` and so on, one for each failpoint, so that one worker carries all.
for _point in POINTS:
    workflow(f"tools-{_point}", version="1", steps=[order, report])(_ordered)


@workflow("tools", version="1")
def tools(of: str, intent: str) -> Canvas:
    if of == "members":
        return group(member.s(number, intent=intent) for number in range(3)) | joined.s()
    if of == "paced":
        return group(paced.s(number, intent=intent) for number in range(6)) | joined.s()
    steps = (
        wavering, deaf, odd, many, gathering, awaiting, disordered, hasty, warned, persistent, choosing,
        leaving,
    )  # fmt: skip
    return {one.local_name: one for one in steps}[of].s(intent)


def _post(path: str, body: object, *, key: str) -> dict[str, Any]:
    address = urlsplit(os.environ["ONWARD_TEST_FX"])
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=90)
    try:
        connection.request("POST", path, json.dumps(body), {"Idempotency-Key": key})
        response = connection.getresponse()
        answer: dict[str, Any] = json.loads(response.read())
    finally:
        connection.close()
    if 400 <= response.status < 500:
        raise Refused(f"{path} was refused: {response.status} {answer}")
    if response.status != 200:
        raise RuntimeError(f"{path}: {response.status} {answer}")
    return answer
