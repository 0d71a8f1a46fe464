"""What the doer of a compensation may write: as long as it holds it, and nothing too early."""

from collections.abc import Iterator

import pytest

from models.ids import undo_key
from models.journal import (
    compensations,
    effects,
    lookups,
    rescue,
    resolving,
    runs,
    undoing,
)
from models.journal.compensations import request
from models.journal.effect_values import GivenUp, Recorded
from models.journal.errors import LeaseLost, Refused
from models.journal.values import BranchRef
from models.states import BlockReason
from tasks import group
from tests.support.intents import SENDER, asking
from tests.support.journal import Journal, at
from tests.support.shelf import SHELF, Mail, PutByKey, ask, did, failed_run
from tests.support.threads import at_once
from tests.support.toys import Worker, row_of, submit_run

BY = {"by": "ada", "reason": "wrong customer"}


@pytest.fixture(autouse=True)
def shelf() -> Iterator[None]:
    SHELF.clear()
    yield
    SHELF.clear()


def test_only_one_doer_begins_and_the_next_when_its_lease_is_over(journal: Journal) -> None:
    journal.freeze()
    run_id, _ = failed_run((PutByKey(), "one"))
    request(run_id, **BY)
    begun = at_once(*(lambda: undoing.begin(run_id, start_id="start-1") for _ in range(5)))
    (first,) = [doing for doing in begun if doing is not None]
    assert undoing.begin(run_id, start_id="start-2") is None
    journal.advance(25)
    assert undoing.renew(first)
    journal.advance(25)
    assert undoing.begin(run_id, start_id="start-2") is None
    journal.advance(6)
    second = undoing.begin(run_id, start_id="start-2")
    assert second is not None
    assert second.token > first.token
    assert (first.streak, second.streak, second.goes) == (1, 2, 2)
    assert not undoing.renew(first)
    before = journal.image()
    undoing.defer(first, after=0, why="late")
    assert undoing.block(first) is None
    assert not undoing.finish(first)
    assert undoing.to_undo(first) == []
    assert undoing.standstill(first) is None
    assert journal.image() == before, "a displaced doer changes nothing"


def test_a_displaced_doer_sends_nothing(journal: Journal) -> None:
    journal.freeze()
    run_id, keys = failed_run((PutByKey(), "one"))
    request(run_id, **BY)
    first = undoing.begin(run_id, start_id="start-1")
    assert first is not None
    (target,) = undoing.to_undo(first)
    undo = undoing.undo_of(target, first)
    intent = asking(undo.key, PutByKey().promise, undoes=keys[0])
    journal.advance(31)
    with pytest.raises(LeaseLost):
        undoing.intend(intent, undo, SENDER)
    undoing.give_up(undo, reason="late", worker="worker-1")
    undoing.found_undone(undo, tool_version="1", result="null", reason="late", worker="worker-1")
    assert journal.rows("SELECT 1 FROM effects WHERE undoes IS NOT NULL") == []


def test_a_doer_sends_nothing_of_a_run_that_was_taken_out_of_its_hands(journal: Journal) -> None:
    run_id, keys = failed_run((PutByKey(), "one"))
    request(run_id, **BY)
    doing = undoing.begin(run_id, start_id="start-1")
    assert doing is not None
    (target,) = undoing.to_undo(doing)
    undo = undoing.undo_of(target, doing)
    journal.look.execute("UPDATE run SET hold = NULL WHERE run_id = %s", (run_id,))
    with pytest.raises(LeaseLost):
        undoing.intend(asking(undo.key, PutByKey().promise, undoes=keys[0]), undo, SENDER)


def test_nothing_is_done_before_every_undo_is_settled_or_given_up(journal: Journal) -> None:
    run_id, _ = failed_run((PutByKey(), "one"), (Mail(), "letter"))
    request(run_id, **BY)
    rescue.cancel_branches(rescue.cancellable(limit=10))
    doing = undoing.begin(run_id, start_id="start-1")
    assert doing is not None
    assert not undoing.finish(doing)
    for target in undoing.to_undo(doing):
        undo = undoing.undo_of(target, doing)
        undoing.found_undone(undo, tool_version="1", result="null", reason="by hand", worker="w")
        assert undoing.finish(doing) == (target.tool == PutByKey.name)
    assert journal.run(run_id)["state"] == "compensated"
    with pytest.raises(Refused, match="nothing left to cancel"):
        runs.cancel(run_id, by="ada", reason="no", cancellation_id="c-1")
    assert not request(run_id, **BY).changed, "compensated is for good"


def undone_by_hand(doing: undoing.Doing) -> None:
    for target in undoing.to_undo(doing):
        undo = undoing.undo_of(target, doing)
        undoing.found_undone(undo, tool_version="1", result="null", reason="by hand", worker="w")


def test_nothing_is_done_before_the_last_branch_has_ended(journal: Journal) -> None:
    run_id, _ = failed_run((PutByKey(), "one"))
    request(run_id, **BY)
    doing = undoing.begin(run_id, start_id="start-1")
    assert doing is not None
    undone_by_hand(doing)
    assert not undoing.finish(doing)
    rescue.cancel_branches(rescue.cancellable(limit=10))
    assert undoing.finish(doing)


def test_nothing_is_done_or_handed_out_before_what_is_in_doubt_is_known(journal: Journal) -> None:
    run_id = submit_run(row_of("a"))
    worker = Worker()
    claimed = worker.take(run_id, "a")
    did(claimed, PutByKey(), "one")
    doubtful = ask(claimed, Mail(), "letter")
    effects.doubt(doubtful, claimed, error="cut", call_over=True)
    worker.complete(claimed)
    journal.look.execute(
        "UPDATE run SET state = 'failed', result_key = NULL WHERE run_id = %s", (run_id,)
    )
    request(run_id, **BY)
    assert compensations.take_due(limit=10) == []
    doing = undoing.begin(run_id, start_id="start-1")
    assert doing is not None
    assert undoing.standstill(doing) == undoing.Standstill(moving=False, in_doubt=1, for_person=0)
    undone_by_hand(doing)
    assert not undoing.finish(doing)
    resolving.absent(doubtful, by="ada", reason="not in the books")
    assert undoing.finish(doing)


def test_a_blocked_compensation_is_nobodys_failed_run(journal: Journal) -> None:
    run_id, _ = failed_run((PutByKey(), "one"))
    request(run_id, **BY)
    doing = undoing.begin(run_id, start_id="start-1")
    assert doing is not None
    (target,) = undoing.to_undo(doing)
    undoing.give_up(undoing.undo_of(target, doing), reason="at sea", worker="worker-1")
    assert "at sea" in (undoing.block(doing) or "")
    assert journal.live(run_id)["state"] == "failed"
    before = journal.image()
    with pytest.raises(Refused, match="runs compensate"):
        runs.send_back(run_id, by="ada")
    with pytest.raises(Refused, match="nothing left to cancel"):
        runs.cancel(run_id, by="ada", reason="no", cancellation_id="c-1")
    assert rescue.held_runs(limit=10) == []
    assert runs.settle(run_id) is None
    assert compensations.take_due(limit=10) == []
    assert compensations.reopen_resolved() == []
    assert journal.image() == before


def test_what_was_undone_is_not_there_to_be_built_upon(journal: Journal) -> None:
    run_id = submit_run(row_of("a", "b"))
    worker = Worker()
    claimed = worker.take(run_id, "a")
    intent = asking("run:a:1", PutByKey().promise, tool=PutByKey.name)
    effects.intend(intent, claimed, SENDER)
    effects.settle("run:a:1", claimed, result='"x"')
    worker.fail(claimed)
    request(run_id, only=["run:a:1"], **BY)
    doing = undoing.begin(run_id, start_id="start-1")
    assert doing is not None
    (target,) = undoing.to_undo(doing)
    # `runs.send_back` refuses while it goes on: this is what stands behind that refusal.
    journal.make(run_id, state="pending")
    journal.look.execute("UPDATE run SET state = 'running', hold = NULL, finished_at = NULL")
    again = worker.take(run_id, "a")
    assert isinstance(effects.intend(intent, again, SENDER), Recorded)
    undo = undoing.undo_of(target, doing)
    undoing.found_undone(undo, tool_version="1", result="null", reason="by hand", worker="w")
    met = effects.intend(intent, again, SENDER)
    assert isinstance(met, GivenUp)
    assert "undone" in met.reason
    assert undo_key("run:a:1") == undo.key


def test_a_run_does_not_go_on_while_effects_it_stands_on_are_being_undone(
    journal: Journal,
) -> None:
    """It would be given the result of an effect that is taken away a moment later."""
    run_id, keys = failed_run((PutByKey(), "one"))
    compensations.request(run_id, by="ada", reason="wrong", only=keys)
    before = journal.image()
    with pytest.raises(
        Refused, match="effects of it are being undone: try again once that is over"
    ):
        runs.send_back(run_id, by="bob")
    assert journal.image() == before
    journal.look.execute("UPDATE compensation SET state = 'blocked'")
    assert runs.send_back(run_id, by="bob") == ["b"]


def test_what_may_have_happened_and_nobody_sends_again_is_looked_up_first(journal: Journal) -> None:
    """Its key is still honoured, but its step has stopped: nothing else would ever decide it."""
    claimed = Worker().take(submit_run(row_of("a", "b")), "a")
    key = ask(claimed, PutByKey(), "one")
    Worker().interrupt(claimed)
    ref = journal.ref(claimed.run_id)
    assert rescue.block(ref, BlockReason.IDEMPOTENCY_CONFLICT, detail="another", failed=True)
    assert lookups.take_due(limit=10) == []
    compensations.request(claimed.run_id, by="ada", reason="wrong", only=[key])
    assert [due for _, due, _ in lookups.take_due(limit=10)] == [key]
    assert "effect_unknown" in journal.events(claimed.run_id)


def test_what_is_being_sent_is_its_owner_s_also_when_it_is_to_be_undone(journal: Journal) -> None:
    run_id = submit_run(group(at("m0"), at("m1")) | at("z"))
    worker = Worker()
    worker.interrupt(worker.take(run_id, "m0", "0/1.0"))
    claimed = worker.take(run_id, "m1", "0/1.1")
    key = ask(claimed, PutByKey(), "one")
    (step,) = rescue.unknown_steps(limit=10, run_id=run_id)
    ref = BranchRef(run_id, step.branch, step.revision)
    assert rescue.block(ref, BlockReason.POISON_STEP, detail="it kills", failed=True)
    compensations.request(run_id, by="ada", reason="wrong", only=[key])
    effects.settle(key, claimed, result='"kept"')
