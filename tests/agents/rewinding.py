"""Runs that are under way while their journal goes back in time: one effect of each class, and gates."""

import http.client
import json
import os
from datetime import timedelta
from typing import Any
from urllib.parse import quote, urlsplit

from tasks import Absent, Context, Effect, Found, Tool, step, workflow
from tasks.canvas import Canvas
from tests.agents.outside import ask, note


class Filing(Tool[str, str]):
    """Ignores keys as a creator, and can be asked by them."""

    name, effect = "rewinding.file", Effect.QUERYABLE
    max_request_lifetime, timeout = timedelta(seconds=1), timedelta(seconds=5)

    def execute(self, request: str, *, key: str) -> str:
        return _make("plain", request, key=key)

    def lookup(self, request: str, *, key: str) -> Found[str] | Absent:
        found = _ask("GET", f"/resources?key={quote(key, safe='')}")["items"]
        return Found(str(found[0]["id"])) if found else Absent()


class Payment(Tool[str, str]):
    """Honours its key for an hour."""

    name, effect = "rewinding.pay", Effect.IDEMPOTENT
    key_retention = timedelta(hours=1)

    def execute(self, request: str, *, key: str) -> str:
        return _make("idempotent", request, key=key)


class Letter(Tool[str, str]):
    """Can neither be repeated nor asked about."""

    name, effect = "rewinding.letter", Effect.ONCE

    def execute(self, request: str, *, key: str) -> str:
        return _make("plain", request, key=key)


@step
def gate(ctx: Context, intent: str) -> str:
    """Waits for as long as the outside world does not answer."""
    note(ctx)
    ask(f"{intent}-gate")
    return intent


@step
def act(ctx: Context, intent: str) -> str:
    note(ctx)
    if intent.startswith("letter"):
        return f"{intent} {ctx.call(Letter(), f'{intent}-sent')}"
    filed, paid = ctx.call(Filing(), f"{intent}-filed"), ctx.call(Payment(), f"{intent}-paid")
    return f"{intent} {filed} {paid}"


@step(untracked=True)
def raw(ctx: Context, intent: str) -> str:
    note(ctx)
    return f"{intent} {_make('plain', f'{intent}-raw', key=ctx.run_id)}"


@step
def end(ctx: Context, done: str) -> str:
    note(ctx)
    intent, *made = done.split()
    ask(f"{intent}-end")
    if intent.startswith("order"):
        made.append(ctx.call(Filing(), f"{intent}-last"))
    return " ".join(made)


@workflow("rewinding", version="1")
def rewinding(intent: str) -> Canvas:
    done = raw.s() if intent.startswith("raw") else act.s()
    return gate.s(intent) | done | end.s()


def _make(mode: str, name: str, *, key: str) -> str:
    return str(_ask("POST", f"/{mode}/{name}", key=key)["resource_id"])


def _ask(method: str, path: str, *, key: str = "") -> dict[str, Any]:
    address = urlsplit(os.environ["ONWARD_TEST_FX"])
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=90)
    try:
        connection.request(method, path, "{}", {"Idempotency-Key": key} if key else {})
        response = connection.getresponse()
        answer: dict[str, Any] = json.loads(response.read())
        if response.status != 200:
            raise RuntimeError(f"{method} {path}: {response.status} {answer}")
        return answer
    finally:
        connection.close()
