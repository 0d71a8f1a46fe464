"""What authors may ask of a step: limits, rates, retries, progress, tolerance, async."""

import asyncio
import os
import signal
import time
from typing import Any

from tasks import Context, group, step, workflow
from tasks.canvas import Canvas
from tests.agents.outside import create, earlier_notes, note


@step(rate_limit="5/s")
def metered(ctx: Context, number: int) -> int:
    note(ctx)
    return number


@workflow("feature-rate", version="1")
def rate(number: int) -> Canvas:
    return metered.s(number)


@step
async def patient(ctx: Context, number: int) -> int:
    first, second = await asyncio.gather(_later(number), _later(1))
    return first + second


async def _later(number: int) -> int:
    await asyncio.sleep(0.01)
    return number


@workflow("feature-async", version="1")
def asynchronous(number: int) -> Canvas:
    return patient.s(number)


@step(soft_time_limit=0.5, time_limit=20)
def overdue(ctx: Context) -> str:
    note(ctx)
    time.sleep(15)
    return "never"


@workflow("feature-soft-limit", version="1")
def soft_limit() -> Canvas:
    return overdue.s()


@step(soft_time_limit=0.3, time_limit=1)
def deaf(ctx: Context, intent: str) -> str:
    """Hears neither the soft limit nor the request to end that comes before the kill."""
    note(ctx)
    if ctx.attempt == 1:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                time.sleep(60)
            except BaseException:  # noqa: S112 - this is what makes it deaf
                continue
    return create(ctx, intent)


@workflow("feature-hard-limit", version="1")
def hard_limit(intent: str) -> Canvas:
    return deaf.s(intent)


@step(soft_time_limit=0.3, time_limit=1)
def always_deaf(ctx: Context) -> None:
    note(ctx)
    while True:
        try:
            time.sleep(60)
        except Exception:  # noqa: S112 - the soft limit; the request to end gets through
            continue


@workflow("feature-always-deaf", version="1")
def poison_by_limit() -> Canvas:
    return always_deaf.s()


@step
def talkative(ctx: Context, intent: str) -> str:
    ctx.progress(3, 10, "pages")
    return create(ctx, intent)


@workflow("feature-progress", version="1")
def progress(intent: str) -> Canvas:
    return talkative.s(intent)


@step(untracked=True)
def untracked(ctx: Context, intent: str) -> str:
    note(ctx)
    return create(ctx, intent)


@workflow("feature-untracked", version="1")
def untracked_run(intent: str) -> Canvas:
    return untracked.s(intent)


@step
def member(ctx: Context, number: int) -> int:
    note(ctx)
    if number % 2:
        raise ValueError(f"{number} is odd")
    return number


@step
def collect(ctx: Context, results: list[Any]) -> list[Any]:
    note(ctx)
    return results


@workflow("feature-tolerant", version="1")
def tolerant(size: int) -> Canvas:
    return group((member.s(number) for number in range(size)), tolerant=True) | collect.s()


@workflow("feature-strict", version="1")
def strict(size: int) -> Canvas:
    return group(member.s(number) for number in range(size)) | collect.s()


@step(max_retries=2, default_retry_delay=0.1)
def unlucky(ctx: Context) -> None:
    """Fails at each attempt but the second, which dies."""
    note(ctx)
    if len(earlier_notes(ctx, "body")) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    raise ValueError("bad luck")


@workflow("feature-budget", version="1")
def budget() -> Canvas:
    return unlucky.s()
