"""One effect between two steps, of tools that honour no key and are looked up, with look-ups of every temper."""

import http.client
import json
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from models.failpoints import FailPoint
from tasks import Absent, Context, Effect, Found, Tool, Undecided, step, workflow
from tasks.canvas import Canvas
from tests.agents.outside import note

POINTS = (FailPoint.E1, FailPoint.E4, FailPoint.E5, FailPoint.E6, FailPoint.S3)


@dataclass(frozen=True)
class Order:
    """What is asked for; ``intent`` is the name it is counted by, ``temper`` how its look-ups behave first."""

    intent: str
    temper: str = "good"


class Desk(Tool[Order, str]):
    """Makes what it is asked for as often as it is asked, and can be looked up by name."""

    name, effect = "desk.order", Effect.QUERYABLE
    timeout = timedelta(seconds=5)
    max_request_lifetime: timedelta | None = timedelta(seconds=1)

    def execute(self, request: Order, *, key: str) -> str:
        return str(_ask("POST", f"/plain/{request.intent}", key=key)["resource_id"])

    def lookup(self, request: Order, *, key: str) -> Found[str] | Absent | Undecided:
        if request.temper != "good" and _first(f"{request.temper}-{request.intent}"):
            _TEMPERS[request.temper]()
        match _ask("GET", f"/resources?name={quote(request.intent)}", key=key)["items"]:
            case []:
                return Absent()
            case [{"status": "provisioning"}]:
                return Undecided("it is provisioning", again_in=0.3)
            case [one]:
                return Found(str(one["id"]))
            case several:
                return Undecided(f"there are {len(several)} of them")


class Undeclared(Desk):
    """Does not say how long a request of its can still arrive."""

    name = "desk.undeclared"
    max_request_lifetime = None


class Blind(Tool[Order, str]):
    """Can neither be asked twice nor looked up."""

    name, effect = "desk.blind", Effect.ONCE

    def execute(self, request: Order, *, key: str) -> str:
        return Desk().execute(request, key=key)


class Forgetful(Tool[Order, str]):
    """Honours a key for a moment, and cannot be looked up."""

    name, effect = "desk.forgetful", Effect.IDEMPOTENT
    key_retention, max_request_lifetime = timedelta(seconds=1), timedelta(seconds=1)

    def execute(self, request: Order, *, key: str) -> str:
        return str(_ask("POST", f"/idempotent/{request.intent}", key=key)["resource_id"])


@step
def prepare(ctx: Context, intent: str, temper: str) -> Order:
    note(ctx)
    return Order(intent, temper)


@step
def order(ctx: Context, wanted: Order) -> str:
    note(ctx)
    return ctx.call(Desk(), wanted)


@step
def undeclared(ctx: Context, wanted: Order) -> str:
    note(ctx)
    return ctx.call(Undeclared(), wanted)


@step
def blind(ctx: Context, wanted: Order) -> str:
    note(ctx)
    return ctx.call(Blind(), wanted)


@step
def forgetful(ctx: Context, wanted: Order) -> str:
    note(ctx)
    return ctx.call(Forgetful(), wanted)


@step
def twice(ctx: Context, wanted: Order) -> str:
    """Two effects, of which both may be in doubt."""
    note(ctx)
    first = ctx.call(Desk(), Order(f"{wanted.intent}-first"))
    return first + ctx.call(Desk(), Order(f"{wanted.intent}-second", wanted.temper))


@step
def report(ctx: Context, resource_id: str) -> str:
    note(ctx)
    return f"reported {resource_id}"


def was_posted(ctx: Context, wanted: Order) -> Found[str] | Absent | Undecided:
    return Desk().lookup(wanted, key=ctx.idempotency_key("post"))


@step(untracked=True, lookup=was_posted)
def raw(ctx: Context, wanted: Order) -> str:
    """Raw traffic that Onward does not see, and a look-up of its own."""
    note(ctx)
    return Desk().execute(wanted, key=ctx.idempotency_key("post"))


_EFFECTS = {one.local_name: one for one in (order, undeclared, blind, forgetful, twice, raw)}


def _plan(intent: str, temper: str = "good", by: str = "order") -> Canvas:
    return prepare.s(intent, temper) | _EFFECTS[by].s() | report.s()


#: ``desk-E1`` and so on, one for each failpoint, so that one worker carries all.
for _name in ("desk", *(f"desk-{point}" for point in POINTS)):
    workflow(_name, version="1", steps=[prepare, report, *_EFFECTS.values()])(_plan)


def _first(name: str) -> bool:
    """Whether this look-up is the first of its kind, over all processes."""
    marker = Path(os.environ["ONWARD_TEST_NOTES"]).with_name(f"first-{name}")
    with suppress(FileExistsError):
        marker.touch(exist_ok=False)
        return True
    return False


def _raise() -> None:
    raise ConnectionError("the desk does not answer")


def _exit() -> None:
    raise SystemExit(3)


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _hang() -> None:
    """Deaf to the soft limit."""
    while True:
        with suppress(Exception):
            time.sleep(600)


def _doze() -> None:
    time.sleep(600)


_TEMPERS = {"raises": _raise, "exits": _exit, "kills": _kill, "hangs": _hang, "dozes": _doze}


def _ask(method: str, path: str, *, key: str) -> dict[str, Any]:
    address = urlsplit(os.environ["ONWARD_TEST_FX"])
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
    try:
        connection.request(method, path, "{}", {"Idempotency-Key": key})
        response = connection.getresponse()
        answer: dict[str, Any] = json.loads(response.read())
    finally:
        connection.close()
    if response.status != 200:
        raise RuntimeError(f"{path}: {response.status} {answer}")
    return answer
