"""A refusal that a body caught and went on from is its answer for good, in every later attempt."""

import asyncio
from collections.abc import Coroutine, Iterator

import pytest

from models import database
from models.journal import effects, resolving
from models.journal.errors import LeaseLost
from models.journal.values import Claimed
from models.states import BlockReason
from tasks import Context, NotSent, Refused, tool_registry
from tasks.effects import Ledger
from tasks.errors import AttemptLost, EffectBlocked, EffectExhausted
from tasks.tool_base import refusal
from tests.support.desk import (
    DESK,
    Idempotent,
    Made,
    Queryable,
    Wanted,
    a_context,
    a_ledger,
    raises,
)
from tests.support.intents import again, at_work, effect, stories
from tests.support.journal import Journal

NO_FUNDS = "no funds on the first card"


class CardDeclined(Refused):
    """The service's own word for it, with more than a message."""

    def __init__(self, message: str, *, card: str) -> None:
        super().__init__(message)
        self.card = card


@pytest.fixture(autouse=True)
def desk() -> Iterator[None]:
    DESK.reset()
    yield
    DESK.reset()


@pytest.fixture
def claimed(journal: Journal) -> Claimed:
    return at_work()


def context(claimed: Claimed, ledger: Ledger | None = None) -> Context:
    return a_context(ledger or a_ledger(claimed), claimed)


def pay(ctx: Context) -> Made:
    """One card after the other."""
    try:
        return ctx.call(Queryable(), Wanted(1), name="first-card")
    except CardDeclined:
        return ctx.call(Queryable(), Wanted(2), name="second-card")


def test_the_second_choice_stays_the_choice_of_every_later_attempt(
    journal: Journal, claimed: Claimed
) -> None:
    DESK.then(raises(CardDeclined(NO_FUNDS, card="1")))
    paid = pay(context(claimed))
    later = again(journal, claimed)
    assert pay(context(later)) == paid
    assert pay(context(again(journal, later))) == paid
    assert [request.servers for _, request in DESK.calls] == [1, 2]


def test_a_refusal_that_ended_the_attempt_is_asked_again(
    journal: Journal, claimed: Claimed
) -> None:
    DESK.then(raises(Refused("not now")))
    with pytest.raises(Refused):
        context(claimed).call(Queryable(), Wanted())
    assert context(again(journal, claimed)).call(Queryable(), Wanted()) == Made("res-2")


def test_it_is_recorded_before_anything_else_is_asked(journal: Journal, claimed: Claimed) -> None:
    """The second request has not left yet when the first choice is already given up."""
    DESK.then(raises(CardDeclined(NO_FUNDS, card="1")))
    seen = []
    DESK.then(lambda: seen.append(journal.one("SELECT passed FROM effect WHERE state = 'refused'")))
    with pytest.raises(EffectBlocked):  # None is not a Made: beside the point here
        pay(context(claimed))
    assert seen == [True]


def test_a_person_can_free_it(journal: Journal, claimed: Claimed) -> None:
    DESK.then(raises(CardDeclined(NO_FUNDS, card="1")))
    pay(context(claimed))
    resolving.absent(DESK.calls[0][0], by="ada", reason="the card is good again")
    assert pay(context(again(journal, claimed))) == Made("res-3", 1)


def test_a_choice_made_because_nothing_arrived_stands_as_well(
    journal: Journal, claimed: Claimed
) -> None:
    first = context(claimed)
    DESK.then(raises(Refused("not now")))
    with pytest.raises(Refused):
        first.call(Queryable(), Wanted())
    journal.look.execute("UPDATE effect SET state = 'absent', sends = 100")
    later = again(journal, claimed)
    ctx = context(later)
    with pytest.raises(EffectExhausted):
        ctx.call(Queryable(), Wanted())
    assert ctx.call(Idempotent(), Wanted()) == Made("res-2")
    journal.look.execute("UPDATE effect SET pardoned_sends = sends")
    with pytest.raises(EffectExhausted):
        context(again(journal, later)).call(Queryable(), Wanted())
    assert len(DESK.calls) == 2


def test_only_the_holder_goes_past_a_refusal(journal: Journal, claimed: Claimed) -> None:
    DESK.then(raises(Refused("no")))
    ledger = a_ledger(claimed)
    ctx = context(claimed, ledger)
    with pytest.raises(Refused):
        ctx.call(Queryable(), Wanted())
    again(journal, claimed)
    with pytest.raises(AttemptLost):
        ctx.call(Queryable(), Wanted(2))
    (row,) = journal.rows("SELECT passed, state FROM effect")
    assert (row["passed"], row["state"]) == (False, "refused")
    assert len(DESK.calls) == 1


def test_going_past_touches_what_was_refused_under_this_claim_alone(
    journal: Journal, claimed: Claimed
) -> None:
    DESK.then(raises(Refused("no")))
    ctx = context(claimed)
    with pytest.raises(Refused):
        ctx.call(Queryable(), Wanted(), name="a")
    key = DESK.calls[0][0]
    later = again(journal, claimed)
    effects.go_past([key], later)
    assert effect(journal, key)["passed"] is False
    journal.look.execute("UPDATE effect SET token = %s, state = 'unknown'", (later.token,))
    effects.go_past([key], later)
    assert effect(journal, key)["passed"] is False
    journal.look.execute("UPDATE effect SET state = 'refused'")
    effects.go_past([key], later)
    assert effect(journal, key)["passed"] is True
    with pytest.raises(LeaseLost):
        effects.go_past([key], claimed)
    database.close()


@pytest.mark.parametrize(
    ("recorded", "kind", "words"),
    [
        ("CardDeclined: no funds", CardDeclined, "no funds"),
        ("NotSent: nobody listens: port 1", NotSent, "nobody listens: port 1"),
        ("Refused: no", Refused, "no"),
        ("Unheard: of", Refused, "of"),
        ("CardDeclined", CardDeclined, "CardDeclined"),
    ],
)
def test_a_recorded_refusal_comes_back_as_its_own_kind(
    recorded: str, kind: type[Refused], words: str
) -> None:
    made = refusal(recorded)
    assert type(made) is kind
    assert str(made) == words


def test_a_tool_that_was_renamed_does_nothing_again(
    journal: Journal, claimed: Claimed, monkeypatch: pytest.MonkeyPatch
) -> None:
    context(claimed).call(Queryable(), Wanted())
    later = again(journal, claimed)
    known = {name: one for name, one in tool_registry.tools().items() if name != "desk.queryable"}
    monkeypatch.setattr(tool_registry, "_tools", known)
    with pytest.raises(
        EffectBlocked, match=r"called desk\.queryable, which this worker"
    ) as blocked:
        context(later).call(Idempotent(), Wanted())
    assert blocked.value.reason is BlockReason.VERSION_INCOMPATIBLE
    assert len(DESK.calls) == 1


@pytest.mark.parametrize(
    "error", [Refused("wrong token s3cret-1"), OSError("sent s3cret-1, no answer")]
)
def test_a_secret_in_the_service_s_answer_is_struck_out(
    journal: Journal, claimed: Claimed, error: Exception
) -> None:
    DESK.then(raises(error))
    ledger = a_ledger(claimed)
    with pytest.raises(BaseException, match=r"s3cret|\*\*\*"):
        context(claimed, ledger).call(Queryable(), Wanted(1, "noon", "s3cret-1"))
    kept = f"{journal.image()} {stories(journal, claimed.run_id)}"
    assert "***" in kept
    assert "s3cret" not in kept
    assert ledger.strike("about s3cret-1") == "about ***"


@pytest.mark.parametrize("state", ["absent", "refused"])
def test_a_tool_that_did_nothing_may_be_dropped(
    journal: Journal, claimed: Claimed, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """Nothing could be done again, and no command would ever clear the block."""
    DESK.then(raises(Refused("not now")))
    with pytest.raises(Refused):
        context(claimed).call(Queryable(), Wanted())
    journal.look.execute("UPDATE effect SET state = %s", (state,))
    later = again(journal, claimed)
    known = {name: one for name, one in tool_registry.tools().items() if name != "desk.queryable"}
    monkeypatch.setattr(tool_registry, "_tools", known)
    assert context(later).call(Idempotent(), Wanted()) == Made("res-2")


def test_a_dropped_tool_whose_refusal_was_a_choice_still_counts(
    journal: Journal, claimed: Claimed, monkeypatch: pytest.MonkeyPatch
) -> None:
    DESK.then(raises(CardDeclined(NO_FUNDS, card="1")))
    with pytest.raises(CardDeclined):
        context(claimed).call(Queryable(), Wanted())
    journal.look.execute("UPDATE effect SET passed = true")
    later = again(journal, claimed)
    known = {name: one for name, one in tool_registry.tools().items() if name != "desk.queryable"}
    monkeypatch.setattr(tool_registry, "_tools", known)
    with pytest.raises(EffectBlocked):
        context(later).call(Idempotent(), Wanted())


def pay_beside(ctx: Context, who: str) -> Coroutine[None, None, Made]:
    async def paying() -> Made:
        try:
            return await ctx.acall(Queryable(), Wanted(1), name=f"{who}-first")
        except CardDeclined:
            return await ctx.acall(Queryable(), Wanted(2), name=f"{who}-second")

    return paying()


def gathered(claimed: Claimed, *who: str) -> list[Made]:
    ledger = a_ledger(claimed)
    ctx = context(claimed, ledger)

    async def body() -> list[Made]:
        ledger.enter_task()
        return list(await asyncio.gather(*(pay_beside(ctx, one) for one in who)))

    return asyncio.run(body())


def test_a_choice_made_in_a_task_of_its_own_stands_as_well(
    journal: Journal, claimed: Claimed
) -> None:
    DESK.then(raises(CardDeclined(NO_FUNDS, card="1")))
    paid = gathered(claimed, "ada")
    assert gathered(again(journal, claimed), "ada") == paid
    assert [request.servers for _, request in DESK.calls] == [1, 2]


def test_a_task_s_call_goes_past_no_refusal_of_another_task(
    journal: Journal, claimed: Claimed
) -> None:
    """The other may still fail of its refusal, and is asked again in the next attempt."""
    ledger = a_ledger(claimed)
    ctx = context(claimed, ledger)
    refused = asyncio.Event()

    async def fails() -> None:
        DESK.then(raises(Refused("no")))
        try:
            await ctx.acall(Queryable(), Wanted(), name="fails")
        finally:
            refused.set()

    async def asks() -> None:
        await refused.wait()
        await ctx.acall(Queryable(), Wanted(2), name="asks")

    async def body() -> None:
        ledger.enter_task()
        await asyncio.gather(fails(), asks(), return_exceptions=True)

    asyncio.run(body())
    assert journal.one("SELECT passed FROM effect WHERE state = 'refused'") is False
