"""Very long plans, and plans that bite their own tail."""

from tasks import Context, Then, group, step, workflow
from tasks.canvas import Canvas
from tests.agents.outside import note

KILOBYTE = "x" * 1024


@step
def link(ctx: Context, text: str = KILOBYTE) -> str:
    note(ctx)
    return text


@step
def marked(ctx: Context, text: str) -> str:
    note(ctx)
    return text


@workflow("long", version="1")
def long(length: int, mark: int) -> Canvas:
    """``mark``: which of the links, counted from 1, is the one that can be told from the others."""
    canvas: Canvas = link.s()
    for number in range(2, length + 1):
        canvas = canvas | (marked.s() if number == mark else link.s())
    return canvas


@workflow("long-circle", version="1")
def circle() -> Canvas:
    return link.s().set(key="A") | link.s().set(key="B") | link.s().set(key="A")


@workflow("long-itself", version="1")
def itself() -> Canvas:
    first = link.s().set(key="first") | link.s().set(key="second")
    return first | link.s().set(key="third") | link.s().set(key="third")


@workflow("long-deep", version="1")
def deep(depth: int) -> Canvas:
    canvas: Canvas = link.s()
    for _ in range(depth):
        canvas = group(canvas)
    return canvas


@step
def plan_on(ctx: Context, text: str = "") -> str | Then[str]:
    """Ask, at run time, for a step that the run has passed already."""
    note(ctx)
    return Then("planned", link.s().set(key="start"))


@workflow("long-closing", version="1")
def closing() -> Canvas:
    return link.s().set(key="start") | plan_on.s() | link.s().set(key="end")
