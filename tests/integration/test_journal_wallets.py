"""Money: set aside before anything is sent, settled once, and never less than what may have been billed."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from models.journal import failing, runs, submitting, wallets
from models.journal.call_values import Exceeded, Limits, NewWallet, Reserved
from models.journal.effect_values import Withheld
from models.journal.errors import LeaseLost
from models.journal.values import Claimed
from tests.support.calling import (
    amounts,
    at_position,
    charge,
    charge_strays,
    exceeded,
    hold,
    reservation,
    wallet,
)
from tests.support.intents import again, at_work
from tests.support.journal import Journal, Worker, row_of, submit_run

ZERO = (0, 0, 0)


def with_limits(**limits: Any) -> Claimed:
    """A run's first step, claimed; its wallet has these limits."""
    claimed = at_work()
    wallets.open_wallets([NewWallet(wallet_id=claimed.run_id, kind="run", limits=Limits(**limits))])
    return claimed


def in_batch(count: int = 1, *, batch: Limits | None = None) -> tuple[str, list[Claimed]]:
    batch_id = "night"
    submitting.create_batch(batch_id, "nightly")
    run_ids = [submit_run(row_of("a", "b"), batch_id=batch_id) for _ in range(count)]
    if batch is not None:
        wallets.open_wallets([NewWallet(wallet_id=batch_id, kind="batch", limits=batch)])
    return batch_id, [Worker().take(run_id, "a") for run_id in run_ids]


def test_a_wallet_is_opened_when_it_is_first_needed(journal: Journal) -> None:
    claimed = at_work()
    assert journal.rows("SELECT 1 FROM wallet") == []
    assert wallets.standing(claimed.run_id).spent_tokens == 0
    hold(claimed)
    row = wallet(journal, claimed.run_id)
    assert (row["kind"], row["parent_id"], row["limit_tokens"]) == ("run", None, None)
    assert journal.run(claimed.run_id)["wallet_id"] == claimed.run_id
    assert amounts(journal, claimed.run_id) == ((100, Decimal("0.10"), 1), ZERO)


def test_a_batch_has_what_its_runs_have(journal: Journal) -> None:
    batch_id, (one, two) = in_batch(2)
    hold(one)
    hold(two, reservation(tokens=50, cost="0.01"))
    assert wallet(journal, one.run_id)["parent_id"] == batch_id
    assert amounts(journal, batch_id) == ((150, Decimal("0.11"), 2), ZERO)
    wallets.charge(one, reservation(), charge(), recovery=False)
    wallets.release(two, reservation())
    assert amounts(journal, batch_id) == (ZERO, (12, Decimal("0.02"), 1))
    assert amounts(journal, two.run_id) == (ZERO, ZERO)


@pytest.mark.parametrize(
    ("limits", "what", "limit"),
    [
        ({"tokens": 250}, "tokens", 250),
        ({"cost": Decimal("0.25")}, "cost", Decimal("0.25")),
        ({"calls": 2}, "calls", 2),
    ],
)
def test_a_limit_is_not_passed(
    journal: Journal, limits: dict[str, Any], what: str, limit: int | Decimal
) -> None:
    claimed = with_limits(**limits)
    hold(claimed)
    hold(claimed, reservation(at_position(1)))
    before = journal.image(), amounts(journal, claimed.run_id)
    refused = exceeded(claimed, reservation(at_position(2)))
    assert (refused.wallet_id, refused.what, refused.limit) == (claimed.run_id, what, limit)
    assert refused.held == 2 * (refused.asked or 0)
    assert type(refused.limit) is type(limit)
    assert (journal.image(), amounts(journal, claimed.run_id)) == before
    wallets.release(claimed, reservation())
    hold(claimed, reservation(at_position(2)))


def test_a_limit_may_be_reached_exactly(journal: Journal) -> None:
    claimed = with_limits(cost=Decimal("0.30"))
    hold(claimed, reservation(cost="0.10"))
    wallets.charge(claimed, reservation(cost="0.10"), charge(cost="0.10"), recovery=False)
    hold(claimed, reservation(at_position(1), cost="0.20"))
    assert exceeded(claimed, reservation(at_position(2), cost="0.000001")).what == "cost"
    hold(claimed, reservation(at_position(2), cost="0"))


def test_the_limit_of_a_batch_holds_for_each_of_its_runs(journal: Journal) -> None:
    batch_id, (one, two) = in_batch(2, batch=Limits(tokens=150))
    hold(one)
    refused = exceeded(two)
    assert (refused.wallet_id, refused.what, refused.held) == (batch_id, "tokens", 100)
    assert amounts(journal, two.run_id) == (ZERO, ZERO)
    wallets.charge(one, reservation(), charge(tokens=20), recovery=False)
    hold(two)


def test_a_chain_of_any_length_is_paid(journal: Journal) -> None:
    batch_id, (parent, child) = in_batch(2)
    journal.look.execute(
        "INSERT INTO wallet (wallet_id, kind, parent_id, limit_calls) VALUES (%s, 'run', %s, 2)",
        (parent.run_id, batch_id),
    )
    wallets.open_wallets(
        [NewWallet(wallet_id=child.run_id, kind="run", parent_id=parent.run_id),
         NewWallet(wallet_id=batch_id, kind="batch")]
    )  # fmt: skip
    hold(child)
    hold(child, reservation(at_position(1)))
    for wallet_id in (child.run_id, parent.run_id, batch_id):
        assert amounts(journal, wallet_id)[0] == (200, Decimal("0.20"), 2)
    assert exceeded(child, reservation(at_position(2))).wallet_id == parent.run_id
    second = replace(child, token=child.token + 1)
    assert wallets.charge_lost(second) == 2
    for wallet_id in (child.run_id, parent.run_id, batch_id):
        assert amounts(journal, wallet_id) == (ZERO, (200, Decimal("0.20"), 2))


def test_an_unknown_price_meets_no_limit_on_cost(journal: Journal) -> None:
    claimed = with_limits(cost=Decimal(1))
    assert exceeded(claimed, reservation(cost=None)) == Exceeded(
        claimed.run_id, "cost", Decimal(1), Decimal(0), Decimal(0), None
    )
    free = at_work()
    hold(free, reservation(cost=None))
    wallets.charge(free, reservation(cost=None), charge(cost=None), recovery=False)
    assert amounts(journal, free.run_id) == (ZERO, (12, 0, 1))
    assert journal.one("SELECT cost FROM spend") is None


def test_the_time_of_a_run_is_limited_from_its_start(journal: Journal) -> None:
    journal.freeze()
    claimed = with_limits(seconds=20.0)
    journal.advance(20)
    assert wallets.check(claimed) is None
    hold(claimed)
    journal.advance(1)
    assert wallets.check(claimed) == Exceeded(claimed.run_id, "seconds", 20.0, 21.0, 0.0, 0.0)
    assert exceeded(claimed, reservation(at_position(1))).what == "seconds"
    assert wallets.standing(claimed.run_id).left_seconds == 0


def test_the_time_of_a_batch_is_limited_from_the_start_of_its_first_run(journal: Journal) -> None:
    journal.freeze()
    batch_id, (one, two) = in_batch(2, batch=Limits(seconds=15.0))
    wallets.open_wallets([NewWallet(wallet_id=one.run_id, kind="run")])
    journal.advance(10)
    assert wallets.check(one) is None
    journal.advance(15)
    assert wallets.check(two) is None
    journal.advance(1)
    refused = wallets.check(two)
    assert refused is not None
    assert (refused.wallet_id, refused.what, refused.spent) == (batch_id, "seconds", 16.0)


def test_attempts_are_limited_whatever_ended_them_but_for_waits(journal: Journal) -> None:
    journal.freeze()
    claimed = with_limits(attempts=3)
    worker = Worker()
    worker.retry(claimed)
    for error_type in ("call_postponed", "throttled"):
        journal.make(claimed.run_id, due_at="2000-01-01Z")
        claimed = worker.take(claimed.run_id, "a")
        assert wallets.check(claimed) is None
        failing.postpone(
            claimed, worker="worker-1", error_type=error_type, error="waits", delay=0.0
        )
    journal.make(claimed.run_id, due_at="2000-01-01Z")
    third = again(journal, worker.take(claimed.run_id, "a"))
    assert wallets.check(third) is None
    hold(third)
    fourth = again(journal, third)
    assert wallets.check(fourth) == Exceeded(claimed.run_id, "attempts", 3, 3, 0, 1)
    assert exceeded(fourth).what == "attempts"
    wallets.raise_limits(claimed.run_id, by="ada", reason="once more", attempts=4)
    assert wallets.check(fourth) is None


def test_a_step_without_a_wallet_is_checked_against_nothing(journal: Journal) -> None:
    assert wallets.check(at_work()) is None
    assert journal.rows("SELECT 1 FROM wallet") == []


@pytest.mark.parametrize("tries", [2, 5])
def test_the_same_reservation_is_held_once(journal: Journal, tries: int) -> None:
    claimed = with_limits(calls=1)
    for _ in range(tries):
        assert wallets.reserve(claimed, reservation()) == Reserved()
    assert amounts(journal, claimed.run_id) == ((100, Decimal("0.10"), 1), ZERO)
    assert exceeded(claimed, reservation(send=1)).what == "calls"


def test_what_is_settled_is_settled_once(journal: Journal) -> None:
    claimed = at_work()
    made = hold(claimed)
    assert wallets.charge(claimed, made, charge(), recovery=False)
    before = journal.image(), amounts(journal, claimed.run_id)
    assert not wallets.charge(claimed, made, charge(), recovery=True)
    wallets.release(claimed, made)
    assert (journal.image(), amounts(journal, claimed.run_id)) == before


@pytest.mark.parametrize(
    "change",
    [{"run_id": "run-none"}, {"branch": "0/1.0"}, {"step_key": "b"}, {"token": 2}, {"owner": "x"}],
)
def test_only_the_holder_reserves(journal: Journal, change: dict[str, Any]) -> None:
    claimed = at_work()
    hold(claimed)
    before = journal.image(), amounts(journal, claimed.run_id)
    other = replace(claimed, **change)
    for act in (
        lambda: wallets.reserve(other, reservation(at_position(1))),
        lambda: wallets.check(other),
    ):
        with pytest.raises(LeaseLost, match="nothing more is sent for it here"):
            act()
    assert (journal.image(), amounts(journal, claimed.run_id)) == before


def test_a_lease_that_is_over_reserves_nothing(journal: Journal) -> None:
    journal.freeze()
    claimed = at_work()
    journal.advance(31)
    with pytest.raises(LeaseLost):
        wallets.reserve(claimed, reservation())


def test_a_cancelled_run_reserves_nothing(journal: Journal) -> None:
    claimed = at_work()
    hold(claimed)
    runs.cancel(claimed.run_id, by="ada", reason="enough", cancellation_id="c-1")
    assert wallets.reserve(claimed, reservation(at_position(1))) == Withheld("cancel")
    assert amounts(journal, claimed.run_id) == ((100, Decimal("0.10"), 1), ZERO)


def test_siblings_of_a_failed_step_may_go_on(journal: Journal) -> None:
    claimed = at_work()
    journal.look.execute("UPDATE run SET hold = 'failed' WHERE run_id = %s", (claimed.run_id,))
    hold(claimed)


def test_what_a_lost_claim_held_is_charged_in_full(journal: Journal) -> None:
    journal.freeze()
    first = at_work()
    hold(first)
    hold(first, reservation(at_position(0, "/2"), tokens=50, cost=None))
    second = again(journal, first)
    hold(second, reservation(at_position(1)))
    assert wallets.charge_lost(second) == 2
    assert wallets.charge_lost(second) == 0
    held, spent = amounts(journal, first.run_id)
    assert (held, spent) == ((100, Decimal("0.10"), 1), (150, Decimal("0.10"), 2))
    standing = wallets.standing(first.run_id)
    assert (standing.recovery_tokens, standing.recovery_cost) == (150, Decimal("0.10"))
    assert standing.recovery_seconds == 31.0
    found = journal.rows("SELECT recovery, seconds, token, cost FROM spend ORDER BY tokens")
    assert [(row["recovery"], row["seconds"], row["token"], row["cost"]) for row in found] == [
        (True, 31.0, 1, None), (True, 31.0, 1, Decimal("0.10")),
    ]  # fmt: skip


def test_the_sweep_charges_what_nobody_settles_any_more(journal: Journal) -> None:
    journal.freeze()
    _, (dead, alive, done) = in_batch(3)
    for claimed in (dead, alive, done):
        hold(claimed)
    journal.make(alive.run_id, lease_expires_at="2100-01-01Z")
    Worker().complete(done)
    assert journal.lose() == 1
    assert charge_strays(1) == 1
    assert charge_strays(100) == 1
    assert charge_strays(100) == 0
    assert amounts(journal, alive.run_id)[0] == (100, Decimal("0.10"), 1)
    assert amounts(journal, dead.run_id) == (ZERO, (100, Decimal("0.10"), 1))
    assert wallets.standing(done.run_id).recovery_tokens == 100


def test_a_late_answer_of_a_charged_hold_costs_nothing_more(journal: Journal) -> None:
    journal.freeze()
    first = at_work()
    made = hold(first)
    wallets.charge_lost(again(journal, first))
    assert not wallets.charge(first, made, charge(tokens=5000), recovery=True)
    assert amounts(journal, first.run_id) == (ZERO, (100, Decimal("0.10"), 1))


def test_ten_dead_owners_never_look_cheaper_than_what_was_billed(journal: Journal) -> None:
    journal.freeze()
    claimed, billed = with_limits(tokens=1000), 0
    for _ in range(10):
        hold(claimed)
        billed += 100
        standing = wallets.standing(claimed.run_id)
        assert standing.spent_tokens + standing.held_tokens >= billed
        claimed = again(journal, claimed)
        wallets.charge_lost(claimed)
        standing = wallets.standing(claimed.run_id)
        assert (standing.spent_tokens, standing.held_tokens) == (billed, 0)
    assert exceeded(claimed, reservation(tokens=1)).what == "tokens"
    standing = wallets.standing(claimed.run_id)
    assert (standing.recovery_tokens, standing.left_tokens, standing.spent_calls) == (1000, 0, 10)
