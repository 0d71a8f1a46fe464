"""One step that writes to many people, for deploys that come in the middle of it."""

from tasks import Context, step, workflow
from tasks.canvas import Canvas
from tests.agents.outside import create, note


@step
def mail(ctx: Context, batch: str, people: int) -> list[str]:
    note(ctx)
    return [create(ctx, f"{batch}-{number:02}") for number in range(1, people + 1)]


@step
def close(ctx: Context, resources: list[str]) -> int:
    note(ctx)
    return len(resources)


@workflow("mailing", version="1")
def mailing(batch: str, people: int) -> Canvas:
    return mail.s(batch, people) | close.s()
