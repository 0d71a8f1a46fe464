"""Calls that change nothing outside, and effects that a finished body did not ask for again."""

import pytest

from models.digests import digest_text
from models.ids import undo_key
from models.journal import effects
from models.journal.effect_values import Conflict, GivenUp, Recorded
from models.states import EffectState
from tests.support.intents import (
    DIGEST,
    KEY,
    PURE,
    QUERYABLE,
    SENDER,
    again,
    asking,
    at_work,
    intend,
    put,
    send,
    settle_as,
    settlement,
)
from tests.support.journal import Journal


def test_what_changes_nothing_outside_is_recorded_and_recalled(journal: Journal) -> None:
    claimed = at_work()
    pure = asking(promise=PURE)
    assert effects.recall(KEY, DIGEST) is None
    effects.record_pure(pure, claimed, SENDER, result="7")
    effects.record_pure(pure, claimed, SENDER, result="8")
    assert effects.recall(KEY, DIGEST) == Recorded("7", 1)
    assert effects.recall(KEY, "sha256:other") == Conflict(EffectState.SETTLED)
    row = settlement(journal)
    assert (row["effect_class"], row["source"], row["sends"]) == ("pure", "answer", 1)
    assert (row["request"], row["result_digest"]) == (pure.request, digest_text("7"))


def test_what_is_settled_is_recalled_and_nothing_else(journal: Journal) -> None:
    claimed = at_work()
    send(claimed)
    assert effects.recall(KEY, DIGEST) is None
    settle_as(journal, "abandoned", reason="by hand")
    assert effects.recall(KEY, DIGEST) == GivenUp("by hand")


@pytest.mark.parametrize(
    "state", ["intended", "unknown", "refused", "absent", "settled", "abandoned"]
)
def test_what_is_undone_is_not_built_upon(journal: Journal, state: str) -> None:
    claimed = at_work()
    undo = undo_key(KEY)
    send(claimed)
    effects.settle(KEY, claimed, result="1")
    send(claimed, asking(undo, undoes=KEY))
    if state in ("settled", "abandoned"):
        settle_as(journal, state, key=undo)
    else:
        put(journal, key=undo, state=state)
    undone = state in ("intended", "unknown", "settled")
    expected = GivenUp("it was undone") if undone else Recorded("1", 1)
    assert intend(claimed) == expected
    assert effects.recall(KEY, DIGEST) == expected


def test_an_open_effect_is_not_settled_by_a_tool_that_has_become_harmless(journal: Journal) -> None:
    claimed = at_work()
    send(claimed)
    effects.record_pure(asking(promise=PURE), claimed, SENDER, result="7")
    assert journal.rows("SELECT 1 FROM effect_settlement") == []


def test_what_a_finished_body_did_not_ask_for_again_is_told_once(journal: Journal) -> None:
    journal.freeze()
    first = at_work()
    for name, promise in (("a", QUERYABLE), ("b", QUERYABLE), ("c", PURE), ("d", QUERYABLE)):
        if promise is PURE:
            effects.record_pure(asking(name, promise), first, SENDER, result="1")
        else:
            send(first, asking(name, undoes="a" if name == "d" else None))
            effects.settle(name, first, result="1")
    send(first, asking("gone"))
    settle_as(journal, "abandoned", key="gone")
    second = again(journal, first)
    assert effects.note_unasked(first, {"a"}) == []
    assert effects.note_unasked(second, {"a"}) == ["b"]
    assert effects.note_unasked(second, {"a"}) == []
    (event,) = journal.rows("SELECT * FROM event WHERE kind = 'effect_not_asked_again'")
    assert (event["detail"], event["step_key"], event["token"]) == ("b", "a", 2)
