"""The five fields of a lease: whoever lacks one of them writes nothing and learns of it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from models.journal import steps
from models.journal.errors import LeaseLost
from models.journal.values import Claimed
from tasks import group
from tests.support.journal import Journal, Worker, at, row_of, submit_run

Verb = Callable[[Worker, Claimed], object]

STRAIGHT = row_of("a", "b")
LAST = row_of("a")
OPENS = at("a") | group(at("b"), at("c")) | at("join")

VERBS: dict[str, tuple[Any, Verb]] = {
    "advance": (STRAIGHT, Worker.complete),
    "advance and claim": (STRAIGHT, Worker.complete_and_claim),
    "fork": (OPENS, Worker.complete),
    "finish": (LAST, Worker.complete),
    "grow": (STRAIGHT, lambda worker, claimed: worker.then(claimed, at("x"))),
    "grow a group": (LAST, lambda worker, claimed: worker.then(claimed, group(at("x"), at("y")))),
    "retry": (STRAIGHT, Worker.retry),
    "fail": (STRAIGHT, Worker.fail),
    "interrupt": (STRAIGHT, Worker.interrupt),
}

WRONG: dict[str, Any] = {
    "run_id": "run-other",
    "branch": "0/1.0",
    "step_key": "b",
    "token": 2,
    "owner": "start-1.other",
}
each_field = pytest.mark.parametrize("field", WRONG)


@each_field
@pytest.mark.parametrize("verb", VERBS)
def test_an_outcome_needs_all_five(journal: Journal, verb: str, field: str) -> None:
    canvas, act = VERBS[verb]
    claimed = Worker().take(submit_run(canvas), "a")
    before = journal.image()
    with pytest.raises(LeaseLost):
        act(Worker(), replace(claimed, **{field: WRONG[field]}))
    assert journal.image() == before
    act(Worker(), claimed)
    assert journal.image() != before


@each_field
def test_a_report_needs_all_five(journal: Journal, field: str) -> None:
    run_id = submit_run(at("a") | group(at("m"), at("n")) | at("join"))
    worker = Worker()
    worker.do(run_id, "a")
    claimed = worker.take(run_id, "m", "0/1.0")
    before = journal.image()
    with pytest.raises(LeaseLost):
        worker.complete(replace(claimed, **{field: WRONG[field], **_elsewhere(field)}))
    assert journal.image() == before


def _elsewhere(field: str) -> dict[str, Any]:
    return {"branch": "0/1.1"} if field == "branch" else {}


@each_field
def test_progress_of_a_displaced_owner_is_not_shown(journal: Journal, field: str) -> None:
    claimed = Worker().take(submit_run(STRAIGHT), "a")
    before = journal.image()
    wrong = replace(claimed.lease, **{field: WRONG[field]})
    steps.report_progress(wrong, 3, total=4, note="late")
    assert journal.image() == before
    steps.report_progress(claimed.lease, 3, total=4, note="three of four")
    live = journal.live(claimed.run_id)
    shown = (live["progress_done"], live["progress_total"], live["progress_note"])
    assert shown == (3.0, 4.0, "three of four")


@pytest.mark.parametrize("field", ["run_id", "branch", "token", "owner"])
def test_exactly_the_leases_held_are_renewed(journal: Journal, field: str) -> None:
    journal.freeze()
    run_id = submit_run(at("a") | group(at("m"), at("n")) | at("join"))
    worker = Worker()
    worker.do(run_id, "a")
    mine, not_mine = (worker.take(run_id, key, f"0/1.{n}") for n, key in enumerate("mn"))
    journal.advance(10)
    before = journal.live(run_id, "0/1.0"), journal.live(run_id, "0/1.1")
    wrong = replace(not_mine.lease, **{field: {**WRONG, "branch": "0/1.7"}[field]})

    renewed = steps.renew([mine.lease, wrong], ttl=30)

    assert renewed == {(run_id, "0/1.0", 1)}
    after = journal.live(run_id, "0/1.0"), journal.live(run_id, "0/1.1")
    assert after[1] == before[1]
    expected = {"lease_expires_at": after[0]["lease_expires_at"], "revision": 2}
    assert after[0] == before[0] | expected
    left = after[0]["lease_expires_at"] - before[0]["lease_expires_at"]
    assert left.total_seconds() == 10


def test_a_successor_is_not_kept_alive_by_the_owner_before_it(journal: Journal) -> None:
    journal.freeze()
    run_id = submit_run(row_of("a"))
    late = Worker("worker-slow", "start-slow").take(run_id, "a")
    journal.lose()
    journal.make(run_id, state="pending")
    now = Worker().take(run_id, "a")
    journal.advance(5)
    before = journal.image()
    assert steps.renew([late.lease], ttl=30) == set()
    assert journal.image() == before
    assert steps.renew([now.lease], ttl=30) == {(run_id, "0", 2)}
