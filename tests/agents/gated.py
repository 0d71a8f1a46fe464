"""Steps that fail until a file exists, or die once: how a test lets a run fail, and be helped."""

import os
import signal
from pathlib import Path

from pydantic import BaseModel

from tasks import Context, step, workflow
from tasks.canvas import Canvas
from tests.agents.outside import note


class Passed(BaseModel):
    """A typed result."""

    gate: str
    attempt: int


@step
def approach(ctx: Context, gate: str) -> str:
    note(ctx)
    return gate


@step
def enter(ctx: Context, gate: str) -> Passed:
    note(ctx)
    if not Path(gate).exists():
        raise FileNotFoundError(f"the gate {gate} is closed [for now]")
    return Passed(gate=gate, attempt=ctx.attempt)


@workflow("gated", version="1")
def gated(gate: str) -> Canvas:
    return approach.s(gate) | enter.s()


@step
def stumble(ctx: Context, gate: str) -> str:
    note(ctx)
    if ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return gate


@workflow("stumbling", version="1")
def stumbling(gate: str) -> Canvas:
    return approach.s(gate) | stumble.s()
