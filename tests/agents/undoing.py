"""Trips that are booked piece by piece at a service which ignores keys, and taken back again."""

import http.client
import json
import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import quote, urlsplit

from tasks import Absent, Context, Effect, Found, Refused, Tool, step, workflow
from tasks.canvas import Canvas
from tasks.tools import Looked
from tests.agents.outside import note


@dataclass(frozen=True)
class Booking:
    resource_id: str


class Book(Tool[str, Booking], abstract=True):
    """The request is the name that the service counts by."""

    timeout = timedelta(seconds=8)

    def execute(self, request: str, *, key: str) -> Booking:
        status, answer = ask("POST", f"/plain/{request}", key=key)
        if status >= 500:
            raise RuntimeError(f"the desk answered {status}")
        return Booking(answer["id"])

    def compensate(self, request: str, result: Booking, *, key: str) -> None:
        status, answer = ask("DELETE", f"/resources/{result.resource_id}", key=key)
        if 400 <= status < 500:
            raise Refused(f"the desk answered {status}: {answer['error']}")
        if status >= 500:
            raise RuntimeError(f"the desk answered {status}")


class Desk(Book):
    """Can be asked."""

    name, effect = "desk.book", Effect.QUERYABLE
    max_request_lifetime = timedelta(seconds=1)

    def lookup(self, request: str, *, key: str) -> Looked:
        status, answer = ask("GET", f"/resources?key={quote(key)}", key=key)
        if status != 200:
            raise RuntimeError(f"the desk answered {status}")
        items = answer["items"]
        return Found(Booking(items[0]["id"])) if items else Absent()


class Letter(Tool[str, str]):
    """Sent is sent."""

    name, effect = "desk.letter", Effect.ONCE

    def execute(self, request: str, *, key: str) -> str:
        return str(ask("POST", f"/plain/{request}", key=key)[1]["id"])


@step
def flight(ctx: Context, trip: str) -> str:
    note(ctx)
    ctx.call(Desk(), f"{trip}-flight")
    return trip


@step
def hotel(ctx: Context, trip: str) -> str:
    note(ctx)
    ctx.call(Desk(), f"{trip}-hotel")
    ctx.call(Desk(), f"{trip}-room")
    return trip


@step
def write(ctx: Context, trip: str) -> str:
    note(ctx)
    ctx.call(Letter(), f"{trip}-letter")
    return trip


@step(max_retries=0)
def depart(ctx: Context, trip: str) -> str:
    note(ctx)
    raise ValueError(f"no seat left for {trip}")


@step(max_retries=2, default_retry_delay=0.1)
def wander(ctx: Context, trip: str) -> str:
    """Books something else in each attempt, and fails in the first."""
    note(ctx)
    ctx.call(Desk(), f"{trip}-attempt-{ctx.attempt}", name=f"attempt {ctx.attempt}")
    if ctx.attempt == 1:
        raise ValueError("changed its mind")
    return trip


def _trip(trip: str) -> Canvas:
    return flight.s(trip) | hotel.s() | depart.s()


trip = workflow("trip", version="1")(_trip)
saga = workflow("saga", version="1", on_failure="compensate")(_trip)


@workflow("letter", version="1")
def letter(trip: str) -> Canvas:
    return flight.s(trip) | write.s() | depart.s()


@workflow("wander", version="1")
def wandering(trip: str) -> Canvas:
    return wander.s(trip)


def ask(method: str, path: str, *, key: str) -> tuple[int, dict[str, Any]]:
    address = urlsplit(os.environ["ONWARD_TEST_FX"])
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=90)
    try:
        body = "{}" if method == "POST" else None
        connection.request(method, path, body, {"Idempotency-Key": key})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()
