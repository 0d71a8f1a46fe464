"""Wallets that are opened late, raised, or another run's."""

from decimal import Decimal
from typing import Any

import psycopg
import pytest

from models.journal import submitting, wallets
from models.journal.call_values import Limits, NewWallet
from models.journal.errors import Refused, UnknownRun
from models.journal.values import Claimed
from tests.support.calling import (
    HERE,
    exceeded,
    hold,
)
from tests.support.intents import at_work
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


def test_raising_a_limit_has_a_name(journal: Journal) -> None:
    claimed = with_limits(tokens=50, calls=7)
    exceeded(claimed)
    standing = wallets.raise_limits(
        claimed.run_id, by="ada", reason="worth it", tokens=100, cost=Decimal(2)
    )
    assert (standing.limits, standing.left_cost) == (
        Limits(tokens=100, cost=Decimal(2), calls=7), Decimal(2)
    )  # fmt: skip
    hold(claimed)
    (event,) = journal.rows("SELECT * FROM event WHERE kind = 'budget_raised'")
    assert (event["run_id"], event["actor"]) == (claimed.run_id, "ada")
    assert event["detail"] == f"tokens 100, cost 2 of run {claimed.run_id}: worth it"


def test_a_batch_gets_a_limit_later(journal: Journal) -> None:
    batch_id, (one, two) = in_batch(2)
    hold(one)
    wallets.raise_limits(batch_id, by="ada", reason="too dear", calls=1)
    assert exceeded(two).wallet_id == batch_id
    events = journal.rows("SELECT run_id FROM event WHERE kind = 'budget_raised'")
    assert {row["run_id"] for row in events} == {batch_id, one.run_id, two.run_id}


def test_a_batch_without_calls_gets_a_limit(journal: Journal) -> None:
    batch_id, (one,) = in_batch(1)
    assert wallets.raise_limits(batch_id, by="ada", reason="-", calls=0).left_calls == 0
    assert exceeded(one).wallet_id == batch_id


def test_what_cannot_be_raised_is_said(journal: Journal) -> None:
    with pytest.raises(Refused, match="No limit"):
        wallets.raise_limits(at_work().run_id, by="ada", reason="-")
    with pytest.raises(UnknownRun, match="no run or batch 'run-none'"):
        wallets.standing("run-none")
    with pytest.raises(UnknownRun, match="no run or batch 'run-none'"):
        wallets.raise_limits("run-none", by="ada", reason="-", calls=1)


def test_an_open_wallet_stays_as_it_is(journal: Journal) -> None:
    claimed = with_limits(calls=1)
    hold(claimed)
    wallets.open_wallets([NewWallet(wallet_id=claimed.run_id, kind="run", limits=Limits(calls=9))])
    wallets.open_wallets([])
    assert wallets.standing(claimed.run_id).limits == Limits(calls=1)


def test_a_run_may_pay_from_the_wallet_of_another(journal: Journal) -> None:
    origin, fork = with_limits(calls=1), at_work()
    journal.look.execute(
        "UPDATE run SET wallet_id = %s WHERE run_id = %s", (origin.run_id, fork.run_id)
    )
    hold(fork)
    assert exceeded(origin).wallet_id == origin.run_id
    assert wallets.standing(fork.run_id).wallet_id == origin.run_id


@pytest.mark.parametrize(
    "column",
    ["spent_tokens", "spent_cost", "spent_calls", "held_tokens", "held_cost", "held_calls"],
)
def test_no_amount_is_below_zero(journal: Journal, column: str) -> None:
    hold(at_work())
    statement = psycopg.sql.SQL("UPDATE wallet SET {} = -1").format(psycopg.sql.Identifier(column))
    with pytest.raises(psycopg.errors.CheckViolation, match="ck_wallet_amounts"):
        journal.look.execute(statement)
    assert HERE.position == 0
