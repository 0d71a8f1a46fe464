"""Loaded by the workers (``celery worker -I tests.reliability.hook``): dies where the id of a run says so."""

import os
from typing import Any

from celery import signals

from models import failpoints
from models.failpoints import FailPoint
from tests.reliability import markers
from tests.reliability.kills import BY_ITSELF, kills_of

_PLACES = {"1": "a", "2": "b", "book": "a", "book#2": "b"}


class _Now:
    """The step that this process carries, as its message names it."""

    run_id = ""
    step_key = ""


def _begin(kwargs: dict[str, Any] | None = None, **_: Any) -> None:
    given = kwargs or {}
    _Now.run_id, _Now.step_key = str(given.get("run_id", "")), str(given.get("step_key", ""))


def _choose(point: FailPoint, _step_name: str | None, about: str | None) -> str | None:
    """Die here once, if this is where the run's id puts a kill."""
    where = about.rpartition(":")[2] if about else _Now.step_key
    for kill in kills_of(_Now.run_id) if _Now.step_key else ():
        meant = kill.instant in BY_ITSELF and kill.instant.value == point.value
        if meant and kill.place == _PLACES.get(where) and markers.take(_Now.run_id, kill):
            return "kill"
    return None


if "ONWARD_FAILPOINT_DIR" in os.environ:
    signals.task_prerun.connect(_begin, weak=False)
    failpoints.choose_with(_choose)
