"""Ends that are no failure: stopped for a person, or sent back because something was not to be had."""

from collections.abc import Callable

import pytest

from models.journal import failing, runs, throttle
from models.journal.errors import LeaseLost
from models.journal.values import Claimed
from models.states import BlockReason
from tasks import group
from tests.support.journal import Journal, Worker, at, row_of, submit_run

CONFLICT = {"error_type": "idempotency_conflict", "error": "bound to another request"}
THROTTLED = {"error_type": "throttled", "error": "no place soon"}


def stop(claimed: Claimed) -> None:
    failing.stop(claimed, worker="worker-1", reason=BlockReason.IDEMPOTENCY_CONFLICT, **CONFLICT)


def postpone(claimed: Claimed, delay: float = 20.0) -> None:
    failing.postpone(claimed, worker="worker-1", delay=delay, **THROTTLED)


def test_a_stopped_step_shows_its_reason_in_row_run_and_history(journal: Journal) -> None:
    run_id = submit_run(row_of("a", "b"))
    stop(Worker().take(run_id, "a"))

    live, run = journal.live(run_id), journal.run(run_id)
    assert (live["state"], live["block_reason"]) == ("failed", "idempotency_conflict")
    assert (live["failures"], live["crashes"], live["owner"]) == (0, 0, None)
    assert (run["state"], run["reason"], run["detail"], run["hold"]) == (
        "blocked", "idempotency_conflict", "bound to another request", None,
    )  # fmt: skip
    assert journal.attempts(run_id) == [("a", 1, "failed")]
    assert "run_blocked" in journal.events(run_id)


def test_a_person_sends_a_stopped_step_back(journal: Journal) -> None:
    run_id = submit_run(row_of("a"))
    worker = Worker()
    stop(worker.take(run_id, "a"))
    assert runs.send_back(run_id, by="sam") == ["a"]
    worker.do(run_id, "a")
    assert journal.run(run_id)["state"] == "completed"


def test_siblings_of_a_stopped_step_go_on(journal: Journal) -> None:
    run_id = submit_run(at("a") | group(at("m0"), at("m1")) | at("join"))
    worker = Worker()
    worker.do(run_id, "a")
    stop(worker.take(run_id, "m0", "0/1.0"))
    worker.do(run_id, "m1", branch="0/1.1")
    assert journal.states(run_id)["m1"] == "completed"
    assert journal.run(run_id)["state"] == "blocked"


def test_a_postponed_step_comes_back_in_time_and_nothing_is_counted(journal: Journal) -> None:
    journal.freeze()
    run_id = submit_run(row_of("a"))
    worker = Worker()
    postpone(worker.take(run_id, "a"))

    live = journal.live(run_id)
    assert (live["state"], live["failures"], live["crashes"], live["lost"]) == ("pending", 0, 0, 0)
    assert journal.run(run_id)["state"] == "running"
    assert journal.attempts(run_id) == [("a", 1, "interrupted")]
    assert worker.claim(run_id, "a") is None
    journal.advance(20)
    worker.do(run_id, "a")
    assert journal.run(run_id)["state"] == "completed"


@pytest.mark.parametrize("end", [stop, postpone])
def test_a_displaced_owner_ends_nothing(journal: Journal, end: Callable[[Claimed], None]) -> None:
    journal.freeze()
    run_id = submit_run(row_of("a"))
    claimed = Worker().take(run_id, "a")
    journal.lose()
    before = journal.image()
    with pytest.raises(LeaseLost, match="no longer owns"):
        end(claimed)
    assert journal.image() == before


def place(name: str = "tool:t") -> float:
    return throttle.take_place(name, per_second=2.0, at_most=1.0)


def test_places_are_spaced_evenly_and_none_is_taken_by_who_will_not_wait(journal: Journal) -> None:
    journal.freeze()
    assert [place() for _ in range(3)] == [0.0, 0.5, 1.0]
    assert place() > 1.0
    assert place() > 1.0
    journal.advance(0.5)
    assert place() == 1.0
    journal.advance(60)
    assert place() == 0.0
    assert place("tool:other") == 0.0
