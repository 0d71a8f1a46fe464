"""What one call writes, gives and costs, and what the next attempt gets for the same call."""

from collections.abc import Iterator

import pytest

from models.journal.values import Claimed
from models.states import BlockReason
from tasks import Context, Refused
from tasks.effects import Ledger
from tasks.errors import (
    EffectBlocked,
    EffectGivenUp,
    EffectUnknown,
    EffectWithheld,
)
from tests.support.desk import (
    DESK,
    Idempotent,
    Made,
    Queryable,
    Read,
    Wanted,
    a_context,
    a_ledger,
    patient,
    raises,
)
from tests.support.intents import again, at_work, settle_as, stories
from tests.support.journal import Journal
from tests.support.meter import meter


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


def rows(journal: Journal, table: str = "effects") -> list[tuple[str, str, str]]:
    found = journal.rows("SELECT key, tool, state FROM effects ORDER BY created_at, key")
    return [(row["key"], row["tool"], row["state"]) for row in found]


def key(claimed: Claimed, tool: str, place: int = 1) -> str:
    return f"{claimed.run_id}:a:{tool}:{place}"


def test_a_call_is_recorded_and_gives_what_the_journal_would(
    journal: Journal, claimed: Claimed
) -> None:
    given = context(claimed).call(Queryable(), Wanted(3, at="noon", token="s3cret"))  # noqa: S106

    assert given == Made("res-1", 3)
    assert DESK.calls == [(key(claimed, "desk.queryable"), Wanted(3, "noon", "s3cret"))]
    (row,) = journal.rows("SELECT * FROM effect_settlement")
    assert (row["key"], row["source"], row["sends"]) == (
        key(claimed, "desk.queryable"),
        "answer",
        1,
    )
    assert row["request"] == '{"servers":3,"at":"noon"}'
    assert row["result"] == '{"resource_id":"res-1","servers":3}'
    assert not journal.rows("SELECT * FROM effect")


def test_a_call_is_two_commits_and_its_replay_none(journal: Journal, claimed: Claimed) -> None:
    ctx = context(claimed)
    ctx.call(Queryable(), Wanted())  # statements are prepared
    with meter(journal) as first:
        for _ in range(20):
            ctx.call(Queryable(), Wanted())
    later = context(again(journal, claimed))
    with meter(journal) as replay:
        for number in range(1, 22):
            assert later.call(Queryable(), Wanted()) == Made(f"res-{number}")
    assert 40 <= first.durable <= 42  # a vacuum of the server's own may come in between
    assert first.statements <= 44
    assert replay.durable <= 2
    assert len(DESK.calls) == 21


def test_a_pure_call_is_one_commit_and_asked_again_for_another_request(
    journal: Journal, claimed: Claimed
) -> None:
    ctx = context(claimed)
    ctx.call(Read(), Wanted())
    with meter(journal) as spent:
        for _ in range(20):
            ctx.call(Read(), Wanted(2))
    assert 20 <= spent.durable <= 22

    later = context(again(journal, claimed))
    assert later.call(Read(), Wanted()) == Made("res-1")
    assert later.call(Read(), Wanted(9)) == Made("res-22", 9)


def test_calls_are_known_by_place_for_each_tool_or_by_name(
    journal: Journal, claimed: Claimed
) -> None:
    ctx = context(claimed)
    for tool in (Queryable(), Idempotent(), Queryable()):
        ctx.call(tool, Wanted())
    ctx.call(Queryable(), Wanted(), name="the third")

    assert {found[0] for found in rows(journal)} == {
        key(claimed, "desk.queryable"), key(claimed, "desk.queryable", 2), key(claimed, "desk.idempotent"),
        f"{claimed.run_id}:a:desk.queryable::the%20third",
    }  # fmt: skip


def test_the_next_attempt_replays_what_was_settled_and_goes_on(
    journal: Journal, claimed: Claimed
) -> None:
    ctx = context(claimed)
    for servers in (1, 2):
        ctx.call(Queryable(), Wanted(servers, at="first"))
    next_ledger = a_ledger(later := again(journal, claimed))
    ctx = context(later, next_ledger)
    results = [
        ctx.call(Queryable(), Wanted(n, at="second", token="new"))  # noqa: S106
        for n in (1, 2, 3)
    ]
    assert results == [Made("res-1"), Made("res-2", 2), Made("res-3", 3)]
    assert len(DESK.calls) == 3
    assert next_ledger.close() is None


def test_a_refusal_is_the_bodys_and_may_be_asked_again(journal: Journal, claimed: Claimed) -> None:
    ledger = a_ledger(claimed)
    DESK.then(raises(Refused("no such customer")))
    with pytest.raises(Refused, match="no such customer"):
        context(claimed, ledger).call(Queryable(), Wanted())
    assert ledger.close() is None
    assert [state for _, _, state in rows(journal)] == ["refused"]

    assert context(again(journal, claimed)).call(Queryable(), Wanted()) == Made("res-2")


def test_any_other_error_leaves_it_unknown_and_stops_the_step(
    journal: Journal, claimed: Claimed
) -> None:
    ledger = a_ledger(claimed)
    DESK.then(raises(ConnectionError("cut off")))
    with pytest.raises(EffectUnknown, match="may have happened: ConnectionError: cut off"):
        context(claimed, ledger).call(Queryable(), Wanted())
    assert isinstance(ledger.close(), EffectUnknown)
    (row,) = journal.rows("SELECT * FROM effect")
    assert (row["state"], row["call_over"]) == ("unknown", True)


def test_a_body_that_swallows_the_stop_cannot_go_on_calling(
    journal: Journal, claimed: Claimed
) -> None:
    ledger = a_ledger(claimed)
    ctx = context(claimed, ledger)
    DESK.then(raises(TimeoutError()))
    with pytest.raises(EffectUnknown) as stopped:
        ctx.call(Queryable(), Wanted())
    with pytest.raises(EffectUnknown):
        ctx.call(Idempotent(), Wanted())
    assert len(DESK.calls) == 1
    assert ledger.close() is stopped.value


def test_in_doubt_the_next_attempt_asks_nothing_unless_the_key_is_honoured(
    journal: Journal, claimed: Claimed
) -> None:
    for tool in (Queryable(), Idempotent()):
        DESK.then(raises(ConnectionError()))
        with pytest.raises(EffectUnknown):
            context(claimed).call(tool, Wanted())
    later = again(journal, claimed)
    assert context(later).call(Idempotent(), Wanted()) == Made("res-3")
    with pytest.raises(EffectUnknown, match="an earlier attempt may have sent it"):
        context(later).call(Queryable(), Wanted())


def test_another_request_under_the_same_key_is_neither_answered_nor_sent(
    journal: Journal, claimed: Claimed
) -> None:
    context(claimed).call(Queryable(), Wanted(1))
    ledger = a_ledger(later := again(journal, claimed))
    with pytest.raises(EffectBlocked, match="bound to another request, which is settled") as stop:
        context(later, ledger).call(Queryable(), Wanted(10))
    assert stop.value.reason is BlockReason.IDEMPOTENCY_CONFLICT
    assert len(DESK.calls) == 1
    assert ledger.close() is stop.value


def test_what_a_person_abandoned_is_a_failure_that_the_body_may_handle(
    journal: Journal, claimed: Claimed
) -> None:
    DESK.then(raises(ConnectionError()))
    with pytest.raises(EffectUnknown):
        context(claimed).call(Queryable(), Wanted())
    settle_as(journal, "abandoned", key=key(claimed, "desk.queryable"), reason="sold the company")
    ledger = a_ledger(later := again(journal, claimed))
    with pytest.raises(EffectGivenUp, match="sold the company"):
        context(later, ledger).call(Queryable(), Wanted())
    assert ledger.close() is None


def test_a_held_run_sends_nothing_new(journal: Journal, claimed: Claimed) -> None:
    journal.look.execute("UPDATE run SET hold = 'cancel', cancellation_id = 'c'")
    with pytest.raises(EffectWithheld, match="the run is held"):
        context(claimed).call(Queryable(), Wanted())
    assert not DESK.calls


def test_a_result_that_cannot_be_recorded_is_a_persons_business_and_never_sent_again(
    journal: Journal, claimed: Claimed
) -> None:
    ledger = a_ledger(claimed)
    DESK.then(lambda: Made("res-7", servers={1, 2}))  # type: ignore[arg-type]
    with pytest.raises(
        EffectBlocked, match="it happened, but its result cannot be recorded"
    ) as stop:
        context(claimed, ledger).call(Idempotent(), Wanted())
    assert stop.value.reason is BlockReason.UNSERIALISABLE_OUTPUT
    (row,) = journal.rows("SELECT * FROM effect")
    assert (row["state"], row["call_over"]) == ("unknown", True)
    assert "res-7" in row["person"]
    assert [kind for kind, _ in stories(journal, claimed.run_id)] == ["effect_needs_person"]

    with pytest.raises(EffectUnknown, match="it happened"):
        context(again(journal, claimed)).call(Idempotent(), Wanted())
    assert len(DESK.calls) == 1


def test_what_cannot_be_recorded_of_a_request_is_refused_before_anything_is_sent(
    journal: Journal, claimed: Claimed
) -> None:
    ledger = a_ledger(claimed)
    with pytest.raises(Exception, match="does not fit its annotation"):
        context(claimed, ledger).call(Queryable(), Wanted(servers="many"))  # type: ignore[arg-type]
    assert not DESK.calls
    assert not rows(journal)
    assert ledger.close() is None


def test_an_async_tool_is_run_to_its_end(claimed: Claimed) -> None:
    assert context(claimed).call(patient, Wanted()) == Made("res-1")
