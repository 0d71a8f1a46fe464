"""One workflow whose input chooses the feature of the engine that its run shows."""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

from tasks import Context, Then, group, step, workflow
from tasks.canvas import Canvas
from tests.agents.outside import ask, note

FOREVER = 300.0  #: seconds; only a limit or a signal ends such a body


class Refused(Exception):
    """A known failure."""


@step
def early(ctx: Context, name: str) -> str:
    note(ctx)
    return name


@step(rate_limit="5/s")
def paced(ctx: Context, number: int) -> int:
    note(ctx)
    return number


@step
async def concurrent(ctx: Context, name: str) -> list[str]:
    note(ctx)
    return await asyncio.gather(*(asyncio.to_thread(ask, f"{name}-{one}") for one in "ab"))


@step(soft_time_limit=0.5, time_limit=30)
def endless(ctx: Context, name: str) -> str:
    note(ctx)
    time.sleep(FOREVER)
    return name


@step(soft_time_limit=0.5, time_limit=1.5)
def deaf(ctx: Context, name: str) -> str:
    """The first attempt hears no warning, so that the pool has to kill it."""
    note(ctx)
    if ctx.attempt == 1:
        try:
            time.sleep(FOREVER)
        except Exception:
            note(ctx, "warned")
            time.sleep(FOREVER)
    return f"{name} by attempt {ctx.attempt}"


@step
def slow(ctx: Context, name: str) -> str:
    note(ctx)
    ctx.progress(3, 10, f"pages of {name}")
    ask(name)
    return name


@step(untracked=True)
def blind(ctx: Context, name: str) -> str:
    note(ctx)
    ask(name)
    return name


@step
def member(ctx: Context, number: int, *, name: str, failing: list[int]) -> int:
    note(ctx, number=number)
    ask(f"{name}-{number}")
    if number in failing:
        raise Refused(f"member {number} of {name}")
    return number


@step
def after_member(ctx: Context, number: int) -> int:
    note(ctx)
    return number


@step
def joined(ctx: Context, results: list[object]) -> list[object]:
    note(ctx)
    return results


@step(max_retries=3, retry_backoff=0.2, retry_jitter=False)
def stubborn(ctx: Context, name: str) -> int:
    note(ctx)
    if ctx.attempt < 4:
        raise Refused(f"{name}, attempt {ctx.attempt}")
    return ctx.attempt


@step(max_retries=1, default_retry_delay=0)
def crashing(ctx: Context, name: str) -> str:
    """Fails, is killed, fails: one failure more than it may."""
    note(ctx)
    if ctx.attempt == 2:
        ask(name)
    raise Refused(f"{name}, attempt {ctx.attempt}")


@step
def parent(ctx: Context, name: str) -> bool:
    """Starts a process outside its own group, and tells the next attempt whether that still runs."""
    pid_file = Path(os.environ["ONWARD_TEST_NOTES"]).with_name(f"{name}.pid")
    if ctx.attempt == 1:
        stray = subprocess.Popen(
            [sys.executable, "-c", f"import time; time.sleep({FOREVER})"], start_new_session=True
        )
        pid_file.write_text(str(stray.pid))
        ask(name)
    return Path(f"/proc/{pid_file.read_text()}/exe").exists()  # no zombie has one


@step
def think(ctx: Context, thoughts: list[int], *, until: int) -> list[int] | Then[list[int]]:
    note(ctx)
    thoughts = [*thoughts, len(thoughts)]
    return Then(thoughts, think.s(until=until)) if len(thoughts) < until else thoughts


@step
def logged(ctx: Context, name: str) -> str:
    ctx.log.info("reading %s", name)
    return name


def _members(name: str, failing: list[int]) -> list[Canvas]:
    return [member.s(number, name=name, failing=failing) | after_member.s() for number in range(4)]


@workflow("features", version="1")
def features(feature: str, name: str) -> Canvas:
    """The plan of one feature; ``name`` is what it is known by outside."""
    if feature == "paced":
        return group(paced.s(number) for number in range(12)) | joined.s()
    if feature == "strict":
        return group(_members(name, [1, 3])) | joined.s()
    if feature == "tolerant":
        return group(_members(name, [1, 3]), tolerant=True) | joined.s()
    if feature == "think":
        return think.s([], until=4) | joined.s()
    single = {
        each.local_name: each
        for each in (
            concurrent, endless, deaf, slow, blind, stubborn, crashing, parent, logged,
        )
    }  # fmt: skip
    return early.s(name) | single[feature].s()
