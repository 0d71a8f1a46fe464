"""What goes on after a person has said what became of an effect: conflicts, undos, retries, look-ups."""

from collections.abc import Callable
from typing import Any

import pytest

from models.journal import rescue, resolving, runs
from models.journal.effect_values import Conflict, Exhausted, Granted
from models.journal.errors import Refused
from models.journal.resolving import Resolved
from models.journal.values import Claimed
from models.states import BlockReason
from tests.support.deciding import (
    LOOK_WHO,
    OTHER,
    abandon,
    absent,
    found,
    in_doubt,
    needs_person,
    next_attempt,
)
from tests.support.intents import (
    KEY,
    QUERYABLE,
    asking,
    at_work,
    effect,
    intend,
    put,
    send,
)
from tests.support.intents import (
    stories as told,
)
from tests.support.journal import Journal, Worker

EVERY = pytest.mark.parametrize("resolve", [found, absent, abandon])


def conflict(journal: Journal) -> Claimed:
    """A step that was stopped because it asks for another request under a used key."""
    claimed = in_doubt()
    claimed = next_attempt(claimed)
    assert isinstance(intend(claimed, OTHER), Conflict)
    Worker().interrupt(claimed)
    rescue.block(
        journal.ref(claimed.run_id), BlockReason.IDEMPOTENCY_CONFLICT, detail="another request", failed=True
    )  # fmt: skip
    return claimed


def test_a_freed_key_sends_its_stopped_step_back(journal: Journal) -> None:
    claimed = conflict(journal)
    absent()
    live, run = journal.live(claimed.run_id), journal.run(claimed.run_id)
    assert (live["state"], live["block_reason"]) == ("pending", None)
    assert (run["state"], run["reason"]) == ("running", None)
    assert "step_sent_back" in journal.events(claimed.run_id)
    again = Worker("worker-3", "start-3").take(claimed.run_id, "a")
    assert isinstance(intend(again, OTHER), Granted)


@pytest.mark.parametrize("resolve", [found, abandon])
def test_a_conflict_with_what_happened_stays(
    journal: Journal, resolve: Callable[[], Resolved]
) -> None:
    claimed = conflict(journal)
    resolve()
    assert journal.live(claimed.run_id)["state"] == "failed"
    assert journal.run(claimed.run_id)["reason"] == "idempotency_conflict"


def test_an_exhausted_effect_is_pardoned(journal: Journal) -> None:
    claimed = in_doubt()
    put(journal, state="absent", sends=50)
    claimed = next_attempt(claimed)
    assert isinstance(intend(claimed), Exhausted)
    absent()
    assert isinstance(intend(claimed), Granted)


def test_what_waits_for_a_person_may_be_asked_again(journal: Journal) -> None:
    claimed = needs_person(journal)
    put(journal, failed_checks=20, looks=1, due_at="2100-01-01Z")
    assert resolving.ask_again(claimed.run_id, by="alice") == {KEY: "a"}
    row = effect(journal)
    assert (row["person"], row["failed_checks"], row["looks"]) == (None, 0, 0)
    assert row["due_at"] <= journal.one("SELECT onward_now()")
    assert journal.live(claimed.run_id)["block_reason"] is None
    assert journal.run(claimed.run_id)["state"] == "running"
    assert resolving.ask_again(claimed.run_id, by="alice") == {}


def test_what_cannot_be_asked_stays_with_the_person(journal: Journal) -> None:
    claimed = needs_person(journal)
    put(journal, effect_class="once")
    before = journal.image()
    assert resolving.ask_again(claimed.run_id, by="alice") == {}
    assert journal.image() == before


UNDO = "original::undo"


def undoing(journal: Journal, **compensation: Any) -> Claimed:
    """An undo in the state in which the doer of its compensation left it."""
    claimed = at_work()
    send(claimed, asking(UNDO, QUERYABLE, undoes="original"))
    Worker().complete(claimed)
    journal.look.execute(
        "INSERT INTO compensation (run_id, state, run_state, requested_by, queue, doer, doer_until, due_at)"
        " VALUES (%(run_id)s, 'undoing', 'completed', 'bob', 'q', %(doer)s, %(doer_until)s, '2100-01-01Z')",
        {"run_id": claimed.run_id, "doer": "doer-1", "doer_until": None, **compensation},
    )
    return claimed


@EVERY
def test_an_undo_is_its_doers_while_one_is_at_it(
    journal: Journal, resolve: Callable[[str], Resolved]
) -> None:
    undoing(journal, doer_until="2100-01-01Z")
    with pytest.raises(Refused, match="is being sent"):
        resolve(UNDO)


@EVERY
def test_an_undo_can_be_resolved_and_its_compensation_goes_on(
    journal: Journal, resolve: Callable[[str], Resolved]
) -> None:
    claimed = undoing(journal, doer_until="2000-01-01Z")
    resolve(UNDO)
    (row,) = journal.rows("SELECT * FROM compensation WHERE run_id = %s", claimed.run_id)
    assert row["due_at"] <= journal.one("SELECT onward_now()")


def test_a_failed_step_stays_failed_and_loses_the_block(journal: Journal) -> None:
    claimed = needs_person(journal)
    journal.make(claimed.run_id, state="failed")
    found()
    live = journal.live(claimed.run_id)
    assert (live["state"], live["block_reason"]) == ("failed", None)
    assert journal.run(claimed.run_id)["state"] == "running"


def test_what_a_finished_step_does_not_know_of_is_reported(journal: Journal) -> None:
    claimed = at_work()
    send(claimed)
    put(journal, state="unknown")
    Worker().complete(claimed)
    found()
    assert ("effect_not_asked_again", "") in told(journal, claimed.run_id)


def test_a_result_that_could_not_be_recorded_sends_its_step_back(journal: Journal) -> None:
    claimed = needs_person(journal)
    journal.make(claimed.run_id, state="failed", block_reason="unserialisable_output")
    journal.look.execute("UPDATE run SET reason = 'unserialisable_output'")
    found()
    assert journal.live(claimed.run_id)["state"] == "pending"
    assert journal.run(claimed.run_id)["state"] == "running"


def test_a_retry_pardons_what_never_arrived(journal: Journal) -> None:
    claimed = next_attempt(in_doubt())
    put(journal, state="absent", sends=50)
    assert isinstance(intend(claimed), Exhausted)
    Worker().fail(claimed)
    runs.send_back(claimed.run_id, by="alice")
    again = Worker("worker-3", "start-3").take(claimed.run_id, "a")
    assert intend(again) == Granted(51)


@pytest.mark.parametrize("reason", ["unknown_effect", "journal_rewound"])
def test_a_retry_does_not_answer_for_a_person(journal: Journal, reason: str) -> None:
    claimed = needs_person(journal)
    journal.make(claimed.run_id, block_reason=reason)
    with pytest.raises(Refused):
        runs.send_back(claimed.run_id, by="alice")
    assert journal.live(claimed.run_id)["block_reason"] == reason


def test_a_retry_of_one_branch_leaves_the_block_of_another_to_be_seen(journal: Journal) -> None:
    claimed = needs_person(journal)
    journal.look.execute(
        "INSERT INTO live (run_id, branch, step_key, queue, state, block_reason, error)"
        " VALUES (%s, '0/1.0', 'b', 'q', 'failed', 'poison_step', 'it kills')",
        (claimed.run_id,),
    )
    assert runs.send_back(claimed.run_id, by="alice") == ["b"]
    run = journal.run(claimed.run_id)
    assert (run["state"], run["reason"]) == ("blocked", "unknown_effect")
    assert run["detail"] == f"{KEY}: {LOOK_WHO}"
    absent()
    run = journal.run(claimed.run_id)
    assert (run["state"], run["reason"], run["detail"]) == ("running", None, None)


def test_an_undo_that_did_not_happen_does_not_send_a_conflicting_step_back(
    journal: Journal,
) -> None:
    claimed = undoing(journal, doer_until="2000-01-01Z")
    journal.look.execute(
        "INSERT INTO live (run_id, branch, step_key, queue, state, block_reason, error)"
        " VALUES (%s, '0', 'a', 'q', 'failed', 'idempotency_conflict', 'another request')"
        " ON CONFLICT (run_id, branch) DO UPDATE SET step_key = 'a', state = 'failed',"
        " block_reason = excluded.block_reason",
        (claimed.run_id,),
    )
    absent(UNDO)
    assert journal.live(claimed.run_id)["state"] == "failed"


def test_what_is_asked_of_a_person_again_may_be_absent_again(journal: Journal) -> None:
    """An undo that was freed before, and then given up, is as much a person's as at first."""
    undoing(journal, doer_until="2000-01-01Z")
    absent(UNDO)
    with pytest.raises(Refused, match="its key is free"):
        absent(UNDO)
    put(journal, key=UNDO, person="5 goes at it ended their process")
    absent(UNDO)
    assert effect(journal, UNDO)["person"] is None


def test_a_compensated_run_is_said_to_be_over(journal: Journal) -> None:
    claimed = at_work()
    Worker().fail(claimed)
    journal.look.execute("UPDATE run SET state = 'compensated', hold = 'compensate'")
    with pytest.raises(Refused, match="was undone, which is for good: submit a new run"):
        runs.send_back(claimed.run_id, by="alice")
