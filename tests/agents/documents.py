"""Three model calls a document, all in one step or each in its own. Two documents can be watched, and five ways to
die are named."""

from typing import Any

from pydantic import BaseModel

from tasks import Context, step, workflow
from tasks.canvas import Canvas
from tests.agents.outside import note

QUESTIONS = ("summary", "risks", "duties")

Pages = dict[str, Any]


class Finding(BaseModel):
    answer: str


def _review(ctx: Context, pages: Pages, *questions: str) -> Pages:
    note(ctx)
    found = dict(pages)
    for question in questions or QUESTIONS:
        asked = f"doc-{pages['number']:03d}-{question}"
        finding: Finding = ctx.llm.ask(Finding, asked)
        found[question] = finding.answer
    return found


@step
def read(ctx: Context, number: int) -> Pages:
    return {"number": number}


@step(kind="llm")
def review(ctx: Context, pages: Pages) -> Pages:
    return _review(ctx, pages)


@step(kind="llm")
def review_of_90(ctx: Context, pages: Pages) -> Pages:
    return _review(ctx, pages)


@step(kind="llm")
def review_of_120(ctx: Context, pages: Pages) -> Pages:
    return _review(ctx, pages)


@step(kind="llm")
def summary(ctx: Context, pages: Pages) -> Pages:
    return _review(ctx, pages, "summary")


@step(kind="llm")
def risks(ctx: Context, pages: Pages) -> Pages:
    return _review(ctx, pages, "risks")


@step(kind="llm")
def risks_of_90(ctx: Context, pages: Pages) -> Pages:
    return _review(ctx, pages, "risks")


@step(kind="llm")
def risks_of_120(ctx: Context, pages: Pages) -> Pages:
    return _review(ctx, pages, "risks")


@step(kind="llm")
def duties(ctx: Context, pages: Pages) -> Pages:
    return _review(ctx, pages, "duties")


@step
def conclude(ctx: Context, pages: Pages) -> Pages:
    return {**pages, "done": True}


@step(kind="llm")
def dies_at_p1(ctx: Context, pages: Pages) -> Pages:
    return _review(ctx, pages)


@step(kind="llm")
def dies_at_l1(ctx: Context, pages: Pages) -> Pages:
    return _review(ctx, pages)


@step(kind="llm")
def dies_at_l2(ctx: Context, pages: Pages) -> Pages:
    return _review(ctx, pages)


@step(kind="llm")
def dies_at_l3(ctx: Context, pages: Pages) -> Pages:
    return _review(ctx, pages)


@step(kind="llm")
def dies_at_l4(ctx: Context, pages: Pages) -> Pages:
    return _review(ctx, pages)


@step(kind="llm")
def dies_at_p4(ctx: Context, pages: Pages) -> Pages:
    return _review(ctx, pages)


_WATCHED = {90: review_of_90, 120: review_of_120}
_DYING = {
    "P1": dies_at_p1, "L1": dies_at_l1, "L2": dies_at_l2, "L3": dies_at_l3, "L4": dies_at_l4,
    "P4": dies_at_p4,
}  # fmt: skip


@workflow("documents", version="1")
def documents(number: int) -> Canvas:
    return read.s(number) | _WATCHED.get(number, review).s() | conclude.s()


@workflow("documents-by-steps", version="1")
def documents_by_steps(number: int) -> Canvas:
    second = {90: risks_of_90, 120: risks_of_120}.get(number, risks)
    return read.s(number) | summary.s() | second.s() | duties.s() | conclude.s()


@workflow("dying", version="1")
def dying(number: int, point: str) -> Canvas:
    return read.s(number) | _DYING[point].s() | conclude.s()
