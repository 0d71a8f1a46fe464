"""A workflow whose version is what the environment of its process says."""

import os

from tasks import Context, step, workflow
from tasks.canvas import Canvas
from tests.agents.outside import note


@step
def answer(ctx: Context) -> str:
    note(ctx, version=ctx.version)
    return ctx.version


@workflow("versioned", version=os.environ.get("ONWARD_TEST_VERSION", "1"))
def versioned() -> Canvas:
    return answer.s() | answer.si()
