"""Wallets where two rules meet: limits at once, pauses, late sweeps, raises under way, and what counts as lost."""

from decimal import Decimal
from typing import Any

import psycopg
import pytest

from models.journal import failing, runs, steps, submitting, wallets
from models.journal.call_values import Limits, NewWallet
from models.journal.values import Claimed, Output
from models.states import BlockReason
from recovery import verify
from tests.support.calling import (
    WRONG_BOOKS,
    amounts,
    at_position,
    charge,
    exceeded,
    hold,
    reservation,
    wallet,
)
from tests.support.intents import again, at_work
from tests.support.journal import Journal, Worker, row_of, submit_run

NIGHT = "night"


def limited(**limits: Any) -> Claimed:
    """A run's first step, claimed; the run was submitted with these limits."""
    return Worker().take(submit_run(row_of("a", "b"), budget=Limits(**limits)), "a")


def in_night(budget: Limits | None = None, **own: Any) -> Claimed:
    submitting.create_batch(NIGHT, "nightly", budget=budget)
    limits = Limits(**own) if own else None
    return Worker().take(submit_run(row_of("a", "b"), batch_id=NIGHT, budget=limits), "a")


def postponed(journal: Journal, claimed: Claimed, error_type: str) -> Claimed:
    """The claim after one that gave way."""
    failing.postpone(claimed, worker="worker-1", error_type=error_type, error="waits", delay=0.0)
    journal.make(claimed.run_id, due_at="2000-01-01Z")
    return Worker().take(claimed.run_id, claimed.step_key)


def test_of_several_limits_the_nearest_and_the_first_is_named(journal: Journal) -> None:
    claimed = in_night(Limits(calls=0), tokens=10, cost=Decimal(0))
    refused = exceeded(claimed)
    assert (refused.wallet_id, refused.what) == (claimed.run_id, "tokens")
    wallets.raise_limits(claimed.run_id, by="ada", reason="-", tokens=1000)
    assert exceeded(claimed).what == "cost"
    wallets.raise_limits(claimed.run_id, by="ada", reason="-", cost=Decimal(9))
    refused = exceeded(claimed)
    assert (refused.wallet_id, refused.what) == (NIGHT, "calls")


def test_what_was_dearer_than_thought_stops_requests_and_not_a_replay(journal: Journal) -> None:
    """A body that only goes over its recorded answers again pays nothing: it may start."""
    claimed = limited(tokens=150, cost=Decimal("0.15"), calls=1)
    wallets.charge(claimed, hold(claimed), charge(tokens=5000, cost="9.99"), recovery=False)
    assert wallets.check(claimed) is None
    assert exceeded(claimed, reservation(at_position(1), tokens=0, cost="0")).what == "calls"
    standing = wallets.standing(claimed.run_id)
    assert (standing.left_tokens, standing.left_cost, standing.left_calls) == (0, Decimal(0), 0)


def test_attempts_are_those_of_the_step(journal: Journal) -> None:
    claimed = limited(attempts=2)
    Worker().retry(claimed)
    journal.make(claimed.run_id, due_at="2000-01-01Z")
    following = Worker().complete_and_claim(Worker().take(claimed.run_id, "a")).claimed
    assert following is not None
    second = again(journal, following)
    assert wallets.check(second) is None
    hold(second)
    assert wallets.check(again(journal, second)) is not None


@pytest.mark.parametrize("error_type", ["throttled", "call_postponed", "budget_exceeded"])
def test_who_gave_way_has_used_no_attempt_and_lost_no_time(
    journal: Journal, error_type: str
) -> None:
    journal.freeze()
    claimed = limited(attempts=1)
    journal.advance(7)
    claimed = postponed(journal, claimed, error_type)
    assert wallets.check(claimed) is None
    assert wallets.standing(claimed.run_id).recovery_seconds == 0


def test_a_late_result_is_no_attempt(journal: Journal) -> None:
    first = limited(attempts=2)
    second = again(journal, first)
    late = Output("1", "sha256:1", "sha256:0")
    steps.keep_evidence(first, late, worker="worker-1")
    assert [outcome for _, _, outcome in journal.attempts(first.run_id)].count("superseded") == 1
    assert wallets.check(second) is None


def test_a_failure_is_an_attempt_and_no_loss(journal: Journal) -> None:
    journal.freeze()
    claimed = limited(attempts=1)
    journal.advance(7)
    Worker().retry(claimed)
    journal.make(claimed.run_id, due_at="2000-01-01Z")
    second = Worker().take(claimed.run_id, "a")
    refused = wallets.check(second)
    assert refused is not None
    assert refused.what == "attempts"
    assert wallets.standing(claimed.run_id).recovery_seconds == 0


def test_a_batch_counts_what_its_runs_lost(journal: Journal) -> None:
    journal.freeze()
    claimed = in_night()
    hold(claimed)
    wallets.charge_lost(again(journal, claimed))
    standing = wallets.standing(NIGHT)
    assert (standing.recovery_tokens, standing.recovery_cost) == (100, Decimal("0.10"))
    assert standing.recovery_seconds == 31.0


def test_the_time_of_a_lost_answer_ends_with_its_attempt(journal: Journal) -> None:
    journal.freeze()
    first = at_work()
    hold(first)
    second = again(journal, first)
    journal.advance(1000)
    wallets.charge_lost(second)
    assert journal.one("SELECT seconds FROM spend") == 31.0


def test_a_clock_that_went_back_loses_no_charge(journal: Journal) -> None:
    journal.freeze()
    first = at_work()
    journal.advance(100)
    journal.look.execute("UPDATE live SET lease_expires_at = onward_now() + interval '30 s'")
    hold(first)
    journal.advance(-90)
    journal.look.execute("UPDATE live SET lease_expires_at = onward_now()")
    wallets.charge_lost(again(journal, first))
    assert journal.one("SELECT seconds FROM spend") == 0
    assert journal.rows(WRONG_BOOKS) == []


def test_a_pause_counts_as_time_and_the_end_stops_it(journal: Journal) -> None:
    """Wall-clock: a run that waited over the weekend has taken so long, and one that is over takes no longer."""
    journal.freeze()
    claimed = limited(seconds=60.0)
    journal.advance(10)
    failing.stop(
        claimed, worker="worker-1", error_type="x", error="-", reason=BlockReason.BUDGET_EXCEEDED
    )
    journal.advance(100)
    assert wallets.standing(claimed.run_id).spent_seconds == 110
    assert wallets.standing(claimed.run_id).left_seconds == 0
    other = Worker().take(submit_run(row_of("a"), budget=Limits(seconds=60.0)), "a")
    journal.advance(5)
    Worker().complete(other)
    journal.advance(100)
    assert wallets.standing(other.run_id).spent_seconds == 5


def test_a_batchs_time_begins_with_the_first_money_set_aside(journal: Journal) -> None:
    journal.freeze()
    claimed = in_night()
    hold(claimed)
    journal.advance(20)
    wallets.raise_limits(NIGHT, by="ada", reason="-", seconds=15.0)
    refused = wallets.check(claimed)
    assert refused is not None
    assert (refused.wallet_id, refused.what, refused.spent) == (NIGHT, "seconds", 20.0)


def test_a_run_with_its_own_limit_is_paid_by_a_batch_that_had_none(journal: Journal) -> None:
    claimed = in_night(tokens=1000)
    hold(claimed)
    assert amounts(journal, NIGHT)[0] == (100, Decimal("0.10"), 1)
    assert wallet(journal, claimed.run_id)["parent_id"] == NIGHT


def test_a_run_that_needed_no_wallet_yet_gets_a_limit(journal: Journal) -> None:
    claimed = at_work()
    assert wallets.raise_limits(claimed.run_id, by="ada", reason="-", calls=0).left_calls == 0
    assert exceeded(claimed).what == "calls"


def test_every_raise_is_on_record_with_its_name(journal: Journal) -> None:
    """Also of a batch without runs, of one whose runs are over, and of a run that is."""
    submitting.create_batch(NIGHT, "nightly")
    wallets.raise_limits(NIGHT, by="ada", reason="before any run", calls=3)
    claimed = Worker().take(submit_run(row_of("a"), batch_id=NIGHT), "a")
    Worker().complete(claimed)
    wallets.raise_limits(NIGHT, by="bo", reason="after it", calls=5)
    wallets.raise_limits(claimed.run_id, by="cy", reason="late", calls=2)
    told = [(by, detail) for _, by, detail in wallets.raises(NIGHT)]
    assert told == [
        ("ada", "calls 3 of batch night: before any run"), ("bo", "calls 5 of batch night: after it"),
    ]  # fmt: skip
    assert [by for _, by, _ in wallets.raises(claimed.run_id)] == ["cy"]
    submitting.create_batch(NIGHT, "nightly", budget=Limits(calls=3))  # raised since: no conflict


@pytest.mark.parametrize(
    ("limit", "value"),
    [
        ("limit_cost", "NaN"),
        ("limit_cost", "Infinity"),
        ("limit_cost", "-0.01"),
        ("limit_seconds", "NaN"),
        ("limit_seconds", "-1"),
        ("limit_tokens", "-1"),
        ("limit_calls", "-1"),
        ("limit_attempts", "-1"),
    ],
)
def test_no_wallet_has_a_limit_that_limits_nothing(
    journal: Journal, limit: str, value: str
) -> None:
    limited(calls=1)
    statement = psycopg.sql.SQL("UPDATE wallet SET {} = {}").format(
        psycopg.sql.Identifier(limit), psycopg.sql.Literal(value)
    )
    with pytest.raises(psycopg.errors.CheckViolation, match="ck_wallet_limits"):
        journal.look.execute(statement)


@pytest.mark.parametrize("cost", ["NaN", "Infinity", "-0.01"])
def test_nothing_is_set_aside_at_a_price_that_is_none(journal: Journal, cost: str) -> None:
    claimed = at_work()
    wallets.open_wallets([NewWallet(wallet_id=claimed.run_id, kind="run")])
    with pytest.raises(psycopg.errors.CheckViolation, match="ck_hold_amounts"):
        wallets.reserve(claimed, reservation(cost=cost))
    assert amounts(journal, claimed.run_id)[0] == (0, 0, 0)


def test_a_run_that_a_person_sends_back_goes_on_with_what_it_had_left(journal: Journal) -> None:
    claimed = limited(cost=Decimal("0.25"))
    wallets.charge(claimed, hold(claimed), charge(cost="0.10"), recovery=False)
    failing.fail(claimed, worker="worker-1", error_type="ValueError", error="-")
    assert journal.run(claimed.run_id)["state"] == "failed"
    assert runs.send_back(claimed.run_id, by="ada") == ["a"]
    journal.make(claimed.run_id, due_at="2000-01-01Z")
    second = Worker().take(claimed.run_id, "a")
    assert second.wallet_id == claimed.run_id
    hold(second)
    refused = exceeded(second, reservation(at_position(1)))
    assert (refused.spent, refused.held) == (Decimal("0.10"), Decimal("0.10"))


def test_verification_holds_a_wallet_against_what_was_charged(journal: Journal) -> None:
    journal.freeze()
    claimed = in_night(tokens=1000)
    hold(claimed)
    second = again(journal, claimed)
    wallets.charge_lost(second)
    hold(second, reservation(at_position(1)))
    verdict = verify.look(claimed.run_id)
    assert [one for one in verdict.findings if one.word == "wallet_short"] == []
    assert verdict.recovery[0].startswith("recovery cost 100 tokens, 0.10 USD and 31.0 s")
    journal.look.execute(
        "UPDATE wallet SET spent_tokens = 99, held_cost = 0, recovery_tokens = 1 WHERE kind = 'run'"
    )
    said = [one.sentence for one in verify.verify(claimed.run_id) if one.word == "wallet_short"]
    assert [sentence.split(",")[0] for sentence in said] == [
        "it says 99 tokens spent", "it says 1 tokens lost to recovery", "it says 0 USD reserved",
    ]  # fmt: skip
