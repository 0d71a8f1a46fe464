"""Ending without a result: retries, final failures, groups that tolerate them, interruptions."""

import json

import pytest

from models.journal import rescue, runs, steps
from tasks import group
from tests.support.journal import FAILURE, Journal, Worker, at, row_of, submit_run
from tests.support.threads import at_once

ERROR = {"error_type": "ValueError", "error": "no such clause"}


def test_a_retry_counts_the_failure_and_waits(journal: Journal) -> None:
    journal.freeze()
    run_id = submit_run(row_of("a", "b"))
    worker = Worker()
    claimed = worker.take(run_id, "a")
    worker.retry(claimed, delay=20)

    live = journal.live(run_id)
    assert (live["state"], live["failures"], live["attempt"]) == ("pending", 1, 1)
    assert (live["owner"], live["lease_expires_at"], live["token"]) == (None, None, 1)
    assert (live["error_type"], live["error"]) == ("ValueError", "no such clause")
    now = journal.one("SELECT onward_now()")
    assert (live["due_at"] - now).total_seconds() == 20
    assert (live["publish_at"], live["publications"]) == (live["due_at"], 0)
    assert journal.attempts(run_id) == [("a", 1, "failed")]
    (attempt,) = journal.rows("SELECT * FROM attempt")
    assert (attempt["owner"], attempt["worker"]) == (claimed.owner, "worker-1")
    assert (attempt["error"], attempt["attempt"]) == ("no such clause", 1)
    assert (attempt["started_at"], attempt["ended_at"]) == (claimed.claimed_at, now)
    assert worker.claim(run_id, "a") is None


@pytest.mark.parametrize("crashed", [False, True])
def test_an_interruption_is_decided_like_any_unknown_step(journal: Journal, crashed: bool) -> None:
    run_id = submit_run(row_of("a"))
    worker = Worker()
    worker.interrupt(worker.take(run_id, "a"), crashed=crashed)
    live = journal.live(run_id)
    assert (live["state"], live["crashes"], live["lost"]) == ("unknown", int(crashed), 0)
    assert (live["failures"], live["owner"]) == (0, None)
    assert journal.attempts(run_id) == [("a", 1, "interrupted")]
    (stale,) = rescue.unknown_steps(limit=10)
    assert (stale.crashes, stale.lost) == (int(crashed), 0)


def test_a_final_failure_ends_the_run_and_names_the_step(journal: Journal) -> None:
    journal.freeze()
    run_id = submit_run(row_of("a", "b"))
    worker = Worker()
    worker.fail(worker.take(run_id, "a"))
    live, run = journal.live(run_id), journal.run(run_id)
    assert (live["state"], live["failures"], live["owner"]) == ("failed", 1, None)
    assert (run["state"], run["hold"], run["reason"]) == ("failed", "failed", "ValueError")
    assert run["detail"] == "a: no such clause"
    assert run["finished_at"] == journal.one("SELECT onward_now()")
    assert journal.attempts(run_id) == [("a", 1, "failed")]
    assert journal.events(run_id) == ["run_failed"]


def open_group(journal: Journal, width: int = 3, *, tolerant: bool = False) -> str:
    """A run whose group has just been opened."""
    members = (at(f"m{n}") for n in range(width))
    run_id = submit_run(at("a") | group(*members, tolerant=tolerant) | row_of("join", "end"))
    Worker().do(run_id, "a")
    return run_id


def test_a_strict_group_lets_running_siblings_finish_and_names_every_failure(
    journal: Journal,
) -> None:
    run_id = open_group(journal, width=4)
    worker = Worker()
    claims = [worker.take(run_id, f"m{n}", f"0/1.{n}") for n in (0, 1, 3)]
    worker.fail(claims[2])
    run = journal.run(run_id)
    assert (run["state"], run["hold"]) == ("running", "failed")
    assert worker.claim(run_id, "m2", "0/1.2") is None
    worker.complete(claims[1])
    assert journal.run(run_id)["state"] == "running"
    worker.fail(claims[0])
    run = journal.run(run_id)
    assert run["state"] == "failed"
    assert run["detail"] == "m0 [0]: no such clause; m3 [3]: no such clause"
    assert journal.states(run_id) == {
        "a": "completed", "m0": "failed", "m1": "completed", "m2": "pending", "m3": "failed",
        "join": "not_reached", "end": "not_reached",
    }  # fmt: skip


def test_a_sibling_that_completes_last_leaves_the_end_to_the_sweep(journal: Journal) -> None:
    run_id = open_group(journal, width=2)
    worker = Worker()
    first, second = (worker.take(run_id, f"m{n}", f"0/1.{n}") for n in range(2))
    worker.fail(first)
    worker.complete(second)
    assert journal.run(run_id)["state"] == "running"
    assert rescue.held_runs(limit=10) == [run_id]
    assert runs.settle(run_id) == "failed"
    assert rescue.held_runs(limit=10) == []


def test_a_tolerant_group_hands_the_error_on(journal: Journal) -> None:
    run_id = open_group(journal, tolerant=True)
    worker = Worker()
    for index in (0, 2):
        worker.do(run_id, f"m{index}", branch=f"0/1.{index}")
    worker.fail(worker.take(run_id, "m1", "0/1.1"))

    join = journal.live(run_id)
    assert (join["missing"], join["publications"]) == (0, 0)
    assert journal.run(run_id)["hold"] is None
    assert journal.branches(run_id) == {"0"}
    gathered = steps.gathered(worker.take(run_id, "join"))
    assert [state for state, _ in gathered] == ["completed", "failed", "completed"]
    assert json.loads(gathered[1][1]) == {"step_key": "m1", **FAILURE}
    step = journal.step(run_id, "m1")
    assert step is not None
    assert (step["state"], step["token"], step["joins"], step["join_index"]) == (
        "failed", 1, "join", 1,
    )  # fmt: skip
    assert journal.events(run_id) == ["failure_tolerated"]


def test_all_members_of_a_tolerant_group_may_fail_at_once(journal: Journal) -> None:
    run_id = open_group(journal, width=6, tolerant=True)
    worker = Worker()
    claims = [worker.take(run_id, f"m{n}", f"0/1.{n}") for n in range(6)]
    at_once(*(lambda claimed=claimed: worker.fail(claimed) for claimed in claims))
    assert journal.live(run_id)["missing"] == 0
    assert len(steps.gathered(worker.take(run_id, "join"))) == 6


def test_a_join_that_has_moved_on_is_not_counted_down_by_a_failure(journal: Journal) -> None:
    run_id = open_group(journal, tolerant=True)
    claimed = Worker().take(run_id, "m1", "0/1.1")
    journal.make(run_id, step_key="elsewhere")
    Worker().fail(claimed)
    assert journal.live(run_id)["missing"] == 3


def nested(journal: Journal) -> tuple[str, list[str]]:
    """A strict group inside the first member of a tolerant one, both open; the inner branches."""
    inner = at("in") | group(at("i0"), row_of("i1", "i1b"), at("i2")) | at("inner")
    run_id = submit_run(at("a") | group(inner, at("m1"), tolerant=True) | row_of("join", "end"))
    worker = Worker()
    worker.do(run_id, "a")
    worker.do(run_id, "in", branch="0/1.0")
    return run_id, sorted(journal.branches(run_id) - {"0", "0/1.0", "0/1.1"})


def test_a_failure_ends_the_nearest_tolerated_member_with_all_below_it(journal: Journal) -> None:
    run_id, inner = nested(journal)
    worker = Worker()
    worker.fail(worker.take(run_id, "i0", inner[0]))
    assert journal.branches(run_id) == {"0", "0/1.1"}
    assert journal.live(run_id)["missing"] == 1
    worker.do(run_id, "m1", branch="0/1.1")
    states = [state for state, _ in steps.gathered(worker.take(run_id, "join"))]
    assert states == ["failed", "completed"]
    assert journal.states(run_id) == {
        "a": "completed", "in": "completed", "i0": "failed", "i1": "cancelled", "i1b": "not_reached",
        "i2": "cancelled", "inner": "not_reached", "m1": "completed", "join": "running",
        "end": "not_reached",
    }  # fmt: skip


def test_a_group_below_an_ended_member_ends_with_it(journal: Journal) -> None:
    deeper = at("k") | group(at("k0"), at("k1")) | at("kj")
    inner = at("in") | group(at("i0"), deeper) | at("inner")
    run_id = submit_run(at("a") | group(inner, tolerant=True) | at("join"))
    worker = Worker()
    worker.do(run_id, "a")
    worker.do(run_id, "in", branch="0/1.0")
    first, second = sorted(journal.branches(run_id) - {"0", "0/1.0"})
    worker.do(run_id, "k", branch=second)
    worker.fail(worker.take(run_id, "i0", first))
    assert journal.branches(run_id) == {"0"}
    assert journal.states(run_id) == {
        "a": "completed", "in": "completed", "i0": "failed", "k": "completed", "k0": "cancelled",
        "k1": "cancelled", "kj": "not_reached", "inner": "not_reached", "join": "pending",
    }  # fmt: skip


def test_a_step_in_doubt_outlives_the_end_of_its_member_until_it_is_decided(
    journal: Journal,
) -> None:
    run_id, inner = nested(journal)
    worker = Worker()
    worker.interrupt(worker.take(run_id, "i2", inner[2]))
    worker.fail(worker.take(run_id, "i0", inner[0]))
    assert journal.states(run_id)["i2"] == "unknown"
    assert rescue.cancellable(limit=10) == []
    rescue.requeue([journal.ref(run_id, inner[2])], [0.0])
    rescue.cancel_branches(rescue.cancellable(limit=10))
    assert journal.states(run_id)["i2"] == "cancelled"


def test_whoever_ends_the_member_reports_and_the_second_failure_does_not(journal: Journal) -> None:
    run_id, inner = nested(journal)
    worker = Worker()
    claims = [worker.take(run_id, f"i{n}", inner[n]) for n in range(3)]
    at_once(*(lambda claimed=claimed: worker.fail(claimed) for claimed in claims))
    assert journal.live(run_id)["missing"] == 1
    assert journal.branches(run_id) == {"0", "0/1.1"}
    failed = journal.rows("SELECT * FROM step WHERE state = 'failed'")
    assert len(failed) == len(journal.attempts(run_id)) == 3
    reported = [row["join_index"] for row in failed if row["joins"]]
    assert reported == [0]


def test_a_running_sibling_of_an_ended_member_ends_in_nothing(journal: Journal) -> None:
    run_id, inner = nested(journal)
    worker = Worker()
    slow = worker.take(run_id, "i2", inner[2])
    worker.fail(worker.take(run_id, "i0", inner[0]))
    assert journal.branches(run_id) == {"0", "0/1.1", inner[2]}
    assert worker.complete(slow).wakeups == ()
    assert journal.live(run_id)["missing"] == 1
    worker.do(run_id, "m1", branch="0/1.1")
    assert worker.do(run_id, "join", "end").finished


@pytest.mark.parametrize("where", ["open", "running", "moved on", "over"])
def test_the_failure_of_an_ended_members_sibling_is_nobodys(journal: Journal, where: str) -> None:
    run_id, inner = nested(journal)
    worker = Worker()
    slow = worker.take(run_id, "i2", inner[2])
    worker.fail(worker.take(run_id, "i0", inner[0]))
    if where != "open":
        worker.do(run_id, "m1", branch="0/1.1")
    if where == "running":
        worker.take(run_id, "join")
    if where in ("moved on", "over"):
        worker.do(run_id, "join")
    if where == "over":
        worker.do(run_id, "end")
    before = journal.run(run_id)
    worker.fail(slow)
    assert journal.run(run_id) == before
    assert inner[2] not in journal.branches(run_id)
    assert journal.attempts(run_id)[-1] == ("i2", 1, "failed")


def test_an_ended_members_branch_goes_no_further(journal: Journal) -> None:
    run_id, inner = nested(journal)
    worker = Worker()
    slow = worker.take(run_id, "i1", inner[1])
    worker.fail(worker.take(run_id, "i0", inner[0]))
    worker.complete(slow)
    assert journal.states(run_id)["i1b"] == "pending"
    refs = rescue.cancellable(limit=10)
    assert [(ref.run_id, ref.branch) for ref in refs] == [(run_id, inner[1])]
    rescue.cancel_branches(refs)
    assert journal.states(run_id)["i1b"] == "cancelled"
    assert rescue.cancellable(limit=10) == []


def test_a_strict_group_around_a_tolerant_one_is_not_ended_by_it(journal: Journal) -> None:
    inner = at("in") | group(at("i0"), at("i1"), tolerant=True) | at("inner")
    run_id = submit_run(at("a") | group(inner, at("m1")) | at("join"))
    worker = Worker()
    worker.do(run_id, "a")
    worker.do(run_id, "in", branch="0/1.0")
    branches = sorted(journal.branches(run_id) - {"0", "0/1.0", "0/1.1"})
    worker.fail(worker.take(run_id, "i0", branches[0]))
    assert (journal.live(run_id)["missing"], journal.live(run_id, "0/1.0")["missing"]) == (2, 1)
    worker.fail(worker.take(run_id, "m1", "0/1.1"))
    assert journal.run(run_id)["hold"] == "failed"


def test_a_failure_after_a_cancellation_leaves_the_cancellation(journal: Journal) -> None:
    run_id = submit_run(row_of("a"))
    worker = Worker()
    claimed = worker.take(run_id, "a")
    runs.cancel(run_id, by="ada", reason="enough", cancellation_id="c-1")
    worker.fail(claimed)
    assert journal.run(run_id)["hold"] == "cancel"
    rescue.cancel_branches(rescue.cancellable(limit=10))
    assert runs.settle(run_id) == "cancelled"
