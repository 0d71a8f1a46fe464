"""Whose exit it is: the worker's, or a body's that must not be taken for a shutdown."""

import asyncio

import pytest
from celery.exceptions import WorkerShutdown

from tasks import leaving
from tasks.errors import EffectUnknown, StepExited
from tasks.options import RetryPolicy
from tasks.outcomes import Failed, judge


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(1), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError(),
        BaseExceptionGroup("tasks", [SystemExit(1)]),
    ],
)  # fmt: skip
def test_an_exit_nobody_asked_for_is_a_failure_of_the_body(error: BaseException) -> None:
    failure = leaving.own_exit(error)
    assert isinstance(failure, StepExited)
    assert type(error).__name__ in str(failure)
    retried = judge(failure, retry=RetryPolicy(max_retries=1), failures=0, seed="")
    assert isinstance(retried, Failed)
    assert retried.delay is not None
    assert judge(failure, retry=RetryPolicy(), failures=0, seed="") == Failed(
        "StepExited", f"StepExited: {failure}", None
    )


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x"), EffectUnknown("x"), WorkerShutdown(0),
        BaseExceptionGroup("tasks", [EffectUnknown("x"), SystemExit(1)]),
    ],
)  # fmt: skip
def test_errors_stops_and_shutdowns_are_what_they_are(error: BaseException) -> None:
    assert leaving.own_exit(error) is error


@pytest.mark.parametrize("told", ["is_leaving", "terminate_handler_fired"])
def test_a_process_that_was_told_to_go_goes(told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving, told, lambda: True)
    leaves = SystemExit(0)
    assert leaving.own_exit(leaves) is leaves
