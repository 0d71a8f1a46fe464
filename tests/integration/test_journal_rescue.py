"""What is done about lost steps: under the revision that was seen, so that each is acted on once."""

from typing import Any

import pytest

from models.journal import rescue
from models.states import BlockReason
from tasks import group
from tests.support.journal import Journal, Worker, at, blind, row_of, submit_run, wrong_refs
from tests.support.threads import aside, at_once

RUNNING = {"state": "running", "owner": "start-1.x", "lease_expires_at": "9999-01-01Z"}


def unknown(journal: Journal, kind: object = None) -> str:
    """A run whose only step lost its owner."""
    run_id = submit_run(at("a", blind) if kind is blind else row_of("a"))
    Worker().interrupt(Worker().take(run_id, "a"))
    return run_id


def test_unknown_steps_come_as_decide_wants_them(journal: Journal) -> None:
    run_id = unknown(journal, blind)
    journal.make(run_id, crashes=5, lost=3, pardoned_crashes=4, pardoned_lost=3)
    (stale,) = rescue.unknown_steps(limit=10)
    assert (stale.run_id, stale.branch, stale.step_key) == (run_id, "0", "a")
    assert stale.revision == journal.live(run_id)["revision"]
    assert (stale.crashes, stale.lost) == (1, 0)
    assert (stale.untracked, stale.cancel_requested, stale.unsettled_effects) == (True, False, 0)
    assert (stale.cause, stale.reason) == ("ValueError", "no such clause")
    journal.look.execute("UPDATE run SET hold = 'failed'")
    assert not rescue.unknown_steps(limit=10)[0].cancel_requested
    journal.look.execute("UPDATE run SET hold = 'cancel'")
    assert rescue.unknown_steps(limit=10)[0].cancel_requested


@pytest.mark.parametrize(
    "values",
    [{"state": "pending"}, RUNNING, {"block_reason": "untracked_step"}, {"due_at": "9999-01-01Z"}],
    ids=["pending", "running", "blocked", "not due"],
)
def test_only_unknown_unblocked_due_steps_are_decided(
    journal: Journal, values: dict[str, Any]
) -> None:
    run_id = unknown(journal)
    journal.make(run_id, **values)
    assert rescue.unknown_steps(limit=10) == []


def test_unknown_steps_of_one_run_and_up_to_a_limit(journal: Journal) -> None:
    run_ids = [unknown(journal) for _ in range(3)]
    assert [stale.run_id for stale in rescue.unknown_steps(limit=2)] == run_ids[:2]
    assert [s.run_id for s in rescue.unknown_steps(limit=9, run_id=run_ids[2])] == [run_ids[2]]


def test_requeued_steps_are_due_after_their_delay(journal: Journal) -> None:
    journal.freeze()
    run_ids = [unknown(journal) for _ in range(3)]
    refs = [journal.ref(run_id) for run_id in run_ids[:2]]
    assert rescue.requeue(refs, [0.0, 16.0]) == 2
    now = journal.one("SELECT onward_now()")
    for run_id, delay in zip(run_ids, (0, 16), strict=False):
        live = journal.live(run_id)
        assert (live["state"], live["publications"]) == ("pending", 0)
        assert live["due_at"] == live["publish_at"]
        assert (live["due_at"] - now).total_seconds() == delay
        assert journal.events(run_id) == ["step_requeued"]
    assert journal.live(run_ids[2])["state"] == "unknown"


def test_whoever_saw_another_revision_changes_nothing(journal: Journal) -> None:
    run_id = unknown(journal)
    before = journal.image()
    for ref in wrong_refs(journal.ref(run_id)):
        assert rescue.requeue([ref], [0.0]) == 0
        assert not rescue.block(ref, BlockReason.NO_WORKER, detail="", failed=False)
        assert rescue.cancel_branches([ref]) == []
        assert journal.image() == before, ref


def test_only_unknown_steps_are_requeued(journal: Journal) -> None:
    run_id = unknown(journal)
    for values in ({"state": "pending"}, {"state": "failed"}, {"state": "waiting"}, RUNNING):
        journal.make(run_id, **values)
        before = journal.image()
        assert rescue.requeue([journal.ref(run_id)], [0.0]) == 0
        assert journal.image() == before


def test_of_two_that_requeue_one_does(journal: Journal) -> None:
    run_ids = [unknown(journal) for _ in range(20)]
    refs = [journal.ref(run_id) for run_id in run_ids]
    delays = [0.0] * len(refs)
    backwards = list(reversed(refs))
    counts = at_once(
        lambda: rescue.requeue(refs, delays),
        lambda: rescue.requeue(backwards, delays),
        lambda: rescue.requeue(refs, delays),
    )
    assert sum(counts) == 20
    assert journal.one("SELECT count(*) FROM event WHERE kind = 'step_requeued'") == 20


def test_a_block_stops_the_branch_and_shows_on_the_run(journal: Journal) -> None:
    run_id = unknown(journal, blind)
    ref = journal.ref(run_id)
    assert rescue.block(ref, BlockReason.UNTRACKED_STEP, detail="look outside", failed=False)
    live, run = journal.live(run_id), journal.run(run_id)
    assert (live["state"], live["block_reason"]) == ("unknown", "untracked_step")
    assert (live["error_type"], live["error"]) == ("untracked_step", "look outside")
    assert (run["state"], run["reason"], run["detail"]) == (
        "blocked", "untracked_step", "look outside",
    )  # fmt: skip
    assert journal.events(run_id) == ["run_blocked"]
    assert not rescue.block(ref, BlockReason.UNTRACKED_STEP, detail="again", failed=False)
    assert journal.events(run_id) == ["run_blocked"]


def test_a_poisonous_step_is_failed_as_well(journal: Journal) -> None:
    run_id = unknown(journal)
    assert rescue.block(journal.ref(run_id), BlockReason.POISON_STEP, detail="3", failed=True)
    assert journal.live(run_id)["state"] == "failed"
    assert journal.run(run_id)["state"] == "blocked"


def test_a_held_step_is_neither_blocked_nor_cancelled(journal: Journal) -> None:
    run_id = submit_run(row_of("a"))
    Worker().take(run_id, "a")
    before = journal.image()
    ref = journal.ref(run_id)
    assert not rescue.block(ref, BlockReason.NO_WORKER, detail="", failed=True)
    assert rescue.cancel_branches([ref]) == []
    assert journal.image() == before


@pytest.mark.parametrize("state", ["completed", "failed", "cancelled", "blocked"])
def test_a_block_does_not_reopen_what_is_over(journal: Journal, state: str) -> None:
    run_id = unknown(journal)
    result = "'a'" if state == "completed" else "NULL"
    journal.look.execute(f"UPDATE run SET state = '{state}', result_key = {result}")  # noqa: S608
    before = journal.run(run_id)
    rescue.block(journal.ref(run_id), BlockReason.NO_WORKER, detail="", failed=False)
    assert journal.run(run_id) == before


def test_cancelled_branches_leave_their_reached_step_and_no_join(journal: Journal) -> None:
    run_id = submit_run(at("a") | group(at("m0"), at("m1")) | at("join"))
    Worker().do(run_id, "a")
    held = Worker().take(run_id, "m1", "0/1.1")
    refs = [journal.ref(run_id, branch) for branch in ("0", "0/1.0", "0/1.1")]
    assert rescue.cancel_branches(refs) == [run_id]
    assert journal.branches(run_id) == {"0/1.1"}
    assert journal.states(run_id) == {
        "a": "completed", "m0": "cancelled", "m1": "running", "join": "not_reached",
    }  # fmt: skip
    Worker().complete(held)
    assert journal.states(run_id)["m1"] == "completed"


def test_what_can_be_cancelled_is_of_cancelled_runs_and_not_in_doubt(journal: Journal) -> None:
    kept = submit_run(row_of("a"))
    failing = submit_run(row_of("a"))
    journal.look.execute("UPDATE run SET hold = 'failed' WHERE run_id = %s", (failing,))
    cancelled = [submit_run(row_of("a")) for _ in range(5)]
    journal.look.execute("UPDATE run SET hold = 'cancel' WHERE run_id = ANY(%s)", (cancelled,))
    states = ({"state": "pending"}, {"state": "failed"}, {"state": "waiting"}, RUNNING)
    for run_id, values in zip(cancelled, (*states, {"state": "unknown"}), strict=True):
        journal.make(run_id, **values)
    assert {ref.run_id for ref in rescue.cancellable(limit=10)} == set(cancelled[:3])
    assert len(rescue.cancellable(limit=2)) == 2
    assert kept not in rescue.held_runs(limit=10)
    assert rescue.held_runs(limit=10) == sorted([*cancelled, failing])
    assert len(rescue.held_runs(limit=3)) == 3


def test_waiting_steps_wake_when_their_time_has_come(journal: Journal) -> None:
    journal.freeze()
    run_ids = [submit_run(row_of("a")) for _ in range(3)]
    for run_id, due_in in zip(run_ids, (5, 10, 10), strict=True):
        due_at = journal.one("SELECT onward_now() + make_interval(secs => %s)", due_in)
        journal.make(run_id, state="waiting", due_at=due_at)
    assert rescue.wake_waiting(limit=10) == 0
    journal.advance(5)
    assert rescue.wake_waiting(limit=10) == 1
    live = journal.live(run_ids[0])
    now = journal.one("SELECT onward_now()")
    assert (live["state"], live["publish_at"], live["publications"]) == ("pending", now, 0)
    assert journal.live(run_ids[1])["state"] == "waiting"
    journal.advance(5)
    assert [rescue.wake_waiting(limit=1) for _ in range(3)] == [1, 1, 0]


def test_waking_skips_what_another_holds(journal: Journal) -> None:
    run_id = submit_run(row_of("a"))
    journal.make(run_id, state="waiting", due_at="2000-01-01Z")
    with (
        journal.holding("SELECT 1 FROM live WHERE run_id = %s FOR UPDATE", run_id),
        aside(lambda: rescue.wake_waiting(limit=10)) as waking,
    ):
        assert waking.result() == 0
    assert sum(at_once(*(lambda: rescue.wake_waiting(limit=10) for _ in range(4)))) == 1
