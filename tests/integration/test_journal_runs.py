"""Submitting, cancelling, sending back and settling: once each, and each says what it found."""

import json
from typing import Any, cast

import pytest

from models.errors import InvalidIdentifier
from models.journal import rescue, runs, submitting
from models.journal.errors import Refused, SubmissionConflict, UnknownRun
from models.journal.runs import Cancellation
from models.settings import settings
from models.states import BlockReason
from tasks import group
from tests.support.journal import Journal, Worker, at, blind, paced, row_of, submit, submit_run
from tests.support.threads import at_once


def test_a_submission_records_the_run_its_plan_and_its_first_branch(journal: Journal) -> None:
    journal.freeze()
    submitted = submit(
        at("a") | group(at("m0", blind), at("m1", paced), tolerant=True) | at("join"),
        given='{"uri":"x"}',
        submission_key="contract-17",
        priority=7,
    )
    run_id, run = submitted.run_id, journal.run(submitted.run_id)
    assert submitted.created
    assert (run["state"], run["hold"], run["step_count"]) == ("pending", None, 4)
    assert (run["input"], run["submission_key"]) == ('{"uri":"x"}', "contract-17")
    assert (run["workflow"], run["version"], run["priority"]) == ("toy", "1", 7)
    digests = (run["interface_digest"], run["code_digest"], run["config_digest"])
    assert digests == ("interface", "code", "config")

    live = journal.live(run_id)
    assert (live["step_key"], live["state"], live["priority"]) == ("a", "pending", 7)
    assert journal.branches(run_id) == {"0"}
    plan = journal.rows("SELECT * FROM plan ORDER BY position")
    assert [(row["step_key"], row["branch"], row["joins"]) for row in plan] == [
        ("a", "0", None), ("m0", "0/1.0", "join"), ("m1", "0/1.1", "join"), ("join", "0", None),
    ]  # fmt: skip
    assert (plan[0]["fork"], plan[0]["next_key"]) == (["m0", "m1"], "join")
    assert (plan[1]["untracked"], plan[2]["rate_limit"]) == (True, 10.0)
    assert (plan[2]["throttle"], plan[3]["tolerant"], plan[3]["input"]) == (
        "toy.paced", True, "gather",
    )  # fmt: skip
    assert json.loads(plan[0]["arguments"]) == {"args": [], "kwargs": {}}

    (wakeup,) = submitted.wakeups
    assert (wakeup.run_id, wakeup.branch, wakeup.step_key) == (run_id, "0", "a")
    waited = live["publish_at"] - journal.one("SELECT onward_now()")
    assert (live["publications"], waited.total_seconds()) == (1, settings().publish_grace)


def test_a_run_may_begin_with_a_group(journal: Journal) -> None:
    submitted = submit(group(at("m0"), at("m1")) | at("join"))
    assert journal.branches(submitted.run_id) == {"0", "0/1.0", "0/1.1"}
    assert [wakeup.step_key for wakeup in submitted.wakeups] == ["m0", "m1"]
    assert Worker().claim(submitted.run_id, "join") is None
    for number in range(2):
        Worker().do(submitted.run_id, f"m{number}", branch=f"0/1.{number}")
    assert Worker().do(submitted.run_id, "join").finished


@pytest.mark.parametrize("by", [{"submission_key": "key-1"}, {"run_id": "run-mine"}])
def test_the_same_key_and_input_give_the_same_run(journal: Journal, by: dict[str, Any]) -> None:
    first = submit(row_of("a"), **by)
    before = journal.image()
    again = submit(row_of("a", "b"), **by)
    assert (again.run_id, again.created, again.wakeups) == (first.run_id, False, ())
    assert journal.image() == before


@pytest.mark.parametrize("by", [{"submission_key": "key-1"}, {"run_id": "run-mine"}])
def test_another_input_under_the_same_key_is_refused(journal: Journal, by: dict[str, Any]) -> None:
    first = submit(row_of("a"), **by)
    before = journal.image()
    with pytest.raises(SubmissionConflict, match=f"belongs to run {first.run_id}"):
        submit(row_of("a"), given='{"other":1}', **by)
    assert journal.image() == before


def test_many_submissions_at_once_make_one_run(journal: Journal) -> None:
    made = at_once(*(lambda: submit(row_of("a"), submission_key="key-1") for _ in range(6)))
    assert sorted(one.created for one in made) == [False] * 5 + [True]
    assert len({one.run_id for one in made}) == 1
    assert journal.one("SELECT count(*) FROM live") == journal.one("SELECT count(*) FROM run") == 1


@pytest.mark.parametrize("field", ["run_id", "submission_key", "batch_id"])
def test_what_identifies_things_is_checked(journal: Journal, field: str) -> None:
    with pytest.raises(InvalidIdentifier, match=field):
        submit(row_of("a"), **cast("dict[str, Any]", {field: "a\x00b"}))
    assert journal.one("SELECT count(*) FROM run") == 0


def test_a_batch_may_be_named_again(journal: Journal) -> None:
    submitting.create_batch("batch-1", "first")
    submitting.create_batch("batch-1", "second")
    assert journal.rows("SELECT label FROM batch") == [{"label": "first"}]
    with pytest.raises(InvalidIdentifier):
        submitting.create_batch(" batch", "")


def cancel(run_id: str, number: int = 1) -> Cancellation:
    return runs.cancel(
        run_id, by=f"user-{number}", reason="wrong file", cancellation_id=f"c-{number}"
    )


def test_a_run_is_cancelled_once_and_asking_again_returns_the_same(journal: Journal) -> None:
    run_id, other = submit_run(row_of("a")), submit_run(row_of("a"))
    assert cancel(run_id) == Cancellation("c-1", "user-1", "wrong file", first=True)
    before = journal.image()
    assert cancel(run_id, 2) == Cancellation("c-1", "user-1", "wrong file", first=False)
    assert journal.image() == before
    assert journal.run(run_id)["hold"] == "cancel"
    assert journal.events(run_id) == ["run_cancel_requested"]
    assert journal.run(other)["hold"] is None


def test_of_many_cancellations_one_counts(journal: Journal) -> None:
    run_id = submit_run(row_of("a"))
    answers = at_once(*(lambda n=n: cancel(run_id, n) for n in range(6)))
    assert [answer.first for answer in answers].count(True) == 1
    assert len({answer.cancellation_id for answer in answers}) == 1
    assert journal.events(run_id) == ["run_cancel_requested"]


def test_there_is_nothing_to_cancel_of_a_completed_run(journal: Journal) -> None:
    run_id = submit_run(row_of("a"))
    Worker().do(run_id, "a")
    before = journal.image()
    with pytest.raises(Refused, match="is completed"):
        cancel(run_id)
    with pytest.raises(UnknownRun, match="run-none"):
        cancel("run-none")
    assert journal.image() == before


def test_a_failed_run_can_still_be_cancelled(journal: Journal) -> None:
    run_id = submit_run(row_of("a"))
    Worker().fail(Worker().take(run_id, "a"))
    assert cancel(run_id).first
    rescue.cancel_branches(rescue.cancellable(limit=10))
    assert rescue.held_runs(limit=10) == [run_id]
    assert runs.settle(run_id) == "cancelled"
    assert rescue.held_runs(limit=10) == []
    assert journal.states(run_id) == {"a": "cancelled"}


def test_a_run_blocked_on_an_untracked_step_can_be_cancelled(journal: Journal) -> None:
    journal.freeze()
    run_id = submit_run(at("a", blind))
    Worker().take(run_id, "a")
    journal.lose()
    rescue.block(journal.ref(run_id), BlockReason.UNTRACKED_STEP, detail="look", failed=False)
    assert rescue.unknown_steps(limit=10) == []
    cancel(run_id)
    (stale,) = rescue.unknown_steps(limit=10)
    assert stale.cancel_requested
    rescue.cancel_branches([journal.ref(run_id)])
    assert runs.settle(run_id) == "cancelled"


def test_sending_back_pardons_what_was_counted(journal: Journal) -> None:
    journal.freeze()
    run_id = submit_run(row_of("a", "b"))
    worker = Worker()
    worker.retry(worker.take(run_id, "a"))
    worker.fail(worker.take(run_id, "a"))
    journal.make(run_id, crashes=1, lost=4)
    journal.advance(3)

    assert runs.send_back(run_id, by="ada") == ["a"]

    live, run, now = journal.live(run_id), journal.run(run_id), journal.one("SELECT onward_now()")
    assert (live["state"], live["failures"], live["crashes"], live["lost"]) == ("pending", 2, 1, 4)
    pardoned = [live[f"pardoned_{name}"] for name in ("failures", "crashes", "lost")]
    assert (pardoned, live["attempt"], live["token"]) == ([2, 1, 4], 2, 2)
    assert (live["due_at"], live["publish_at"], live["publications"]) == (now, now, 0)
    assert (run["state"], run["hold"], run["reason"], run["detail"], run["finished_at"]) == (
        "running", None, None, None, None,
    )  # fmt: skip
    assert journal.events(run_id)[-1] == "step_sent_back"
    worker.do(run_id, "a")
    assert worker.do(run_id, "b").finished


def test_every_stopped_step_is_sent_back_and_no_other(journal: Journal) -> None:
    run_id = submit_run(at("a") | group(*(at(f"m{n}") for n in range(4))) | at("join"))
    worker = Worker()
    worker.do(run_id, "a")
    claims = [worker.take(run_id, f"m{n}", f"0/1.{n}") for n in range(3)]
    worker.fail(claims[0])
    worker.fail(claims[1])
    worker.complete(claims[2])
    runs.settle(run_id)
    untouched = journal.live(run_id), journal.live(run_id, "0/1.3")
    assert sorted(runs.send_back(run_id, by="ada")) == ["m0", "m1"]
    assert (journal.live(run_id), journal.live(run_id, "0/1.3")) == untouched


def test_each_limit_starts_anew_and_by_its_own_count(journal: Journal) -> None:
    run_id = submit_run(at("a"))
    worker = Worker()
    worker.fail(worker.take(run_id, "a"))
    journal.make(run_id, crashes=1, lost=4)
    runs.send_back(run_id, by="ada")
    worker.take(run_id, "a")
    journal.make(run_id, crashes=2)
    journal.lose()
    (stale,) = rescue.unknown_steps(limit=10)
    assert (stale.crashes, stale.lost) == (1, 1), "one death and one silence since it was sent back"


def test_a_cancelled_run_is_not_sent_back(journal: Journal) -> None:
    run_id = submit_run(at("a"))
    worker = Worker()
    worker.fail(worker.take(run_id, "a"))
    runs.cancel(run_id, by="ada", reason="enough", cancellation_id="cancel-1")
    with pytest.raises(Refused, match="was cancelled, which is for good"):
        runs.send_back(run_id, by="bob")
    assert (journal.live(run_id)["state"], journal.run(run_id)["hold"]) == ("failed", "cancel")


def test_what_people_write_is_kept_printable(journal: Journal) -> None:
    run_id = submit_run(at("a"))
    cancellation = runs.cancel(
        run_id, by="a\x00da", reason="no\x00 \ud800" + "x" * 5000, cancellation_id="cancel-1"
    )
    assert "\x00" not in cancellation.reason
    assert len(cancellation.reason) <= runs.MAX_PROSE
    assert journal.run(run_id)["cancelled_by"] == cancellation.cancelled_by == "a\\x00da"


def test_a_blocked_step_is_sent_back(journal: Journal) -> None:
    journal.freeze()
    run_id = submit_run(at("a", blind))
    Worker().take(run_id, "a")
    journal.lose()
    rescue.block(journal.ref(run_id), BlockReason.UNTRACKED_STEP, detail="look", failed=False)
    assert journal.run(run_id)["state"] == "blocked"
    assert runs.send_back(run_id, by="ada") == ["a"]
    live = journal.live(run_id)
    assert (live["state"], live["block_reason"], live["pardoned_lost"]) == ("pending", None, 1)
    assert journal.run(run_id)["state"] == "running"


def test_a_run_whose_first_step_never_started_is_pending_again(journal: Journal) -> None:
    run_id = submit_run(row_of("a"))
    rescue.block(journal.ref(run_id), BlockReason.NO_WORKER, detail="none", failed=False)
    runs.send_back(run_id, by="ada")
    assert journal.run(run_id)["state"] == "pending"


def test_nothing_is_sent_back_where_nothing_stopped(journal: Journal) -> None:
    run_id = submit_run(at("a") | group(at("m0"), at("m1")) | at("join"))
    worker = Worker()
    worker.do(run_id, "a")
    running = worker.take(run_id, "m1", "0/1.1")
    worker.fail(worker.take(run_id, "m0", "0/1.0"))
    before = journal.image()
    with pytest.raises(
        Refused, match="others still run"
    ):  # held, but its sibling is still in the air
        runs.send_back(run_id, by="ada")
    with pytest.raises(UnknownRun):
        runs.send_back("run-none", by="ada")
    assert journal.image() == before
    worker.complete(running)


@pytest.mark.parametrize("hold", ["failed", "cancel"])
@pytest.mark.parametrize("state", ["running", "waiting", "unknown"])
def test_a_run_is_not_settled_while_something_is_in_the_air(
    journal: Journal, hold: str, state: str
) -> None:
    run_id = submit_run(row_of("a"))
    journal.look.execute("UPDATE run SET hold = %s", (hold,))
    leased = {"owner": "x.y", "lease_expires_at": "9999-01-01Z"} if state == "running" else {}
    journal.make(run_id, state=state, **leased)
    before = journal.image()
    assert runs.settle(run_id) is None
    assert journal.image() == before


@pytest.mark.parametrize("state", ["pending", "failed"])
def test_a_cancelled_run_is_not_settled_before_its_branches_have_ended(
    journal: Journal, state: str
) -> None:
    run_id = submit_run(row_of("a"))
    cancel(run_id)
    journal.make(run_id, state=state)
    assert runs.settle(run_id) is None
    rescue.cancel_branches([journal.ref(run_id)])
    assert runs.settle(run_id) == "cancelled"
    assert runs.settle(run_id) is None
    assert journal.events(run_id) == ["run_cancel_requested", "run_cancelled"]


def test_a_run_that_nobody_holds_is_not_settled(journal: Journal) -> None:
    run_id = submit_run(row_of("a"))
    before = journal.image()
    assert runs.settle(run_id) is None
    assert journal.image() == before


def test_many_settle_at_once_and_one_does(journal: Journal) -> None:
    run_id = submit_run(row_of("a"))
    cancel(run_id)
    rescue.cancel_branches([journal.ref(run_id)])
    answers = at_once(*(lambda: runs.settle(run_id) for _ in range(5)))
    assert sorted(filter(None, answers)) == ["cancelled"]
    assert journal.events(run_id).count("run_cancelled") == 1
