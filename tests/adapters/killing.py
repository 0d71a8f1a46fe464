"""One step, as it stands, in a workflow for each recorded call after which its worker is killed."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from models.failpoints import FailPoint, choose_with
from tasks import workflow
from tasks.canvas import Canvas
from tasks.step import Step
from tasks.workflow import Workflow

#: Model calls of every agent here: two look-ups at once, a ticket, the answer.
CALLS = 3
AFTER = ("each", *(str(number) for number in range(1, CALLS + 1)))


def killed_after_each_call(
    label: str, answer: Step[..., Any], *, when: Sequence[str] = AFTER
) -> Workflow[...]:
    """Workflows ``LABEL-1`` and so on, killed when that call is recorded, and ``LABEL-each``, at each of them."""

    def plan(question: str) -> Canvas:
        return answer.s(question)

    choose_with(_choose)
    made = [workflow(f"{label}-{after}", version="1", steps=[answer])(plan) for after in when]
    return made[0]  # a module of agents holds one


def recorded(directory: Path, step_name: str) -> int:
    """How many calls of this step were ever recorded, over all its attempts."""
    return len(list((directory / step_name).glob("*")))


def _choose(point: FailPoint, step_name: str | None, _about: str | None) -> str | None:
    marks = os.environ.get(
        "ONWARD_FAILPOINT_DIR"
    )  # the workers' alone: they are killed, we are not
    if point is not FailPoint.L3 or step_name is None or marks is None:
        return None
    directory = Path(marks)
    (directory / step_name).mkdir(exist_ok=True)
    number = _next(directory, step_name)
    return "kill" if step_name.split(".")[0].endswith(("-each", f"-{number}")) else None


def _next(directory: Path, step_name: str) -> int:
    """Branches side by side may have recorded a call each at one moment."""
    while True:
        number = recorded(directory, step_name) + 1
        with suppress(FileExistsError):
            (directory / step_name / str(number)).touch(exist_ok=False)
            return number
