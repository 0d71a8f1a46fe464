"""Connections that break at the COMMIT of an effect: nothing is sent while that is open, nothing counted twice."""

from collections.abc import Iterator

import pytest

from models import database
from models.journal import effects
from models.journal.effect_values import Granted, InDoubt
from models.journal.errors import CommitUnknown, LeaseLost
from models.settings import settings
from tests.support.intents import (
    IDEMPOTENT,
    KEY,
    SENDER,
    again,
    asking,
    at_work,
    effect,
    intend,
    put,
    send,
    settle_as,
    settlement,
    stories,
)
from tests.support.journal import Journal
from tests.support.proxy import Cut, Wire, wire_to


@pytest.fixture
def wire(journal: Journal, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    """The verbs reach the journal over this wire; the test's own look at it does not."""
    with wire_to(database_url) as (wire, url):
        monkeypatch.setenv("ONWARD_DATABASE_URL", url)
        settings.cache_clear()
        yield wire
        database.close()


@pytest.mark.parametrize("cut", Cut)
def test_an_intent_cut_off_is_granted_once(journal: Journal, wire: Wire, cut: Cut) -> None:
    claimed = at_work()
    wire.cut_next(cut)
    assert send(claimed) == Granted(1)
    assert wire.cuts == 1
    row = effect(journal)
    assert (row["sends"], row["earlier_doubt"]) == (1, False)


@pytest.mark.parametrize("cut", Cut)
def test_an_intent_to_send_again_cut_off_is_granted_once(
    journal: Journal, wire: Wire, cut: Cut
) -> None:
    journal.freeze()
    first = at_work()
    send(first, asking(promise=IDEMPOTENT))
    second = again(journal, first)
    database.connection()
    wire.cut_next(cut)
    assert send(second, asking(promise=IDEMPOTENT)) == Granted(2)
    assert wire.cuts == 1
    row = effect(journal)
    assert (row["sends"], row["earlier_doubt"]) == (2, True)


def test_an_intent_tried_again_later_promises_from_then_on(journal: Journal) -> None:
    journal.freeze()
    claimed = at_work()
    intent = asking()
    send(claimed, intent)
    first = effect(journal)
    journal.advance(20)
    assert send(claimed, intent) == Granted(1)
    row, now = effect(journal), journal.one("SELECT onward_now()")
    assert row["sent_at"] == now
    assert row["first_sent_at"] == first["first_sent_at"]
    assert (row["send_by"] - now, row["absent_after"] - now) == (
        first["send_by"] - first["sent_at"],
        first["absent_after"] - first["sent_at"],
    )


@pytest.mark.parametrize("cut", Cut)
def test_another_call_of_the_same_claim_is_not_taken_for_this_one(
    journal: Journal, wire: Wire, cut: Cut
) -> None:
    claimed = at_work()
    send(claimed)
    wire.cut_next(cut)
    assert isinstance(intend(claimed, asking()), InDoubt)
    assert wire.cuts == 1


def test_a_call_that_was_doubted_meanwhile_is_not_granted(journal: Journal) -> None:
    claimed = at_work()
    intent = asking()
    send(claimed, intent)
    put(journal, state="unknown")
    assert isinstance(intend(claimed, intent), InDoubt)


def test_an_intent_of_an_earlier_claim_is_not_ours(journal: Journal) -> None:
    journal.freeze()
    first = at_work()
    intent = asking()
    send(first, intent)
    assert isinstance(intend(again(journal, first), intent), InDoubt)


@pytest.mark.parametrize("cut", Cut)
def test_an_answer_cut_off_is_settled_once(journal: Journal, wire: Wire, cut: Cut) -> None:
    claimed = at_work()
    send(claimed)
    wire.cut_next(cut)
    with pytest.raises(CommitUnknown):
        effects.settle(KEY, claimed, result="1")
    assert wire.cuts == 1
    effects.settle(KEY, claimed, result="1")
    assert settlement(journal)["result"] == "1"
    assert journal.rows("SELECT 1 FROM effect_evidence") == []
    assert stories(journal, claimed.run_id) == []


@pytest.mark.parametrize(
    ("facts", "result"),
    [({"source": "lookup"}, '"found"'), ({"source": "answer"}, '"another"')],
    ids=["of somebody else", "another answer"],
)
def test_only_ones_own_settlement_confirms(
    journal: Journal, facts: dict[str, str], result: str
) -> None:
    claimed = at_work()
    send(claimed)
    settle_as(journal, "settled", **facts)
    with pytest.raises(LeaseLost, match="evidence"):
        effects.settle(KEY, claimed, result=result)


@pytest.mark.parametrize("cut", Cut)
@pytest.mark.parametrize("verb", ["refuse", "doubt", "keep_evidence"])
def test_what_was_cut_off_is_written_once(
    journal: Journal, wire: Wire, verb: str, cut: Cut
) -> None:
    claimed = at_work()
    send(claimed)
    if verb == "keep_evidence":
        effects.doubt(KEY, claimed, error="silence", call_over=False)

    def write() -> None:
        match verb:
            case "refuse":
                assert effects.refuse(KEY, claimed, error="no")
            case "doubt":
                effects.doubt(KEY, claimed, error="silence", call_over=False)
            case _:
                effects.keep_evidence(KEY, claimed, result="1")

    wire.cut_next(cut)
    with pytest.raises(CommitUnknown):
        write()
    write()
    assert len(stories(journal, claimed.run_id)) == (2 if verb == "keep_evidence" else 1)


def test_a_harmless_answer_cut_off_is_recorded_once(journal: Journal, wire: Wire) -> None:
    claimed = at_work()
    wire.cut_next(Cut.ANSWER)
    with pytest.raises(CommitUnknown):
        effects.record_pure(asking(), claimed, SENDER, result="1")
    effects.record_pure(asking(), claimed, SENDER, result="2")
    assert settlement(journal)["result"] == "1"
