"""Steps that write to a table of their own in the journal's database, in the transaction that completes them."""

import asyncio
import time
from typing import Any

from sqlalchemy import text

from models.failpoints import FailPoint
from tasks import Context, Effect, Then, Tool, group, step, workflow
from tasks.canvas import Canvas
from tasks.step import Step
from tests.agents.outside import ask, note

FOREVER = 300.0  #: seconds; only a limit ends what takes as long


class Refused(Exception):
    """A known failure."""


class Echo(Tool[str, str]):
    """Something outside that may be called before the session is opened, and not after."""

    name = "booking.echo"
    effect = Effect.ONCE

    def execute(self, request: str, *, key: str) -> str:
        return request


def book(ctx: Context) -> None:
    ctx.session.execute(
        text(
            "INSERT INTO booking (run_id, step_key, attempt) VALUES (:run_id, :step_key, :attempt)"
        ),
        {"run_id": ctx.run_id, "step_key": ctx.step_key, "attempt": ctx.attempt},
    )


@step
def prepare(ctx: Context, name: str) -> str:
    return name


@step
def write(ctx: Context, name: str) -> int:
    note(ctx)
    book(ctx)
    return ctx.attempt


@step
def report(ctx: Context, attempt: int) -> int:
    return attempt


@step(max_retries=1, default_retry_delay=0)
def failing(ctx: Context, name: str) -> int:
    """The first attempt books and fails."""
    book(ctx)
    if ctx.attempt == 1:
        raise Refused(name)
    return ctx.attempt


@step(max_retries=1, default_retry_delay=0, soft_time_limit=1, time_limit=60)
def slow(ctx: Context, name: str) -> int:
    """The first attempt books and takes too long."""
    book(ctx)
    if ctx.attempt == 1:
        time.sleep(FOREVER)
    return ctx.attempt


@step
async def asynchronous(ctx: Context, name: str) -> int:
    book(ctx)
    await asyncio.sleep(0)
    book(ctx)
    return ctx.attempt


@step
def growing(ctx: Context, name: str) -> "Then[int]":
    book(ctx)
    return Then(ctx.attempt, report.s())


@step
def endless(ctx: Context, name: str) -> "Then[Any]":
    """Asks for more steps than a run may have."""
    book(ctx)
    return Then(ctx.attempt, group(*(report.s() for _ in range(20_001))))


@step
def calling(ctx: Context, name: str) -> str:
    echoed = ctx.call(Echo(), name)
    book(ctx)
    return echoed


@step
def calling_too_late(ctx: Context, name: str) -> str:
    book(ctx)
    return ctx.call(Echo(), name)


@step
def stuck(ctx: Context, name: str) -> int:
    """Holds its rows for as long as the outside world takes to answer."""
    note(ctx)
    book(ctx)
    if ctx.attempt == 1:
        ask(name)
    return ctx.attempt


@step
def conflicting(ctx: Context, name: str) -> int:
    """The first two attempts are undone by the database."""
    book(ctx)
    if ctx.attempt <= 2:
        ctx.session.execute(
            text("DO $$ BEGIN RAISE EXCEPTION 'met another' USING ERRCODE = '40001'; END $$")
        )
    return ctx.attempt


def _plan(name: str) -> Canvas:
    return prepare.s(name) | write.s() | report.s()


#: ``book-P4`` and so on: one worker carries all.
for _name in ("book", *(f"book-{point}" for point in FailPoint)):
    workflow(_name, version="1", steps=[prepare, write, report])(_plan)

STEPS: "dict[str, Step[..., Any]]" = {
    "failing": failing, "slow": slow, "asynchronous": asynchronous, "growing": growing,
    "endless": endless, "calling": calling, "calling_too_late": calling_too_late, "stuck": stuck,
    "conflicting": conflicting,
}  # fmt: skip


@workflow("one", version="1", steps=[*STEPS.values(), prepare, report])
def one(name: str) -> Canvas:
    return prepare.s(name) | STEPS[name].s()


@workflow("several", version="1")
def several(name: str) -> Canvas:
    return group(write.s(name), write.s(name), write.s(name)) | prepare.si(name)
