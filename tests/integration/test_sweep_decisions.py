"""What a pass of the sweep does with each kind of row that does not move by itself."""

from collections.abc import Iterator

import pytest
from celery import Celery

from models.journal import runs
from models.settings import settings
from recovery import wake
from recovery.sweep import Swept, sweep_once
from tasks import group
from tests.support.broker import publisher, queued
from tests.support.journal import Journal, Worker, at, blind, row_of, submit_run


@pytest.fixture
def app(broker_url: str) -> Iterator[Celery]:
    with publisher(broker_url) as app:
        yield app


def test_an_empty_pass_does_nothing_and_is_recorded(journal: Journal, app: Celery) -> None:
    before = journal.image()
    assert sweep_once(app) == Swept()
    assert journal.image() == before
    assert journal.one("SELECT detail FROM pass") == "nothing to do"


def test_a_step_that_loses_owner_after_owner_waits_longer_and_is_then_blocked(
    journal: Journal, app: Celery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONWARD_LOST_LIMIT", "4")
    settings.cache_clear()
    journal.freeze()
    run_id = submit_run(row_of("a"))
    waits = []
    for _ in range(3):
        Worker().take(run_id, "a")
        journal.advance(31)
        sweep_once(app)
        waited = journal.live(run_id)["due_at"] - journal.one("SELECT onward_now()")
        waits.append(waited.total_seconds())
        journal.advance(waits[-1])
    assert waits == [0.0, 1.0, 2.0]
    Worker().take(run_id, "a")
    journal.advance(31)
    swept = sweep_once(app)
    assert swept is not None
    assert swept.blocked == 1
    run = journal.run(run_id)
    assert (run["state"], run["reason"]) == ("blocked", "poison_step")
    assert "lost 4 owners" in run["detail"]
    assert journal.live(run_id)["state"] == "failed"
    assert sweep_once(app) == Swept()

    runs.send_back(run_id, by="ada")
    assert Worker().take(run_id, "a").attempt == 5
    journal.advance(31)
    swept = sweep_once(app)
    assert swept is not None
    assert swept.requeued == 1


def test_an_untracked_step_is_blocked_and_never_repeated(journal: Journal, app: Celery) -> None:
    journal.freeze()
    run_id = submit_run(at("a", blind))
    Worker().take(run_id, "a")
    journal.advance(31)
    for blocked in (1, 0):
        swept = sweep_once(app)
        assert swept is not None
        assert (swept.blocked, swept.requeued, swept.published) == (blocked, 0, 0)
    assert journal.run(run_id)["reason"] == "untracked_step"
    assert journal.live(run_id)["state"] == "unknown"
    assert journal.events(run_id) == ["lease_expired", "run_blocked"]


def test_waiting_steps_are_woken_and_published(journal: Journal, app: Celery) -> None:
    run_id = submit_run(row_of("a"))
    journal.make(run_id, state="waiting", due_at="2000-01-01Z")
    swept = sweep_once(app)
    assert swept is not None
    assert (swept.woken, swept.published, queued(app)) == (1, 1, 1)


def test_a_cancelled_run_ends_once_nothing_of_it_is_in_the_air(
    journal: Journal, app: Celery
) -> None:
    journal.freeze()
    members = (at("m0"), at("m1"), at("m2", blind))
    run_id = submit_run(at("a") | group(*members) | at("join"))
    worker = Worker()
    worker.do(run_id, "a")
    running = worker.take(run_id, "m1", "0/1.1")
    worker.interrupt(worker.take(run_id, "m2", "0/1.2"))
    runs.cancel(run_id, by="ada", reason="enough", cancellation_id="c-1")

    swept = sweep_once(app)
    assert swept is not None
    assert (swept.settled, journal.run(run_id)["state"]) == (0, "running")
    assert journal.branches(run_id) == {"0/1.1"}
    worker.complete(running)
    swept = sweep_once(app)
    assert swept is not None
    assert (swept.settled, journal.run(run_id)["state"]) == (1, "cancelled")
    assert journal.states(run_id) == {
        "a": "completed", "m0": "cancelled", "m1": "completed", "m2": "cancelled",
        "join": "not_reached",
    }  # fmt: skip


def test_a_failed_run_is_settled_after_its_last_sibling_was_lost(
    journal: Journal, app: Celery
) -> None:
    journal.freeze()
    run_id = submit_run(group(at("m0"), at("m1")) | at("join"))
    worker = Worker()
    worker.take(run_id, "m1", "0/1.1")
    worker.fail(worker.take(run_id, "m0", "0/1.0"))
    assert sweep_once(app) == Swept()
    journal.advance(31)
    swept = sweep_once(app)
    assert swept is not None
    assert (swept.expired, swept.settled, swept.published) == (1, 1, 0)
    assert journal.run(run_id)["state"] == "failed"


def test_what_is_due_is_published_once_per_grace(journal: Journal, app: Celery) -> None:
    journal.freeze()
    submit_run(row_of("a"))
    assert wake.wake_once(app) == 0
    journal.advance(settings().publish_grace)
    assert [wake.wake_once(app), wake.wake_once(app), queued(app)] == [1, 0, 1]
