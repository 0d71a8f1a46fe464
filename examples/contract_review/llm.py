"""How the analysing functions reach the LLM: ``ctx.llm``, with the labels that the example's server counts by."""

import os
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from pydantic import BaseModel

from examples.contract_review.prompts import Prompt
from tasks import Context

STEP_TIME_LIMIT = 300  #: seconds; more than one answer takes, and there may be three

A = TypeVar("A", bound=BaseModel)


class Ask(Protocol):
    """One question, one typed answer that has passed ``check``: all its problems in words, or an empty text."""

    def __call__(self, answer: type[A], prompt: Prompt, /, *, check: Callable[[A], str]) -> A: ...


def asker(ctx: Context, environ: Mapping[str, str] = os.environ) -> Ask:
    """An ``Ask`` that belongs to one step.

    An answer that fails its check is said back with its problems and asked for again; what was asked and
    answered is on record, so a step that starts again asks for nothing twice.
    """
    labelled = environ.get("ONWARD_LLM_LABELS") == "1"  # only our own model server is told who asks
    labels = {"X-Onward-Run": ctx.run_id, "X-Onward-Step": ctx.step_key} if labelled else {}

    def ask(answer: type[A], prompt: Prompt, /, *, check: Callable[[A], str]) -> A:
        return ctx.llm.ask(answer, prompt.user, system=prompt.system, check=check, headers=labels)

    return ask


def unrecorded(*, run: str, step: str) -> Ask:
    """The same questions with nobody to record them: what ``naive`` has."""
    return asker(Context.for_test(run_id=run, step_key=step))
