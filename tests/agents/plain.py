"""Steps without any effect, for tests of how many and in which order."""

from tasks import Context, group, step, workflow
from tasks.canvas import Canvas
from tests.agents.outside import note


@step
def noop(ctx: Context, value: int = 0) -> int:
    return value


@step
def noted(ctx: Context, value: int = 0) -> int:
    note(ctx)
    return value


@step
def total(ctx: Context, values: list[int]) -> int:
    return sum(values)


@workflow("plain-one", version="1")
def one(value: int) -> Canvas:
    return noted.s(value)


@workflow("plain-chain", version="1")
def chain_of(length: int) -> Canvas:
    canvas: Canvas = noted.s(0)
    for _ in range(length - 1):
        canvas = canvas | noted.s()
    return canvas


@workflow("plain-wide", version="1")
def wide(width: int) -> Canvas:
    return group(noop.s(1) for _ in range(width)) | total.s()


@workflow("plain-noted-wide", version="1")
def noted_wide(width: int) -> Canvas:
    return group(noted.s(1) for _ in range(width)) | total.s()
