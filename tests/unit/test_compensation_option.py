"""``@workflow(..., on_failure="compensate")``: what may be said, and that a submission carries it."""

from typing import Any

import pytest

from tasks import Context, step, workflow
from tasks.canvas import Canvas
from tasks.errors import DefinitionError
from tasks.starting import prepare


@step
def act(ctx: Context) -> int:
    return 1


def plan() -> Canvas:
    return act.s()


@pytest.mark.parametrize("wrong", ["retry", "", True, "Compensate"])
def test_anything_else_is_refused_at_import(wrong: Any) -> None:
    with pytest.raises(DefinitionError, match="must be 'compensate' or left out"):
        workflow("refused-option", version="1", on_failure=wrong)(plan)


def test_a_submission_says_what_its_workflow_says() -> None:
    undone = workflow("undone-option", version="1", on_failure="compensate")(plan)
    kept = workflow("kept-option", version="1")(plan)
    assert prepare(undone.name, {}).on_failure == "compensate"
    assert prepare(kept.name, {}).on_failure is None
