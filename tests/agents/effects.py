"""Three steps, the middle one with an effect: one workflow per failpoint, so that one worker carries all."""

from models.failpoints import FailPoint
from tasks import Context, step, workflow
from tasks.canvas import Canvas
from tests.agents.outside import create, note


@step
def prepare(ctx: Context, intent: str) -> str:
    note(ctx)
    return intent


@step
def charge(ctx: Context, intent: str) -> dict[str, str]:
    note(ctx)
    resource_id = create(ctx, intent)
    return {"intent": intent, "resource_id": resource_id, "by": f"attempt {ctx.attempt}"}


@step
def report(ctx: Context, receipt: dict[str, str]) -> dict[str, str]:
    note(ctx)
    return {**receipt, "reported": "yes"}


def _plan(intent: str) -> Canvas:
    return prepare.s(intent) | charge.s() | report.s()


#: ``kill-P4`` and so on, and ``effects`` for faults that come from outside.
for _name in ("effects", *(f"kill-{point}" for point in FailPoint)):
    workflow(_name, version="1", steps=[prepare, charge, report])(_plan)
