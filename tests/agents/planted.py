"""Agents for the fault kit: some with a fault of their own planted in them, and one without.

What they ask of the outside world they ask of the fake service at ``ONWARD_TEST_FX``, whose books say
what was really done.
"""

import asyncio
import json
import os
import socket
import urllib.request
from contextlib import closing
from datetime import timedelta
from typing import Any
from urllib.parse import quote, urlsplit

import httpx2
import psycopg
from sqlalchemy import text

from tasks import Context, Then, group, step, workflow
from tasks.canvas import Canvas
from tasks.tools import Absent, Effect, Found, Looked, Tool

Order = dict[str, str]


class _OrderTool(Tool[Order, str], abstract=True):
    """Orders something by urllib; ``kind`` says whether the service honours the key."""

    kind = "plain"
    sends_key = True

    def execute(self, request: Order, *, key: str) -> str:
        headers = {"Idempotency-Key": key} if self.sends_key else {}
        return _post(f"/{self.kind}/{quote(request['name'])}", request, headers)

    def lookup(self, request: Order, *, key: str) -> Looked:
        items = _get(f"/resources?key={quote(key)}")["items"]
        return Found(str(items[0]["id"])) if items else Absent()


class Honest(_OrderTool):
    """Looks up what it has ordered."""

    name = "honest.order"
    effect = Effect.QUERYABLE
    max_request_lifetime = timedelta(0)


class Lying(_OrderTool):
    """Says of every order that it is not there, and that none can still be on its way."""

    name = "lying.order"
    effect = Effect.QUERYABLE
    max_request_lifetime = timedelta(0)

    def lookup(self, request: Order, *, key: str) -> Looked:
        return Absent()


class Boasting(_OrderTool):
    """Says of every order that it is there."""

    name = "boasting.order"
    effect = Effect.QUERYABLE

    def lookup(self, request: Order, *, key: str) -> Looked:
        return Found("made up")


class Keyless(_OrderTool):
    """Calls itself idempotent, and never sends the key by which its provider would know."""

    name = "keyless.order"
    effect = Effect.IDEMPOTENT
    key_retention = timedelta(hours=1)
    kind = "idempotent"
    sends_key = False


class Pay(Tool[Order, str]):
    """Idempotent as promised; by httpx."""

    name = "keyed.pay"
    effect = Effect.IDEMPOTENT
    key_retention = timedelta(hours=1)

    def execute(self, request: Order, *, key: str) -> str:
        with httpx2.Client(timeout=5) as client:
            address = f"{_service()}/idempotent/pay-{request['name']}"
            answer = client.post(address, json=request, headers={"Idempotency-Key": key})
        answer.raise_for_status()
        return str(answer.json()["id"])


class Notify(Tool[Order, str]):
    """Neither key nor look-up: a person decides when it is in doubt. Asynchronous."""

    name = "once.notify"
    effect = Effect.ONCE

    async def execute(self, request: Order, *, key: str) -> str:  # type: ignore[override]
        async with httpx2.AsyncClient(timeout=5) as client:
            answer = await client.post(f"{_service()}/plain/note-{request['name']}", json=request)
        return str(answer.json()["id"])


@step
def prepare(ctx: Context, name: str) -> Order:
    return {"name": name}


@step
def place(ctx: Context, order: Order) -> Order:
    return {**order, "placed": ctx.call(Honest(), order)}


@step
def pay(ctx: Context, order: Order) -> Order:
    return {**order, "paid": ctx.call(Pay(), {"name": order["name"]})}


@step
def notify(ctx: Context, order: Order) -> Order:
    return {**order, "told": ctx.call(Notify(), {"name": order["name"]})}


@step
async def settle(ctx: Context, orders: list[Order]) -> Order:
    """Several effects at once, told apart by name, then some of one tool in a loop."""
    names = [f"{order['name']}-{number}" for number, order in enumerate(orders)]
    paid = await asyncio.gather(
        *(ctx.acall(Pay(), {"name": name}, name=name.rpartition("-")[2]) for name in names)
    )
    placed = [await ctx.acall(Honest(), {"name": f"{name}-extra"}) for name in names]
    return {"name": orders[0]["name"], "paid": ",".join(paid), "placed": ",".join(placed)}


@step
def again(ctx: Context, order: Order) -> Order | Then[Order]:
    """A loop of two rounds, with an effect in each."""
    rounds = int(order.get("round", "0")) + 1
    done = {
        **order,
        "round": str(rounds),
        "told": ctx.call(Honest(), {"name": f"{order['name']}-{rounds}"}),
    }
    return done if rounds == 2 else Then(done, again.s())


@step
def place_lying(ctx: Context, order: Order) -> Order:
    return {**order, "placed": ctx.call(Lying(), order)}


@step
def place_boasting(ctx: Context, order: Order) -> Order:
    return {**order, "placed": ctx.call(Boasting(), order)}


@step
def place_keyless(ctx: Context, order: Order) -> Order:
    return {**order, "placed": ctx.call(Keyless(), order)}


@step
def blurt(ctx: Context, order: Order) -> Order:
    """Orders without a tool, and talks to the service in a way of its own besides."""
    address = urlsplit(_service())
    with closing(socket.create_connection((address.hostname, address.port), timeout=10)) as raw:
        raw.sendall(b"GET /counts HTTP/1.0\r\n\r\n")
        while raw.recv(4096):
            pass
    return {**order, "placed": _post(f"/plain/{quote(order['name'])}", order, {})}


@step
def book(ctx: Context, order: Order) -> Order:
    """An effect in the step's own transaction: no request, no tool."""
    ctx.session.execute(text("INSERT INTO booking VALUES (:run_id)"), {"run_id": ctx.run_id})
    return order


@step
def waver(ctx: Context, order: Order) -> Order:
    """Orders in the first run of a certification, and in no other."""
    first = ctx.run_id.endswith("-0000")
    return {**order, "placed": ctx.call(Honest(), order) if first else "no"}


@step(untracked=True)
def mutter(ctx: Context, order: Order) -> Order:
    """The same with a plain admission."""
    return {**order, "muttered": _post(f"/plain/more-{quote(order['name'])}", order, {})}


@workflow("clean", version="1")
def clean(name: str) -> Canvas:
    return prepare.s(name) | place.s() | pay.s() | notify.s()


@workflow("busy", version="1")
def busy(name: str) -> Canvas:
    """Groups, loops, and calls at the same time."""
    return prepare.s(name) | group(place.s(), place.s()) | settle.s() | again.s()


@workflow("planted", version="1")
def planted(name: str) -> Canvas:
    return prepare.s(name) | place_lying.s()


@workflow("boasting", version="1")
def boasting(name: str) -> Canvas:
    return prepare.s(name) | place_boasting.s()


@workflow("keyless", version="1")
def keyless(name: str) -> Canvas:
    return prepare.s(name) | place_keyless.s()


@workflow("bookish", version="1")
def bookish(name: str) -> Canvas:
    return prepare.s(name) | book.s()


@workflow("fickle", version="1")
def fickle(name: str) -> Canvas:
    return prepare.s(name) | waver.s()


@workflow("loose", version="1")
def loose(name: str) -> Canvas:
    return prepare.s(name) | blurt.s() | mutter.s()


def orders_of(run_id: str) -> dict[str, int]:
    """A counter for certify: how many orders and payments of a run the service has."""
    return {"lying.order": int(_get(f"/counts?name={quote(run_id)}")["made"].get(run_id, 0))}


def make_bookings(database_url: str) -> None:
    """Setup for certify: the table that ``book`` writes to."""
    with psycopg.connect(database_url.replace("+psycopg", "", 1)) as link:
        link.execute("CREATE TABLE booking (run_id text NOT NULL)")


def bookings_of(run_id: str) -> dict[str, int]:
    """A counter for certify that looks into a table."""
    url = os.environ["ONWARD_DATABASE_URL"].replace("+psycopg", "", 1)
    with psycopg.connect(url) as link:
        found = link.execute("SELECT count(*) FROM booking WHERE run_id = %s", (run_id,)).fetchone()
    return {"booking": found[0] if found else 0}


def _service() -> str:
    return os.environ["ONWARD_TEST_FX"]


def _get(path: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{_service()}{path}", timeout=10) as answer:  # noqa: S310 - see `_post`
        found: dict[str, Any] = json.loads(answer.read())
    return found


def _post(path: str, body: Order, headers: dict[str, str]) -> str:
    request = urllib.request.Request(  # noqa: S310 - the service of this test
        f"{_service()}{path}", json.dumps(body).encode(), headers, method="POST"
    )
    with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310
        return str(json.loads(answer.read())["id"])
