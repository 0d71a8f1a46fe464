"""Asking for a compensation: for which runs, how often, beside what; and what is refused meanwhile."""

from collections.abc import Callable, Iterator

import pytest

from models.journal import compensations, effects, publish, rescue, resolving, runs
from models.journal.compensations import cancel_and_request, request
from models.journal.effect_values import Withheld
from models.journal.errors import Refused, UnknownRun
from models.journal.values import BranchRef, Claimed
from models.states import BlockReason
from tasks import group
from tests.support.intents import SENDER, asking
from tests.support.journal import Journal, at
from tests.support.shelf import SHELF, PutByKey, Weigh, did, failed_run
from tests.support.threads import at_once
from tests.support.toys import Worker, row_of, submit_run

BY = {"by": "ada", "reason": "wrong customer"}


@pytest.fixture(autouse=True)
def shelf() -> Iterator[None]:
    SHELF.clear()
    yield
    SHELF.clear()


def row(journal: Journal, run_id: str) -> dict[str, object]:
    (found,) = journal.rows("SELECT * FROM compensation WHERE run_id = %s", run_id)
    return found


def block(run_id: str) -> None:
    """Stop an unknown step for a person."""
    (step,) = rescue.unknown_steps(limit=10, run_id=run_id)
    ref = BranchRef(run_id, step.branch, step.revision)
    assert rescue.block(ref, BlockReason.POISON_STEP, detail="it kills", failed=True)


def test_what_is_asked_for_and_by_whom_is_kept(journal: Journal) -> None:
    run_id, _ = failed_run((PutByKey(), "one"))
    told = request(run_id, **BY)
    assert (told.state, told.changed) == ("undoing", True)
    asked = row(journal, run_id)
    assert (asked["requested_by"], asked["reason"], asked["only_keys"]) == (
        "ada",
        BY["reason"],
        None,
    )
    assert (asked["run_state"], asked["run_reason"]) == ("failed", "ValueError")
    run = journal.run(run_id)
    assert (run["state"], run["hold"], run["finished_at"]) == ("compensating", "compensate", None)
    assert run["reason"] == "ValueError"


def test_asking_twice_is_asking_once(journal: Journal) -> None:
    run_id, _ = failed_run((PutByKey(), "one"))
    answers = at_once(*(lambda: request(run_id, **BY) for _ in range(5)))
    assert sorted(answer.changed for answer in answers) == [False] * 4 + [True]
    before = journal.image()
    assert not request(run_id, by="bob", reason="me too").changed
    assert journal.image() == before
    assert journal.events(run_id).count("compensation_requested") == 1


@pytest.mark.parametrize("state", ["pending", "running", "completed"])
def test_runs_that_are_not_at_rest_or_stand_are_refused_with_the_way_out(
    journal: Journal, state: str
) -> None:
    run_id = submit_run(row_of("a"))
    worker = Worker()
    if state != "pending":
        claimed = worker.take(run_id, "a")
    if state == "completed":
        worker.complete(claimed)
    before = journal.image()
    with pytest.raises(Refused, match=r"cancel it first|--only KEY") as refused:
        request(run_id, **BY)
    assert run_id in str(refused.value)
    assert journal.image() == before
    with pytest.raises(UnknownRun):
        request("run-none", **BY)


def test_a_blocked_and_a_cancelled_run_can_be_undone(journal: Journal) -> None:
    journal.freeze()
    worker = Worker()
    blocked, cancelled = (submit_run(row_of("a", "b")) for _ in range(2))
    worker.take(blocked, "a")
    assert journal.lose() == 1
    block(blocked)
    runs.cancel(cancelled, by="bob", reason="enough", cancellation_id="c-1")
    rescue.cancel_branches(rescue.cancellable(limit=10))
    assert runs.settle(cancelled) == "cancelled"
    for run_id in (blocked, cancelled):
        assert request(run_id, **BY).changed
    assert row(journal, blocked)["run_reason"] == "poison_step"
    run = journal.run(cancelled)
    assert (run["cancelled_by"], run["cancel_reason"], run["cancellation_id"]) == (
        "bob",
        "enough",
        "c-1",
    )
    assert not runs.cancel(cancelled, by="ada", reason="again", cancellation_id="c-2").first


def test_a_run_is_cancelled_and_undone_in_one_go(journal: Journal) -> None:
    run_id = submit_run(at("a") | group(at("m0"), at("m1")) | at("z"))
    worker = Worker()
    worker.do(run_id, "a")
    in_air = worker.take(run_id, "m0", "0/1.0")
    cancelled, asked = cancel_and_request(run_id, cancellation_id="c-1", **BY)
    assert (cancelled.first, asked.changed) == (True, True)
    assert worker.claim(run_id, "m1", "0/1.1") is None, "nothing is claimed any more"
    assert compensations.take_due(limit=10) == [], "a step is still in the air"
    assert isinstance(effects.intend(asking(), in_air, SENDER), Withheld)
    worker.complete(in_air)
    rescue.cancel_branches(rescue.cancellable(limit=10))
    assert [one for one, _ in compensations.take_due(limit=10)] == [run_id]
    assert compensations.take_due(limit=10) == [], "handed out once"
    again = cancel_and_request(run_id, by="bob", reason="me too", cancellation_id="c-2")
    assert (again[0].cancellation_id, again[0].first, again[1].changed) == ("c-1", False, False)
    kinds = journal.events(run_id)
    assert kinds.index("run_cancel_requested") < kinds.index("compensation_requested")


def test_a_run_being_cancelled_can_still_be_asked_to_be_undone(journal: Journal) -> None:
    run_id = submit_run(row_of("a", "b"))
    Worker().take(run_id, "a")
    runs.cancel(run_id, by="bob", reason="enough", cancellation_id="c-1")
    assert request(run_id, **BY).changed
    assert runs.settle(run_id) is None
    assert journal.run(run_id)["state"] == "compensating"


def test_a_last_step_that_ends_after_all_completes_no_run_that_is_being_undone(
    journal: Journal,
) -> None:
    run_id = submit_run(row_of("a"))
    worker = Worker()
    claimed = worker.take(run_id, "a")
    cancel_and_request(run_id, cancellation_id="c-1", **BY)
    worker.complete(claimed, '"done"')
    run = journal.run(run_id)
    assert (run["state"], run["result_key"], run["finished_at"]) == ("compensating", None, None)
    assert journal.states(run_id) == {"a": "completed"}, "its result is kept"


def test_a_workflow_may_ask_for_it_on_failure(journal: Journal) -> None:
    run_id, _ = failed_run((PutByKey(), "one"), on_failure="compensate")
    run = journal.run(run_id)
    assert (run["state"], run["hold"], run["finished_at"]) == ("compensating", "compensate", None)
    assert "no such clause" in run["detail"]
    asked = row(journal, run_id)
    assert (asked["requested_by"], asked["run_state"]) == ("onward", "failed")
    kinds = journal.events(run_id)
    assert kinds.index("run_failed") < kinds.index("compensation_requested")
    assert runs.settle(run_id) is None
    assert rescue.held_runs(limit=10) == []


def test_on_failure_waits_for_running_siblings(journal: Journal) -> None:
    run_id = submit_run(group(at("m0"), at("m1")) | at("z"), on_failure="compensate")
    worker = Worker()
    running = worker.take(run_id, "m0", "0/1.0")
    worker.fail(worker.take(run_id, "m1", "0/1.1"))
    assert journal.run(run_id)["state"] == "running"
    worker.complete(running)
    assert runs.settle(run_id) == "compensating"


def test_on_failure_says_nothing_about_a_cancelled_run(journal: Journal) -> None:
    run_id = submit_run(row_of("a"), on_failure="compensate")
    runs.cancel(run_id, by="ada", reason="no", cancellation_id="c-1")
    rescue.cancel_branches(rescue.cancellable(limit=10))
    assert runs.settle(run_id) == "cancelled"
    assert journal.rows("SELECT 1 FROM compensation") == []
    assert journal.run(run_id)["finished_at"] is not None


def test_a_run_that_is_being_undone_goes_on_for_nobody(journal: Journal) -> None:
    run_id, _ = failed_run((PutByKey(), "one"))
    request(run_id, **BY)
    before = journal.image()
    with pytest.raises(Refused, match="runs compensate"):
        runs.send_back(run_id, by="ada")
    with pytest.raises(Refused, match="nothing left to cancel"):
        runs.cancel(run_id, by="ada", reason="no", cancellation_id="c-1")
    assert publish.take_due(limit=10, run_id=run_id) == []
    assert runs.settle(run_id) is None
    assert journal.image() == before


def pure(claimed: Claimed) -> str:
    weigh = Weigh()
    asked = weigh.asked("x")
    intent = asking("run:pure", weigh.promise, request=asked.recorded, tool=weigh.name)
    effects.record_pure(intent, claimed, SENDER, result='"x"')
    return "run:pure"


def refused(claimed: Claimed) -> str:
    effects.intend(asking("run:refused"), claimed, SENDER)
    effects.refuse("run:refused", claimed, error="no")
    return "run:refused"


def given_up(claimed: Claimed) -> str:
    effects.intend(asking("run:lost"), claimed, SENDER)
    effects.doubt("run:lost", claimed, error="cut", call_over=True)
    resolving.abandon("run:lost", by="ada", reason="too long ago")
    return "run:lost"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda _: "run:none", "is no effect"), (pure, "changed nothing"), (refused, "did not happen"),
        (given_up, "given up by a person"),
    ],
    ids=["none", "pure", "refused", "given up"],
)  # fmt: skip
def test_keys_of_which_nothing_can_be_undone_are_refused(
    journal: Journal, make: Callable[[Claimed], str], words: str
) -> None:
    run_id = submit_run(row_of("a", "b"))
    worker = Worker()
    claimed = worker.take(run_id, "a")
    fine, wrong = did(claimed, PutByKey(), "x"), make(claimed)
    worker.fail(claimed)
    before = journal.image()
    with pytest.raises(Refused, match=words) as problem:
        request(run_id, only=[fine, wrong], **BY)
    assert wrong in str(problem.value)
    assert fine not in str(problem.value)
    assert journal.image() == before


def test_single_effects_add_up_and_all_includes_them(journal: Journal) -> None:
    run_id, keys = failed_run((PutByKey(), "one"), (PutByKey(), "two"), (PutByKey(), "three"))
    request(run_id, only=keys[:1], **BY)
    assert not request(run_id, only=keys[:1], **BY).changed
    request(run_id, only=keys[1:2], **BY)
    assert sorted(row(journal, run_id)["only_keys"]) == sorted(keys[:2])  # type: ignore[call-overload]
    assert journal.run(run_id)["state"] == "failed"
    assert request(run_id, **BY).changed
    assert row(journal, run_id)["only_keys"] is None
    assert journal.run(run_id)["state"] == "compensating"
    before = journal.image()
    assert not request(run_id, only=keys[2:], **BY).changed, "all of it is being undone already"
    assert journal.image() == before


def test_single_effects_and_all_at_the_same_moment_end_as_all(journal: Journal) -> None:
    for _ in range(10):
        run_id, keys = failed_run((PutByKey(), "one"))
        at_once(
            lambda run_id=run_id, keys=keys: request(run_id, only=keys, **BY),  # type: ignore[misc]
            lambda run_id=run_id: request(run_id, **BY),  # type: ignore[misc]
        )
        assert row(journal, run_id)["only_keys"] is None
        assert journal.run(run_id)["state"] == "compensating"
