"""One workflow whose input chooses which guarantee of the engine its run shows."""

import os
import subprocess
import sys
import time
from pathlib import Path

from tasks import Context, Then, group, step, workflow
from tasks.canvas import Canvas
from tests.agents.outside import ask, note

FOREVER = 300.0  #: seconds; only a signal ends what takes as long


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
def slow(ctx: Context, name: str) -> str:
    note(ctx)
    ask(name)
    return name


@step(soft_time_limit=0.5, time_limit=1.5)
def deaf(ctx: Context, name: str) -> str:
    """The first attempt swallows its warning, so that the pool has to kill it."""
    note(ctx)
    if ctx.attempt == 1:
        try:
            time.sleep(FOREVER)
        except Exception:
            note(ctx, "warned")
            time.sleep(FOREVER)
    return f"{name} by attempt {ctx.attempt}"


@step
def member(ctx: Context, number: int, *, name: str, failing: list[int]) -> int:
    note(ctx)
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
    """Starts a process outside its own group, and tells whether the next attempt still saw it alive."""
    pid_file = Path(os.environ["ONWARD_TEST_NOTES"]).with_name(f"{name}.pid")
    if ctx.attempt == 1:
        stray = subprocess.Popen(
            [sys.executable, "-c", f"import time; time.sleep({FOREVER})"], start_new_session=True
        )
        pid_file.write_text(str(stray.pid))
        ask(name)
    return is_running(int(pid_file.read_text()))


def is_running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


@step
def think(ctx: Context, thoughts: list[int], *, until: int) -> list[int] | Then[list[int]]:
    note(ctx)
    thoughts = [*thoughts, len(thoughts)]
    return Then(thoughts, think.s(until=until)) if len(thoughts) < until else thoughts


@step
def logged(ctx: Context, name: str) -> str:
    ctx.log.info("reading %s", name)
    return name


def _group(name: str, *, tolerant: bool) -> Canvas:
    members = [
        member.s(number, name=name, failing=[1, 3]) | after_member.s() for number in range(4)
    ]
    return group(members, tolerant=tolerant) | joined.s()


@workflow("guarantees", version="1")
def guarantees(of: str, name: str) -> Canvas:
    """``name`` is what the run is known by in the outside world."""
    match of:
        case "rate":
            return group(paced.s(number) for number in range(12)) | joined.s()
        case "strict" | "tolerant":
            return _group(name, tolerant=of == "tolerant")
        case "loop":
            return think.s([], until=4) | joined.s()
    single = {one.local_name: one for one in (slow, deaf, stubborn, crashing, parent, logged)}
    return early.s(name) | single[of].s()
