"""An untracked step that says how to ask whether it was done: the question, and whose answer counts."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from celery import Celery

from models.journal import untracked
from models.journal.values import Output
from models.settings import settings
from recovery.sweep import Swept, sweep_once
from tasks import Context, processes
from tasks.tools import Absent, Found, Undecided
from tests.support.asked_steps import (
    asked_for,
    begun,
    loaded,
    look,
    lost,
)
from tests.support.broker import publisher, sent
from tests.support.journal import Journal, wrong_refs


@pytest.fixture(autouse=True)
def _loaded() -> Iterator[None]:
    with loaded():
        yield


@pytest.fixture
def app(broker_url: str) -> Iterator[Celery]:
    with publisher(broker_url) as app:
        yield app


# The question goes to where the step's code is


def test_the_sweep_asks_instead_of_blocking(journal: Journal, app: Celery) -> None:
    run_id = lost(journal)
    assert sweep_once(app) == Swept(asked=1)
    revision = journal.live(run_id)["revision"]
    given = {"run_id": run_id, "branch": "0", "revision": revision}
    assert sent(app) == [("recovery.reconcile_step", repr(given))]
    assert journal.live(run_id)["block_reason"] is None
    assert sweep_once(app) == Swept()


def test_a_lost_question_is_sent_again_later_and_later(journal: Journal, app: Celery) -> None:
    run_id = lost(journal)
    waits = []
    for _ in range(5):
        sweep_once(app)
        due_at = journal.live(run_id)["due_at"]
        waits.append((due_at - journal.one("SELECT onward_now()")).total_seconds())
        journal.advance(waits[-1])
    assert waits == [10.0, 20.0, 40.0, 60.0, 60.0]
    assert len(sent(app)) == 5


def test_without_a_look_up_it_is_blocked_as_ever(journal: Journal, app: Celery) -> None:
    run_id = lost(journal)
    journal.look.execute("ALTER TABLE plan DISABLE TRIGGER plan_insert_only")
    journal.look.execute("UPDATE plan SET has_lookup = false")
    assert sweep_once(app) == Swept(blocked=1)
    assert journal.run(run_id)["reason"] == "untracked_step"


@pytest.mark.parametrize("values", [{"state": "pending"}, {"block_reason": "untracked_step"}])
def test_only_what_is_in_doubt_is_asked_for(journal: Journal, values: dict[str, Any]) -> None:
    run_id = lost(journal)
    journal.make(run_id, **values)
    before = journal.image()
    assert untracked.ask(journal.ref(run_id)) is None
    assert journal.image() == before


def test_whoever_saw_another_revision_asks_nothing(journal: Journal) -> None:
    run_id = lost(journal)
    before = journal.image()
    for ref in wrong_refs(journal.ref(run_id)):
        assert untracked.ask(ref) is None
    assert journal.image() == before


# One look at a time


def test_a_message_counts_once_and_only_the_latest(journal: Journal, app: Celery) -> None:
    run_id = lost(journal)
    first = asked_for(journal, run_id)
    second = asked_for(journal, run_id)
    assert untracked.begin(first.ref, owner="o") is None
    assert untracked.begin(second.ref, owner="o") is not None
    assert untracked.begin(second.ref, owner="o") is None


@pytest.mark.parametrize("field", ["run_id", "branch", "revision"])
def test_a_look_needs_all_three(journal: Journal, field: str) -> None:
    run_id = lost(journal)
    ref = asked_for(journal, run_id).ref
    wrong: dict[str, Any] = {"run_id": "run-none", "branch": "0/1.0", "revision": ref.revision - 1}
    before = journal.image()
    assert untracked.begin(replace(ref, **{field: wrong[field]}), owner="o") is None
    assert journal.image() == before


@pytest.mark.parametrize(
    "values", [{"state": "pending"}, {"block_reason": "untracked_step"}, {"untracked": False}]
)
def test_nothing_else_is_looked_up(journal: Journal, values: dict[str, Any]) -> None:
    run_id = lost(journal)
    asked_for(journal, run_id)
    journal.make(run_id, **values)
    before = journal.image()
    assert untracked.begin(journal.ref(run_id), owner="o") is None
    assert journal.image() == before


def test_while_it_is_looked_up_nobody_asks(journal: Journal, app: Celery) -> None:
    run_id = lost(journal)
    begun(journal, run_id)
    assert sweep_once(app) == Swept()
    journal.advance(settings().lookup_time_limit + 10)
    assert sweep_once(app) == Swept(asked=1)


# Whose result counts, and who may still act


def moved(journal: Journal, run_id: str) -> None:
    journal.make(run_id, error="something else happened meanwhile")


def test_what_has_changed_meanwhile_is_left_alone(journal: Journal, app: Celery) -> None:
    run_id = lost(journal)
    found = begun(journal, run_id)
    moved(journal, run_id)
    before = journal.image()
    output = Output("1", "digest", "digest")
    assert untracked.found(found, output, worker="w", said="done") is None
    assert not untracked.again(found, after=1.0, said="later", failed=False)
    assert journal.image() == before
    for answer in (Found({"paris": 2}), Absent(), Undecided("two"), None):
        look(journal, app, run_id, meanwhile(journal, run_id, answer))
        live = journal.live(run_id)
        assert (live["state"], live["step_key"], live["block_reason"]) == (
            "unknown",
            "deploy",
            None,
        )


def meanwhile(journal: Journal, run_id: str, answer: Any) -> Any:
    """An answer that comes after something else has happened to the step."""

    def given(_ctx: Context) -> Any:
        moved(journal, run_id)
        return answer

    return given


def not_proven(journal: Journal, app: Celery, run_id: str) -> bool:
    look(journal, app, run_id, Absent())
    return bool(journal.live(run_id)["state"] == "unknown")


def test_an_owner_that_may_still_act_is_waited_for(journal: Journal, app: Celery) -> None:
    run_id = lost(journal, died=False)
    assert not_proven(journal, app, run_id)
    assert "not proven gone" in journal.live(run_id)["error"]
    journal.advance(settings().presume_dead_after)
    assert not not_proven(journal, app, run_id)


@pytest.mark.parametrize(("space", "proven"), [(None, True), ("another-boot", False)])
def test_an_owner_whose_pid_is_gone_here_is_proven_gone(
    journal: Journal, app: Celery, space: str | None, proven: bool
) -> None:
    run_id = lost(journal, died=False, pid=2**22 - 2)
    journal.look.execute(
        "INSERT INTO worker (start_id, name, host, pid, pid_started, pid_space, queues, concurrency)"
        " VALUES ('start-1', 'worker-1', 'h', 1, 1, %s, '{}', 1)",
        (space or processes.pid_space(),),
    )
    assert not_proven(journal, app, run_id) != proven
