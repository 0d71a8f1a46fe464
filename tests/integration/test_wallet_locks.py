"""Wallets with several people at once: sweeps that come late, raises under way, and who waits for whom."""

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import psycopg
import pytest

from models.journal import submitting, wallets
from models.journal.call_values import Limits, Reserved
from models.journal.values import Claimed
from tasks import paying
from tasks.errors import EffectBlocked
from tests.support.calling import (
    WRONG_BOOKS,
    amounts,
    at_position,
    charge,
    hold,
    reservation,
)
from tests.support.intents import again, at_work
from tests.support.journal import Blocker, Journal, Worker, row_of, submit_run
from tests.support.threads import aside, at_once

NIGHT = "night"


def limited(limits: Limits) -> Claimed:
    """A run's first step, claimed; the run was submitted with these limits."""
    return Worker().take(submit_run(row_of("a", "b"), budget=limits), "a")


def in_night() -> Claimed:
    submitting.create_batch(NIGHT, "nightly")
    return Worker().take(submit_run(row_of("a", "b"), batch_id=NIGHT), "a")


def test_a_sweep_that_comes_late_charges_nothing_of_who_works_now(journal: Journal) -> None:
    first = at_work()
    hold(first)
    journal.lose()
    listed = wallets.strays(limit=10)
    assert listed == [(first.run_id, "a")]
    journal.make(first.run_id, state="pending", due_at="2000-01-01Z")
    second = Worker("worker-2", "start-2").take(first.run_id, "a")
    hold(second, reservation(at_position(1)))
    assert wallets.charge_strays(listed) == 1
    assert amounts(journal, first.run_id)[0] == (100, Decimal("0.10"), 1)


def test_a_sweep_goes_on_behind_what_it_could_not_charge(journal: Journal) -> None:
    for _ in range(3):
        hold(at_work())
    journal.lose()
    first, second, third = wallets.strays(limit=10)
    assert wallets.strays(limit=1, after=first) == [second]
    assert wallets.strays(limit=5, after=second) == [third]


def test_a_raise_under_way_is_waited_for(journal: Journal) -> None:
    """A reservation asked for while somebody raises the limit is judged by the limit it has then."""
    claimed = limited(Limits(cost=Decimal("0.05")))
    with psycopg.connect(journal.conninfo) as other:
        other.execute("UPDATE wallet SET limit_cost = 1, revision = revision + 1")
        with aside(lambda: wallets.reserve(claimed, reservation())) as reserving:
            Blocker(journal, other).wait_for(1)
            other.commit()
            assert reserving.result() == Reserved()
    assert amounts(journal, claimed.run_id)[0] == (100, Decimal("0.10"), 1)


def test_raises_reservations_and_settlements_never_lock_each_other_out(journal: Journal) -> None:
    submitting.create_batch(NIGHT, "nightly")
    claims = [
        Worker().take(submit_run(row_of("a", "b"), batch_id=NIGHT), "a") for _ in range(8)
    ]  # fmt: skip

    def spending(claimed: Claimed, number: int) -> Callable[[], object]:
        made = reservation(at_position(number))
        return lambda: wallets.charge(claimed, hold(claimed, made), charge(), recovery=False)

    def raising(owner_id: str, number: int) -> Callable[[], object]:
        return lambda: wallets.raise_limits(
            owner_id, by="ada", reason="-", tokens=10_000 + number
        )  # fmt: skip

    for number in range(5):
        at_once(
            *(spending(claimed, number) for claimed in claims),
            *(raising(claimed.run_id, number) for claimed in claims[:4]),
            raising(NIGHT, number),
            raising(NIGHT, number),
        )
    assert journal.deadlocks() == 0
    assert journal.rows(WRONG_BOOKS) == []
    assert amounts(journal, NIGHT)[1] == (40 * 12, Decimal("0.80"), 40)


Settle = Callable[[Claimed, Claimed], object]
SETTLERS: dict[str, Settle] = {
    "reserve": lambda one, _: wallets.reserve(one, reservation(at_position(1))),
    "charge": lambda one, _: wallets.charge(one, reservation(), charge(), recovery=False),
    "charge lost": lambda one, _: wallets.charge_lost(one),
    "sweep": lambda one, two: wallets.charge_strays([(two.run_id, "a"), (one.run_id, "a")]),
}


@pytest.mark.parametrize("name", SETTLERS)
def test_wallets_are_locked_from_the_run_upwards_and_runs_by_their_ids(
    journal: Journal, name: str
) -> None:
    """Whoever waits for a wallet holds none that comes after it: so nobody waits in a circle."""
    one, two = sorted((in_night(), in_night()), key=lambda claimed: claimed.run_id)
    hold(two)
    hold(one)
    if name in ("charge lost", "sweep"):
        journal.look.execute("UPDATE live SET token = token + 1")
        one, two = replace(one, token=one.token + 1), replace(two, token=two.token + 1)
    with psycopg.connect(journal.conninfo) as other:
        other.execute("SELECT 1 FROM wallet WHERE wallet_id = %s FOR UPDATE", (one.run_id,))
        with aside(lambda: SETTLERS[name](one, two)) as waiting:
            Blocker(journal, other).wait_for(1)
            other.execute(
                "SELECT 1 FROM wallet WHERE wallet_id = ANY(%s) FOR UPDATE NOWAIT",
                ([NIGHT, two.run_id],),
            )
            other.commit()
            waiting.result()
    assert journal.rows(WRONG_BOOKS) == []


def test_a_limit_set_meanwhile_holds_for_the_next_step_in_place(journal: Journal) -> None:
    run_id = submit_run(row_of("a", "b"))
    claimed = Worker().take(run_id, "a")
    assert claimed.wallet_id is None
    wallets.raise_limits(run_id, by="ada", reason="too slow", seconds=0.001)
    following = Worker().complete_and_claim(claimed).claimed
    assert following is not None
    assert following.wallet_id == run_id
    with pytest.raises(EffectBlocked, match="may take 0"):
        paying.require_budget(following)


def test_a_batchs_first_limit_holds_for_a_run_that_was_submitted_meanwhile(
    journal: Journal,
) -> None:
    """Neither saw the other: the run has no wallet, and its batch has one."""
    submitting.create_batch("night", "nightly")
    run_id = submit_run(row_of("a", "b"), batch_id="night")
    wallets.raise_limits("night", by="ada", reason="too dear", attempts=1)
    journal.look.execute("UPDATE run SET wallet_id = NULL")
    journal.look.execute("DELETE FROM wallet WHERE kind = 'run'")
    journal.look.commit()
    first = Worker().take(run_id, "a")
    assert first.wallet_id == "night"
    paying.require_budget(first)
    second = again(journal, first)
    with pytest.raises(EffectBlocked, match="attempted 1 times, and batch night"):
        paying.require_budget(second)
    following = Worker().complete_and_claim(second).claimed
    assert following is not None
    assert following.wallet_id == "night"
