"""Intending: what is written before anything is sent, and when it may be sent at all, or again."""

from datetime import timedelta
from typing import Any

import pytest

from models.journal import effects
from models.journal.effect_values import (
    Conflict,
    Exhausted,
    GivenUp,
    Granted,
    InDoubt,
    Promise,
    Recorded,
)
from models.settings import settings
from models.states import EffectState
from tests.support.intents import (
    DIGEST,
    IDEMPOTENT,
    KEY,
    ONCE,
    QUERYABLE,
    again,
    asking,
    at_work,
    effect,
    intend,
    put,
    send,
    settle_as,
)
from tests.support.journal import Journal

OTHER = asking(request_digest="sha256:other", request='{"servers":10}')


def test_an_intent_is_all_there_before_anything_is_sent(journal: Journal) -> None:
    journal.freeze()
    claimed = at_work()
    assert send(claimed, asking(promise=IDEMPOTENT, undoes="original")) == Granted(1)

    row, now = effect(journal), journal.one("SELECT onward_now()")
    assert (row["run_id"], row["step_key"], row["branch"]) == (claimed.run_id, "a", "0")
    assert (row["queue"], row["tool"], row["tool_version"]) == (
        "steps.toy@1",
        "registry.file",
        "2",
    )
    assert (row["effect_class"], row["undoes"]) == ("idempotent", "original")
    assert (row["request"], row["request_digest"]) == ('{"servers":1}', DIGEST)
    assert (row["state"], row["token"], row["attempt"], row["sends"]) == ("intended", 1, 1, 1)
    assert (row["start_id"], row["worker"], row["pid_space"]) == ("start-1", "worker-1", "host:1")
    assert (row["pid"], row["pid_started"], row["call_over"]) == (4242, 4243, False)
    assert (row["created_at"], row["first_sent_at"], row["sent_at"]) == (now, now, now)
    assert row["send_by"] - now == timedelta(seconds=5)
    assert row["resend_until"] - now == timedelta(seconds=3600)
    assert row["absent_after"] - now == timedelta(seconds=5 + 10 + 60)
    assert (row["doubted_at"], row["person"], row["error"]) == (None, None, None)


@pytest.mark.parametrize(
    ("promise", "resend", "absent"),
    [(QUERYABLE, None, 95), (ONCE, None, None)],
    ids=["queryable", "once"],
)
def test_what_is_not_promised_is_not_hoped_for(
    journal: Journal, promise: Promise, resend: None, absent: int | None
) -> None:
    journal.freeze()
    send(at_work(), asking(promise=promise))
    row = effect(journal)
    assert row["resend_until"] is resend
    expected = None if absent is None else row["sent_at"] + timedelta(seconds=absent)
    assert row["absent_after"] == expected


def test_what_was_done_is_not_done_again(journal: Journal) -> None:
    journal.freeze()
    first = at_work()
    send(first)
    effects.settle(KEY, first, result='"r-1"')
    before = journal.image()
    assert intend(first) == Recorded('"r-1"', 1)
    assert journal.image() == before
    second = again(journal, first)
    before = journal.image()
    assert intend(second) == Recorded('"r-1"', 1)
    assert journal.image() == before


@pytest.mark.parametrize("state", ["intended", "unknown", "refused", "absent"])
@pytest.mark.parametrize("promise", [QUERYABLE, IDEMPOTENT], ids=["queryable", "idempotent"])
def test_a_key_is_bound_to_its_request(journal: Journal, state: str, promise: Promise) -> None:
    journal.freeze()
    first = at_work()
    send(first, asking(promise=promise))
    put(journal, state=state)
    second = again(journal, first)
    before = journal.image()
    other = asking(promise=promise, request_digest="sha256:other")
    assert intend(second, other) == Conflict(EffectState(state))
    assert journal.image() == before


@pytest.mark.parametrize("outcome", ["settled", "abandoned"])
def test_a_settled_key_is_bound_to_its_request(journal: Journal, outcome: str) -> None:
    claimed = at_work()
    send(claimed)
    settle_as(journal, outcome)
    before = journal.image()
    assert intend(claimed, OTHER) == Conflict(EffectState(outcome))
    assert journal.image() == before


@pytest.mark.parametrize("outcome", ["settled", "abandoned"])
def test_a_person_may_free_a_key_for_another_request(journal: Journal, outcome: str) -> None:
    claimed = at_work()
    send(claimed)
    put(journal, request_digest=None)
    settle_as(journal, outcome, reason="by hand")
    expected = {"settled": Recorded('"found"', 1), "abandoned": GivenUp("by hand")}
    assert intend(claimed, OTHER) == expected[outcome]


def test_a_freed_key_takes_the_request_it_is_used_for(journal: Journal) -> None:
    claimed = at_work()
    send(claimed)
    put(journal, request_digest=None, state="absent")
    assert send(claimed, OTHER) == Granted(2)
    row = effect(journal)
    assert (row["request_digest"], row["request"]) == ("sha256:other", '{"servers":10}')


@pytest.mark.parametrize("state", ["intended", "unknown"])
@pytest.mark.parametrize("promise", [QUERYABLE, ONCE], ids=["queryable", "once"])
def test_what_may_have_happened_is_not_sent_again(
    journal: Journal, state: str, promise: Promise
) -> None:
    journal.freeze()
    first = at_work()
    send(first, asking(promise=promise))
    put(journal, state=state)
    second = again(journal, first)
    before = journal.image()
    standing = intend(second, asking(promise=promise))
    assert standing == InDoubt("an earlier attempt may have sent it")
    assert journal.image() == before


def test_a_provider_that_honours_the_key_is_asked_again(journal: Journal) -> None:
    journal.freeze()
    first = at_work()
    send(first, asking(promise=IDEMPOTENT))
    put(journal, state="unknown", looks=1, failed_checks=2, looker="x", looker_until="2000-01-01Z",
        call_over=True, doubted_at="2000-01-01Z", error="cut")  # fmt: skip
    began = effect(journal)
    second = again(journal, first)
    fresh = asking(promise=IDEMPOTENT, request='{"servers":1,"trace":2}', tool_version="3")
    assert send(second, fresh) == Granted(2)

    row, now = effect(journal), journal.one("SELECT onward_now()")
    assert (row["state"], row["token"], row["attempt"], row["sends"]) == ("intended", 2, 2, 2)
    assert (row["request"], row["tool_version"]) == ('{"servers":1,"trace":2}', "3")
    assert (row["looks"], row["failed_checks"], row["looker"], row["looker_until"]) == (
        0,
        0,
        None,
        None,
    )
    assert (row["call_over"], row["doubted_at"], row["error"]) == (False, None, None)
    assert row["earlier_doubt"]
    assert (row["sent_at"], row["send_by"] - now) == (now, timedelta(seconds=5))
    assert row["absent_after"] - now == timedelta(seconds=75)
    assert row["revision"] == began["revision"] + 1
    kept = ("first_sent_at", "resend_until", "created_at", "effect_class")
    assert [row[name] for name in kept] == [began[name] for name in kept]


@pytest.mark.parametrize(
    "changes",
    [
        {"resend_until": "2000-01-01Z"},
        {"resend_until": None},
        {"person": "a person has to decide"},
        {"sends": 9},
        {"token": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("state", ["intended", "unknown"])
def test_a_key_is_sent_again_only_while_all_of_this_holds(
    journal: Journal, changes: dict[str, Any], state: str
) -> None:
    journal.freeze()
    first = at_work()
    send(first, asking(promise=IDEMPOTENT))
    put(journal, state=state, **changes)
    second = again(journal, first)
    before = journal.image()
    reason = changes.get("person", "an earlier attempt may have sent it")
    assert intend(second, asking(promise=IDEMPOTENT)) == InDoubt(reason)
    assert journal.image() == before


def test_pardoned_sends_do_not_count(journal: Journal) -> None:
    journal.freeze()
    first = at_work()
    send(first, asking(promise=IDEMPOTENT))
    put(journal, sends=9, pardoned_sends=1)
    assert send(again(journal, first), asking(promise=IDEMPOTENT)) == Granted(10)


@pytest.mark.parametrize("state", ["refused", "absent"])
def test_what_did_not_happen_may_be_asked_for_again(journal: Journal, state: str) -> None:
    claimed = at_work()
    send(claimed)
    put(journal, state=state, earlier_doubt=True)
    assert send(claimed) == Granted(2)
    row = effect(journal)
    assert (row["state"], row["sends"], row["earlier_doubt"]) == ("intended", 2, False)


def test_what_never_arrives_is_given_up(journal: Journal) -> None:
    claimed = at_work()
    send(claimed)
    limit = settings().resend_limit
    put(journal, state="absent", sends=limit + 1)
    before = journal.image()
    assert intend(claimed) == Exhausted(limit + 1)
    assert journal.image() == before
    put(journal, sends=limit)
    assert send(claimed) == Granted(limit + 1)


def test_a_refusal_is_no_loss(journal: Journal) -> None:
    claimed = at_work()
    send(claimed)
    put(journal, state="refused", sends=50)
    assert send(claimed) == Granted(51)


def test_what_a_person_gave_up_stays_given_up(journal: Journal) -> None:
    claimed = at_work()
    send(claimed)
    settle_as(journal, "abandoned", reason="the supplier is gone")
    assert intend(claimed) == GivenUp("the supplier is gone")
