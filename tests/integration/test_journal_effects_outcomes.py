"""What came of an effect: its answer, a refusal, a doubt, an answer too late. By its sender, or as evidence."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from models.digests import digest_text
from models.journal import effects
from models.journal.effect_values import Granted, InDoubt, Recorded
from models.journal.errors import LeaseLost
from models.journal.values import Claimed
from tests.support.intents import (
    IDEMPOTENT,
    KEY,
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
from tests.support.journal import Journal, Worker

ANSWER = '{"id":"F-1"}'


def test_an_answer_is_kept_with_its_intent(journal: Journal) -> None:
    journal.freeze()
    claimed = at_work()
    send(claimed, asking(promise=IDEMPOTENT))
    intended = effect(journal)
    journal.advance(3)
    effects.settle(KEY, claimed, result=ANSWER)

    assert journal.rows("SELECT 1 FROM effect") == []
    row = settlement(journal)
    for name in effects.KEPT.split(", "):
        assert row[name] == intended[name], name
    assert (row["outcome"], row["result"], row["source"]) == ("settled", ANSWER, "answer")
    assert (row["result_digest"], row["actor"]) == (digest_text(ANSWER), "onward")
    assert row["settled_at"] == journal.one("SELECT onward_now()")
    assert stories(journal, claimed.run_id) == []  # what goes well is told by its rows


def test_an_answer_written_twice_is_one_settlement(journal: Journal) -> None:
    claimed = at_work()
    send(claimed)
    effects.settle(KEY, claimed, result=ANSWER)
    before = journal.image()
    effects.settle(KEY, claimed, result=ANSWER)
    assert journal.image() == before


def test_an_owner_whose_lease_ended_still_settles_what_nobody_took_up(journal: Journal) -> None:
    journal.freeze()
    claimed = at_work()
    send(claimed)
    journal.lose()
    effects.settle(KEY, claimed, result=ANSWER)
    assert intend(again_of(journal, claimed)) == Recorded(ANSWER, 1)


def again_of(journal: Journal, claimed: Claimed) -> Claimed:
    """The next attempt of a step that is unknown already."""
    journal.make(claimed.run_id, state="pending")
    return Worker("worker-2", "start-2").take(claimed.run_id, claimed.step_key)


def taken_up(journal: Journal, claimed: Claimed) -> None:
    put(journal, state="unknown", doubted_at="2000-01-01Z")


def believed_absent(journal: Journal, claimed: Claimed) -> None:
    put(journal, state="absent", doubted_at="2000-01-01Z")


def sent_again(journal: Journal, claimed: Claimed) -> None:
    assert send(again(journal, claimed), asking(promise=IDEMPOTENT)) == Granted(2)


def found(journal: Journal, claimed: Claimed) -> None:
    settle_as(journal, "settled", source="lookup")


def given_up(journal: Journal, claimed: Claimed) -> None:
    settle_as(journal, "abandoned", source="person")


def answered_otherwise(journal: Journal, claimed: Claimed) -> None:
    effects.settle(KEY, claimed, result='"another"')


OTHERS = [taken_up, believed_absent, sent_again, found, given_up, answered_otherwise]


@pytest.mark.parametrize("take", OTHERS, ids=lambda take: take.__name__)
def test_the_answer_of_a_displaced_owner_is_evidence(
    journal: Journal, take: Callable[[Journal, Claimed], None]
) -> None:
    journal.freeze()
    claimed = at_work()
    send(claimed, asking(promise=IDEMPOTENT))
    take(journal, claimed)
    settled = journal.image()["effect_settlement"]
    with pytest.raises(LeaseLost, match="kept as evidence"):
        effects.settle(KEY, claimed, result=ANSWER)
    assert journal.image()["effect_settlement"] == settled
    (row,) = journal.rows("SELECT * FROM effect_evidence")
    assert (row["key"], row["token"], row["result"]) == (KEY, 1, ANSWER)
    assert (row["result_digest"], row["worker"]) == (digest_text(ANSWER), claimed.owner)
    (told,) = [story for story in stories(journal, claimed.run_id) if "late" in story[0]]
    assert told == ("effect_late_answer", f"answered to {claimed.owner} after it was given up")


@pytest.mark.parametrize("take", OTHERS, ids=lambda take: take.__name__)
def test_a_displaced_owner_neither_refuses_nor_doubts(
    journal: Journal, take: Callable[[Journal, Claimed], None]
) -> None:
    journal.freeze()
    claimed = at_work()
    send(claimed, asking(promise=IDEMPOTENT))
    take(journal, claimed)
    before = journal.image()
    assert not effects.refuse(KEY, claimed, error="no")
    effects.doubt(KEY, claimed, error="cut", call_over=True)
    assert journal.image() == before


def test_another_claim_of_the_same_step_ends_nothing_that_it_did_not_send(journal: Journal) -> None:
    claimed = at_work()
    send(claimed)
    other = replace(claimed, token=2)
    before = journal.image()
    assert not effects.refuse(KEY, other, error="no")
    effects.doubt(KEY, other, error="cut", call_over=True)
    assert journal.image() == before


def test_a_late_answer_takes_back_a_belief_in_absence(journal: Journal) -> None:
    journal.freeze()
    claimed = at_work()
    send(claimed)
    journal.advance(200)
    put(journal, state="absent", person="somebody look", due_at="2999-01-01Z")
    effects.keep_evidence(KEY, claimed, result=ANSWER)
    row, now = effect(journal), journal.one("SELECT onward_now()")
    assert (row["state"], row["person"], row["due_at"]) == ("unknown", None, now)
    assert row["doubted_at"] == now
    second = again(journal, claimed)
    assert isinstance(intend(second), InDoubt)


def test_a_late_answer_wakes_whoever_looks(journal: Journal) -> None:
    claimed = at_work()
    send(claimed)
    effects.doubt(KEY, claimed, error="cut", call_over=False)
    doubted = effect(journal)["doubted_at"]
    put(journal, due_at="2999-01-01Z", person="ask them")
    effects.keep_evidence(KEY, claimed, result=ANSWER)
    row = effect(journal)
    assert (row["state"], row["person"], row["doubted_at"]) == ("unknown", None, doubted)
    assert row["due_at"] <= journal.one("SELECT onward_now()")


@pytest.mark.parametrize(
    "changes", [{"state": "intended"}, {"state": "refused"}, {"state": "absent", "token": 2}], ids=str
)  # fmt: skip
def test_evidence_of_one_send_says_nothing_about_others(
    journal: Journal, changes: dict[str, Any]
) -> None:
    claimed = at_work()
    send(claimed)
    put(journal, **changes)
    before = journal.image()["effect"]
    effects.keep_evidence(KEY, claimed, result=ANSWER)
    assert journal.image()["effect"] == before
    assert len(journal.rows("SELECT 1 FROM effect_evidence")) == 1


def test_evidence_filed_twice_is_filed_once(journal: Journal) -> None:
    claimed = at_work()
    send(claimed)
    effects.doubt(KEY, claimed, error="cut", call_over=False)
    effects.keep_evidence(KEY, claimed, result=ANSWER)
    put(journal, person="two answers differ", due_at="2999-01-01Z")
    before = journal.image()
    effects.keep_evidence(KEY, claimed, result=ANSWER)
    assert journal.image() == before


def test_a_refusal_is_definite(journal: Journal) -> None:
    claimed = at_work()
    send(claimed)
    assert effects.refuse(KEY, claimed, error="no such supplier")
    row = effect(journal)
    assert (row["state"], row["call_over"], row["error"]) == ("refused", True, "no such supplier")
    assert row["doubted_at"] is None
    assert stories(journal, claimed.run_id) == [("effect_refused", "no such supplier")]
    before = journal.image()
    assert effects.refuse(KEY, claimed, error="no such supplier")
    assert journal.image() == before


def test_a_refusal_says_nothing_about_an_earlier_send(journal: Journal) -> None:
    journal.freeze()
    first = at_work()
    send(first, asking(promise=IDEMPOTENT))
    second = again(journal, first)
    send(second, asking(promise=IDEMPOTENT))
    assert not effects.refuse(KEY, second, error="too many requests")
    row, now = effect(journal), journal.one("SELECT onward_now()")
    assert (row["state"], row["doubted_at"], row["due_at"]) == ("unknown", now, now)
    assert stories(journal, first.run_id)[1:] == [
        ("effect_unknown", "an earlier send may have happened; this one: too many requests")
    ]
    assert not effects.refuse(KEY, second, error="too many requests")

    third = again(journal, second)
    assert send(third, asking(promise=IDEMPOTENT)) == Granted(3)
    assert not effects.refuse(KEY, third, error="too many requests")
    put(journal, state="absent")
    fourth = again(journal, third)
    assert send(fourth, asking(promise=IDEMPOTENT)) == Granted(4)
    assert effects.refuse(KEY, fourth, error="no such supplier")


@pytest.mark.parametrize("call_over", [True, False])
def test_a_doubt_is_due_to_be_looked_into(journal: Journal, call_over: bool) -> None:
    journal.freeze()
    claimed = at_work()
    send(claimed)
    journal.advance(7)
    effects.doubt(KEY, claimed, error="connection cut", call_over=call_over)
    row, now = effect(journal), journal.one("SELECT onward_now()")
    assert (row["state"], row["doubted_at"], row["due_at"]) == ("unknown", now, now)
    assert (row["call_over"], row["error"]) == (call_over, "connection cut")
    assert stories(journal, claimed.run_id) == [("effect_unknown", "connection cut")]
    before = journal.image()
    effects.doubt(KEY, claimed, error="connection cut", call_over=call_over)
    assert journal.image() == before


def test_a_call_left_behind_is_noted_when_it_ends(journal: Journal) -> None:
    journal.freeze()
    claimed = at_work()
    send(claimed)
    before = journal.image()
    effects.end_call(KEY, claimed, error="reset by peer")
    assert journal.image() == before
    effects.doubt(KEY, claimed, error="no answer", call_over=False)
    put(journal, due_at="2999-01-01Z")
    before = journal.image()
    effects.end_call(KEY, replace(claimed, token=2), error="reset by peer")
    assert journal.image() == before
    effects.end_call(KEY, claimed, error="reset by peer")
    row = effect(journal)
    assert (row["state"], row["call_over"], row["error"]) == ("unknown", True, "reset by peer")
    assert row["due_at"] == journal.one("SELECT onward_now()")
    assert stories(journal, claimed.run_id)[1:] == [("effect_call_ended", "reset by peer")]
    before = journal.image()
    effects.end_call(KEY, claimed, error="reset by peer")
    assert journal.image() == before
