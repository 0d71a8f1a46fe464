"""Three steps that pass a text on."""

from tasks import Context, step, workflow
from tasks.canvas import Canvas


@step
def first(ctx: Context, text: str) -> str:
    return text


@step(kind="llm")
def second(ctx: Context, text: str) -> str:
    return text.upper()


@step(kind="write")
def third(ctx: Context, text: str) -> str:
    return text[::-1]


@workflow("words", version="1")
def words(text: str) -> Canvas:
    return first.s(text) | second.s() | third.s()
