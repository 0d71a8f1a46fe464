"""Completing: what is recorded, what is released, and that a displaced owner changes nothing."""

import json

import pytest
from psycopg import errors as pg

from models.journal import runs, steps, submitting
from models.journal.errors import LeaseLost
from models.journal.steps import FORK_AT_ONCE
from models.settings import settings
from tasks import group
from tests.support.journal import Journal, Worker, at, blind, output, row_of, submit_run
from tests.support.threads import at_once


def test_a_result_is_recorded_and_the_branch_moves_on(journal: Journal) -> None:
    journal.freeze()
    run_id = submit_run(at("a") | at("b", blind, queue="other"), priority=2)
    worker = Worker()
    worker.retry(worker.take(run_id, "a"))
    journal.make(
        run_id, crashes=1, lost=2, pardoned_lost=2, slot_at="2000-01-01Z", progress_note="half"
    )
    claimed = worker.take(run_id, "a")
    journal.advance(4)

    worker.complete(claimed, '"of a"')

    now = journal.one("SELECT onward_now()")
    step = journal.step(run_id, "a")
    assert step is not None
    assert (step["state"], step["output"], step["prev_key"]) == ("completed", '"of a"', None)
    recorded = output(claimed, '"of a"')
    assert (step["output_digest"], step["input_digest"]) == (
        recorded.digest,
        recorded.input_digest,
    )
    assert (step["attempt"], step["token"], step["worker"]) == (2, 2, "worker-1")
    assert (step["started_at"], step["finished_at"]) == (claimed.claimed_at, now)

    live = journal.live(run_id)
    assert (live["state"], live["step_key"], live["prev_key"]) == ("pending", "b", "a")
    assert (live["queue"], live["untracked"], live["priority"]) == ("other.toy@1", True, 2)
    assert (live["attempt"], live["token"]) == (0, 2)
    cleared = (
        "owner worker carrier pid pid_started claimed_at lease_expires_at slot_at error_type error "
        "block_reason progress_note"
    )
    assert {live[name] for name in cleared.split()} == {None}
    assert {live[name] for name in ("failures", "crashes", "lost", "pardoned_lost")} == {0}
    assert live["due_at"] == now
    assert (live["publish_at"] - now).total_seconds() == settings().publish_grace
    assert live["publications"] == 1


def test_the_completing_worker_is_told_whom_to_wake(journal: Journal) -> None:
    run_id = submit_run(at("a") | at("b", blind, queue="other"))
    completed = Worker().do(run_id, "a")
    (wakeup,) = completed.wakeups
    assert (wakeup.branch, wakeup.step_key, wakeup.queue) == ("0", "b", "other.toy@1")
    assert (wakeup.step_name, wakeup.attempt) == ("toy.blind", 1)
    assert not completed.finished
    assert completed.claimed is None


def test_the_last_step_finishes_the_run(journal: Journal) -> None:
    journal.freeze()
    run_id, other = submit_run(row_of("a", "b")), submit_run(row_of("a"))
    journal.look.execute("UPDATE run SET reason = 'old', detail = 'old'")
    untouched = journal.run(other)
    completed = Worker().do(run_id, "a", "b")

    assert completed.finished
    assert completed.wakeups == ()
    run = journal.run(run_id)
    assert (run["state"], run["result_key"]) == ("completed", "b")
    assert (run["reason"], run["detail"]) == (None, None)
    assert run["finished_at"] == journal.one("SELECT onward_now()")
    assert journal.branches(run_id) == set()
    assert journal.states(run_id) == {"a": "completed", "b": "completed"}
    assert journal.run(other) == untouched


def test_a_cancelled_run_ends_cancelled_with_its_last_result_kept(journal: Journal) -> None:
    run_id = submit_run(row_of("a"))
    claimed = Worker().take(run_id, "a")
    runs.cancel(run_id, by="ada", reason="late", cancellation_id="c-1")
    assert Worker().complete(claimed).finished
    run = journal.run(run_id)
    assert (run["state"], run["result_key"]) == ("cancelled", None)
    assert journal.states(run_id) == {"a": "completed"}


def test_a_fork_starts_every_member_and_leaves_the_branch_at_the_join(journal: Journal) -> None:
    journal.freeze()
    submitting.create_batch("batch-1", "one")
    members = (at("m0"), at("m1", blind, queue="other"), row_of("m2", "m2b"))
    run_id = submit_run(at("a") | group(*members) | at("join"), priority=4, batch_id="batch-1")
    completed = Worker().do(run_id, "a")

    join = journal.live(run_id)
    assert (join["step_key"], join["state"], join["missing"]) == ("join", "pending", 3)
    assert (join["prev_key"], join["owner"], join["attempt"]) == ("a", None, 0)
    assert [(w.branch, w.step_key) for w in completed.wakeups] == [
        ("0/1.0", "m0"),
        ("0/1.1", "m1"),
        ("0/1.2", "m2"),
    ]
    for wakeup in completed.wakeups:
        live = journal.live(run_id, wakeup.branch)
        assert (live["step_key"], live["prev_key"], live["token"]) == (wakeup.step_key, "a", 0)
        assert (live["priority"], live["batch_id"]) == (4, "batch-1")
        assert (live["publications"], live["missing"]) == (1, 0)
        assert (live["publish_at"] - live["due_at"]).total_seconds() == settings().publish_grace
    second = journal.live(run_id, "0/1.1")
    assert (second["queue"], second["untracked"]) == ("other.toy@1", True)
    assert Worker().claim(run_id, "join") is None


def test_a_wide_fork_leaves_most_messages_to_wake(journal: Journal) -> None:
    journal.freeze()
    width = FORK_AT_ONCE + 36
    run_id = submit_run(at("a") | group(*(at(f"m{n}") for n in range(width))) | at("join"))
    completed = Worker().do(run_id, "a")

    assert [w.step_key for w in completed.wakeups] == [f"m{n}" for n in range(FORK_AT_ONCE)]
    assert journal.live(run_id)["missing"] == width
    rows = journal.rows(
        "SELECT branch, publications, publish_at > onward_now() AS later FROM live WHERE branch <> '0'"
    )
    assert len(rows) == width
    for row in rows:
        sent = int(row["branch"].rpartition(".")[2]) < FORK_AT_ONCE
        assert (row["publications"], row["later"]) == (int(sent), sent), row


def test_the_last_report_releases_the_join(journal: Journal) -> None:
    journal.freeze()
    run_id = submit_run(at("a") | group(*(at(f"m{n}") for n in range(3))) | at("join"))
    worker = Worker()
    worker.do(run_id, "a")
    for index, missing in ((2, 2), (0, 1)):
        assert worker.do(run_id, f"m{index}", branch=f"0/1.{index}").wakeups == ()
        assert journal.live(run_id)["missing"] == missing
        assert journal.live(run_id)["publications"] == 0
        assert f"0/1.{index}" not in journal.branches(run_id)
        assert worker.claim(run_id, "join") is None
    journal.advance(7)
    (wakeup,) = worker.do(run_id, "m1", branch="0/1.1").wakeups

    assert (wakeup.branch, wakeup.step_key, wakeup.attempt) == ("0", "join", 1)
    join = journal.live(run_id)
    now = journal.one("SELECT onward_now()")
    assert (join["missing"], join["publications"], join["due_at"]) == (0, 1, now)
    assert (join["publish_at"] - now).total_seconds() == settings().publish_grace
    gathered = steps.gathered(worker.take(run_id, "join"))
    assert gathered == [("completed", f'"m{n}"') for n in range(3)]


def test_groups_within_groups_report_to_their_own_join(journal: Journal) -> None:
    inner = at("in") | group(at("i0"), at("i1")) | at("inner")
    run_id = submit_run(at("a") | group(inner, at("m1")) | at("outer"))
    worker = Worker()
    worker.do(run_id, "a")
    worker.do(run_id, "in", branch="0/1.0")
    worker.do(run_id, "m1", branch="0/1.1")
    branches = sorted(journal.branches(run_id) - {"0", "0/1.0"})
    worker.do(run_id, "i0", branch=branches[0])
    assert (journal.live(run_id)["missing"], journal.live(run_id, "0/1.0")["missing"]) == (1, 1)
    (wakeup,) = worker.do(run_id, "i1", branch=branches[1]).wakeups
    assert (wakeup.branch, wakeup.step_key) == ("0/1.0", "inner")
    (wakeup,) = worker.do(run_id, "inner", branch="0/1.0").wakeups
    assert (wakeup.branch, wakeup.step_key) == ("0", "outer")
    assert worker.do(run_id, "outer").finished


@pytest.mark.parametrize("_round", range(5))
def test_two_last_members_reporting_at_once_release_the_join_once(
    journal: Journal, _round: int
) -> None:
    run_id = submit_run(at("a") | group(at("m0"), at("m1")) | at("join"))
    worker = Worker()
    worker.do(run_id, "a")
    claims = [worker.take(run_id, f"m{n}", f"0/1.{n}") for n in range(2)]
    done = at_once(*(lambda claimed=claimed: worker.complete(claimed) for claimed in claims))
    assert sorted(len(completed.wakeups) for completed in done) == [0, 1]
    assert journal.live(run_id)["missing"] == 0


def test_a_join_that_has_moved_on_is_not_counted_down(journal: Journal) -> None:
    run_id = submit_run(at("a") | group(at("m0"), at("m1")) | at("join"))
    worker = Worker()
    worker.do(run_id, "a")
    claimed = worker.take(run_id, "m0", "0/1.0")
    journal.make(run_id, step_key="elsewhere")
    assert worker.complete(claimed).wakeups == ()
    assert journal.live(run_id)["missing"] == 2


def test_a_join_never_misses_less_than_nothing(journal: Journal) -> None:
    run_id = submit_run(at("a") | group(at("m0"), at("m1")) | at("join"))
    Worker().do(run_id, "a")
    claimed = Worker().take(run_id, "m0", "0/1.0")
    journal.make(run_id, missing=0)
    before = journal.image()
    with pytest.raises(pg.CheckViolation, match="ck_live_missing"):
        Worker().complete(claimed)
    assert journal.image() == before


def test_the_next_step_is_claimed_in_the_same_commit(journal: Journal) -> None:
    journal.freeze()
    run_id = submit_run(row_of("a", "b", "c"))
    worker = Worker()
    worker.retry(worker.take(run_id, "a"))
    claimed = worker.take(run_id, "a")
    journal.advance(2)
    following = worker.complete_and_claim(claimed, '"of a"').claimed

    assert following is not None
    live = journal.live(run_id)
    assert (live["state"], live["step_key"], live["prev_key"]) == ("running", "b", "a")
    assert (live["attempt"], live["token"], live["failures"]) == (1, 3, 0)
    assert (live["owner"], following.token, following.attempt) == (following.owner, 3, 1)
    assert following.owner != claimed.owner
    nonce = following.owner.rpartition(".")[2]
    # What was known before is what the journal has.
    assert steps.claimed_by(run_id, "0", carrier=worker.carrier(), nonce=nonce) == following
    now = journal.one("SELECT onward_now()")
    assert (live["lease_expires_at"] - now).total_seconds() == settings().lease_ttl
    assert live["claimed_at"] == following.claimed_at == now
    assert (following.step_key, following.piped, following.next_key) == ("b", '"of a"', "c")
    step = journal.step(run_id, "a")
    assert step is not None
    assert (step["output"], step["token"], step["attempt"]) == ('"of a"', 2, 2)
    worker.complete(following)
    assert worker.do(run_id, "c").finished


@pytest.mark.parametrize("hold", ["cancel", "failed"])
def test_a_held_run_gets_its_result_and_goes_no_further(journal: Journal, hold: str) -> None:
    run_id = submit_run(row_of("a", "b"))
    claimed = Worker().take(run_id, "a")
    journal.look.execute("UPDATE run SET hold = %s", (hold,))
    assert Worker().complete_and_claim(claimed).claimed is None
    assert journal.states(run_id) == {"a": "completed", "b": "pending"}
    live = journal.live(run_id)
    assert (live["attempt"], live["token"], live["owner"]) == (0, 1, None)
    assert live["publications"] == 0
    assert Worker().claim(run_id, "b") is None


def test_a_late_result_is_evidence_and_changes_no_step(journal: Journal) -> None:
    journal.freeze()
    run_id = submit_run(row_of("a", "b"))
    slow = Worker("worker-slow", "start-slow")
    late = slow.take(run_id, "a")
    assert journal.lose() == 1
    journal.make(run_id, state="pending")
    quick = Worker("worker-quick", "start-quick").take(run_id, "a")
    before = journal.image()
    with pytest.raises(LeaseLost, match="kept as evidence"):
        slow.complete(late, '"late"')
    assert journal.image() == before

    for _ in range(2):
        steps.keep_evidence(late, output(late, '"late"'), worker="worker-slow")
    assert journal.attempts(run_id) == [("a", 1, "expired"), ("a", 1, "superseded")]
    (kept,) = journal.rows("SELECT * FROM attempt WHERE outcome = 'superseded'")
    assert (kept["output"], kept["owner"], kept["worker"]) == ('"late"', late.owner, "worker-slow")
    assert journal.step(run_id, "a") is None
    Worker("worker-quick").complete(quick, '"quick"')
    assert json.loads((journal.step(run_id, "a") or {})["output"]) == "quick"
