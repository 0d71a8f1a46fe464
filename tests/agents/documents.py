"""Three model calls a document, each its own step, and a conclusion. Two documents can be watched."""

import json
from typing import Any

from tasks import Context, step, workflow
from tasks.canvas import Canvas
from tests.agents.outside import ask, note

Pages = dict[str, Any]


def _answer(ctx: Context, pages: Pages, question: str) -> Pages:
    note(ctx)
    text = ask(f"doc-{pages['number']:03d}-{question}")
    return {**pages, question: json.loads(text)}


@step
def read(ctx: Context, number: int) -> Pages:
    return {"number": number}


@step(max_retries=1, default_retry_delay=0.1)
def summary(ctx: Context, pages: Pages) -> Pages:
    return _answer(ctx, pages, "summary")


@step
def risks(ctx: Context, pages: Pages) -> Pages:
    return _answer(ctx, pages, "risks")


@step
def duties(ctx: Context, pages: Pages) -> Pages:
    return _answer(ctx, pages, "duties")


@step
def risks_of_90(ctx: Context, pages: Pages) -> Pages:
    return _answer(ctx, pages, "risks")


@step
def risks_of_120(ctx: Context, pages: Pages) -> Pages:
    return _answer(ctx, pages, "risks")


@step
def conclude(ctx: Context, pages: Pages) -> Pages:
    return {**pages, "done": True}


_WATCHED = {90: risks_of_90, 120: risks_of_120}


@workflow("documents", version="1")
def documents(number: int) -> Canvas:
    second = _WATCHED.get(number, risks)
    return read.s(number) | summary.s() | second.s() | duties.s() | conclude.s()
