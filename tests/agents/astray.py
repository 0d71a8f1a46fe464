"""An untracked step that its plan, not its own options, sends to a worker of threads."""

from tasks import Context, step, workflow
from tasks.canvas import Canvas
from tests.agents.outside import note


@step(untracked=True)
def astray(ctx: Context) -> str:
    note(ctx)
    return "done"


@workflow("straying", version="1", queues=["llm"])
def straying() -> Canvas:
    return astray.s().set(queue="llm")
