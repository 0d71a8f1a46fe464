"""What the ledger says when a body has ended, and which calls it takes at all."""

import asyncio
from collections.abc import Iterator

import pytest

from models.journal.values import Claimed
from tasks import Context, Unanswered, tool_registry
from tasks.effects import Ledger
from tasks.errors import CallRefused, DefinitionError, EffectUnknown
from tasks.tools import register_instance
from tests.support.desk import (
    DESK,
    Idempotent,
    Queryable,
    Read,
    Wanted,
    a_context,
    a_ledger,
    raises,
)
from tests.support.intents import again, at_work
from tests.support.journal import Journal


@pytest.fixture(autouse=True)
def desk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(tool_registry, "_tools", dict(tool_registry._tools))
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


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
        asyncio.CancelledError(),
        StopIteration(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_exit_of_a_pure_tool_is_a_failure_of_its_call(
    claimed: Claimed, error: BaseException
) -> None:
    DESK.then(raises(error), raises(error))
    ctx = context(claimed)
    with pytest.raises(Unanswered, match=f"ended with {type(error).__name__}"):
        ctx.call(Read(), Wanted())

    async def body() -> None:
        ctx.enter_task()
        await asyncio.wait_for(ctx.acall(Read(), Wanted(), name="awaited"), 10)

    with pytest.raises(Unanswered, match=f"ended with {type(error).__name__}"):
        asyncio.run(body())


def test_a_tool_that_nobody_could_ask_later_is_refused_before_anything_is_sent(
    claimed: Claimed,
) -> None:
    class Elsewhere(Queryable, abstract=True):
        def __init__(self, url: str) -> None:
            self.name, self.url = "desk.elsewhere", url

    ctx = context(claimed)
    with pytest.raises(DefinitionError, match=r"is not registered.*register_instance"):
        ctx.call(Elsewhere("http://a"), Wanted())
    assert DESK.calls == []
    register_instance(Elsewhere("http://a"))
    with pytest.raises(DefinitionError, match="configured differently"):
        register_instance(Elsewhere("http://b"))
    register_instance(Elsewhere("http://a"))  # a module that is loaded again
    assert ctx.call(Elsewhere("http://a"), Wanted()).resource_id == "res-1"


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
