"""When a worker may go on with the next step in place, and when the broker must carry it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from celery import Celery

from models.ids import new_nonce
from models.journal import steps, submitting
from models.journal.values import Claimed
from models.settings import settings
from tasks import Context, registry, step, workflow
from tasks.canvas import Canvas
from tasks.starting import prepare
from tasks.step import BoundStep
from tasks.sticky import Budget
from tests.support.journal import Journal, Worker


@step(time_limit=2, soft_time_limit=1)
def hurried(ctx: Context) -> int:
    return 1


@step(time_limit=2, soft_time_limit=1)
def hurried_too(ctx: Context, value: int) -> int:
    return value


@workflow("hurry", version="1")
def hurry() -> Canvas:
    return hurried.s() | hurried_too.s()


def _nothing() -> None: ...


Ask = Callable[[], tuple[Budget, BoundStep, Claimed]]


@pytest.fixture
def ask(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> Ask:
    monkeypatch.setenv("ONWARD_STICKY", "true")
    monkeypatch.setenv("ONWARD_STICKY_SECONDS", "60")
    settings.cache_clear()
    task = Celery("sticky").task(name="any")(_nothing)

    def made() -> tuple[Budget, BoundStep, Claimed]:

        run_id = submitting.submit(prepare("hurry", {})).run_id
        bound = registry.step_named("hurry.hurried", "hurry")
        claimed = steps.claim(
            run_id, "0", "hurried", workflow="hurry", versions=["1"], carrier=Worker().carrier(),
            nonce=new_nonce(),
        )  # fmt: skip
        assert claimed is not None
        return Budget(task), bound, claimed

    return made


def test_the_next_step_goes_on_here_while_its_time_is_its_own(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget, bound, claimed = ask()
    assert budget.allows(bound, claimed)
    # All steps of a message share one time limit: a healthy step must not be killed for those before it.
    monkeypatch.setattr(budget, "_began", budget._began - 0.2)
    assert not budget.allows(bound, claimed)


def test_a_step_this_worker_does_not_have_goes_through_the_broker(ask: Ask) -> None:
    budget, bound, claimed = ask()
    assert claimed.after is not None
    elsewhere = claimed.after._replace(step_name="hurry.of_another_version")
    assert not budget.allows(bound, replace(claimed, after=elsewhere))


@pytest.mark.parametrize(
    ("change", "after"),
    [
        ({"next_key": None}, {}),
        ({"fork": ["x"]}, {}),
        ({}, {"queue": "other"}),
        ({}, {"rate_limit": 1.0}),
    ],
    ids=["the end", "a group", "another queue", "a rate limit"],
)
def test_what_is_not_a_plain_next_step_is_not_carried(
    ask: Ask, change: dict[str, Any], after: dict[str, Any]
) -> None:
    budget, bound, claimed = ask()
    assert claimed.after is not None
    assert not budget.allows(
        bound, replace(claimed, after=claimed.after._replace(**after), **change)
    )


def test_it_is_off_unless_asked_for(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONWARD_STICKY")
    settings.cache_clear()
    budget, bound, claimed = ask()
    assert not budget.allows(bound, claimed)
