"""What the ledger says when a body has ended, and which calls it takes at all."""

from collections.abc import Iterator

import pytest

from models.journal.values import Claimed
from tasks import Context
from tasks.effects import Ledger
from tasks.errors import CallRefused, EffectUnknown
from tests.support.desk import DESK, Idempotent, Queryable, Wanted, a_context, a_ledger, raises
from tests.support.intents import again, at_work
from tests.support.journal import Journal


@pytest.fixture(autouse=True)
def desk() -> Iterator[None]:
    DESK.reset()
    yield
    DESK.reset()


@pytest.fixture
def claimed(journal: Journal) -> Claimed:
    journal.freeze()
    return at_work()


def context(claimed: Claimed, ledger: Ledger | None = None) -> Context:
    return a_context(ledger or a_ledger(claimed), claimed)


def test_effects_that_the_finished_body_did_not_ask_for_again_are_told(
    journal: Journal, claimed: Claimed
) -> None:
    context(claimed).call(Queryable(), Wanted())
    ledger = a_ledger(later := again(journal, claimed))
    context(later, ledger).call(Idempotent(), Wanted())
    assert ledger.close() is None
    assert ledger.left_over() is None
    ledger.report_unasked()
    told = [(kind, key) for kind, key in _events(journal) if kind == "effect_not_asked_again"]
    assert told == [("effect_not_asked_again", f"{claimed.run_id}:a:desk.queryable:1")]


def test_a_step_does_not_end_over_a_doubt_of_an_earlier_attempt(
    journal: Journal, claimed: Claimed
) -> None:
    DESK.then(raises(ConnectionError()))
    with pytest.raises(EffectUnknown):
        context(claimed).call(Idempotent(), Wanted())
    ledger = a_ledger(again(journal, claimed))
    assert ledger.close() is None
    assert isinstance(ledger.left_over(), EffectUnknown)
    (row,) = journal.rows("SELECT *, resend_until <= onward_now() AS spent FROM effect")
    assert (row["state"], row["spent"]) == ("unknown", True)


def test_no_call_is_taken_when_the_body_is_over_or_its_session_open(claimed: Claimed) -> None:
    ledger = a_ledger(claimed)
    ctx = context(claimed, ledger)
    ledger.bar("its session is open")
    with pytest.raises(CallRefused, match=r"its session is open\. Nothing was sent"):
        ctx.call(Queryable(), Wanted())
    ledger.bar(None)
    ctx.call(Queryable(), Wanted())
    ledger.close()
    with pytest.raises(CallRefused, match="its body has ended"):
        ctx.call(Queryable(), Wanted())
    assert len(DESK.calls) == 1


def test_a_class_in_place_of_a_tool_is_explained(claimed: Claimed) -> None:
    with pytest.raises(CallRefused, match=r"as in ctx.call\(FileReport\(\), report\)"):
        context(claimed).call(Queryable, Wanted())  # type: ignore[arg-type]


def _events(journal: Journal) -> list[tuple[str, str]]:
    return [
        (row["kind"], row["detail"])
        for row in journal.rows("SELECT kind, detail FROM event ORDER BY event_id")
    ]
