"""Budgets as they are written, and what is said when one is used up."""

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from models.journal.call_values import Exceeded, Limits, Standing
from models.journal.values import Claimed
from models.states import BlockReason
from tasks import Budget, Context, step, workflow
from tasks.budgets import BudgetError, RunBudget, amount, dollars, refusal, view_of
from tasks.errors import DefinitionError

CLAIMED = Claimed(
    run_id="run-1", branch="0", step_key="ask", prev_key=None, token=4, owner="o", attempt=4, failures=0,
    crashes=3, pardoned_failures=0, batch_id="batch-1", claimed_at=datetime(2030, 1, 1, tzinfo=UTC),
    step_name="w.ask", arguments="{}", input_kind="none", next_key=None, fork=None, joins=None,
    join_index=None, untracked=False, queue="q", wallet_id="run-1", piped=None, after=None,
)  # fmt: skip


@pytest.mark.parametrize("cost", ["0.30", 0.30, Decimal("0.30")])
def test_a_cost_is_what_was_written(cost: Any) -> None:
    assert Budget(cost=cost).limits == Limits(cost=Decimal("0.3"))


def test_a_budget_is_its_limits() -> None:
    budget = Budget(tokens=10_000, cost=1, calls=3, seconds=60, attempts=5)
    assert budget.limits == Limits(tokens=10_000, cost=Decimal(1), calls=3, seconds=60, attempts=5)
    assert Budget.of(budget) is budget
    assert Budget.of({"cost": "1.00", "attempts": 5}) == Budget(cost="1.00", attempts=5)
    assert Budget.of(None) is None


def test_nothing_may_be_spent_is_a_budget_too() -> None:
    assert Budget(calls=0).limits == Limits(calls=0)
    assert Budget(cost=0).limits == Limits(cost=Decimal(0))


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ({}, "at least one limit"),
        ({"tokens": -1}, "tokens must be a whole number, 0 or more, not -1"),
        ({"tokens": 1.5}, "tokens must be a whole number"),
        ({"calls": True}, "calls must be a whole number"),
        ({"calls": 2**63}, "calls must be a whole number"),
        ({"attempts": 0}, "attempts must be a whole number, 1 or more"),
        ({"cost": "five"}, "cost must be US dollars, such as '5.00', not 'five'"),
        ({"cost": "-1"}, "cost must be US dollars"),
        ({"cost": "1e-20000"}, "cost must be US dollars"),
        ({"seconds": 10**400}, "seconds must be a number above 0"),
        ({"seconds": float("inf")}, "seconds must be a number above 0"),
        ({"cost": "sNaN"}, "cost must be US dollars"),
        ({"cost": "nan"}, "cost must be US dollars"),
        ({"cost": float("inf")}, "cost must be US dollars"),
        ({"cost": True}, "cost must be US dollars"),
        ({"cost": [1]}, "cost must be US dollars"),
        ({"seconds": 0}, "seconds must be a number above 0"),
        ({"seconds": "60"}, "seconds must be a number above 0"),
        ({"seconds": float("nan")}, "seconds must be a number above 0"),
    ],
)
def test_a_budget_that_cannot_be_meant_is_refused(limits: dict[str, Any], says: str) -> None:
    with pytest.raises(BudgetError) as refused:
        Budget(**limits)
    assert says in str(refused.value)


def test_a_mapping_with_an_unknown_limit_is_refused() -> None:
    with pytest.raises(BudgetError, match=r"no 'dollars'"):
        Budget.of({"dollars": 5})
    with pytest.raises(BudgetError, match=r"takes Budget"):
        Budget.of("5.00")


def test_a_workflow_takes_a_budget_and_nothing_else() -> None:
    @step()
    def only(ctx: Context) -> None:
        """Nothing."""

    bad: Any = {"cost": 5}
    with pytest.raises(DefinitionError, match=r"budget= takes Budget"):

        @workflow("wrongly-budgeted", version="1", budget=bad)
        def flow() -> Any:
            return only.s()


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("0.9", "0.90 USD"), ("1", "1.00 USD"), ("0.0000135", "0.0000135 USD"), ("0.300", "0.30 USD"),
        ("1E+2", "100.00 USD"), ("0", "0.00 USD"), ("12.345", "12.345 USD"),
    ],
)  # fmt: skip
def test_dollars_show_every_digit_that_was_counted(value: str, shown: str) -> None:
    assert dollars(Decimal(value)) == shown


def test_amounts_have_their_unit() -> None:
    assert amount("tokens", 12_345) == "12,345 tokens"
    assert amount("seconds", 61.44) == "61.4 s"
    assert amount("seconds", 3600.0) == "3,600 s"
    assert amount("cost", None) == "no limit"


def exceeded(what: Any, limit: Any, *, spent: Any, held: Any = 0, asked: Any = 1) -> Exceeded:
    return Exceeded("run-1", what, limit, spent, held, asked)


def test_what_stops_a_step_says_all_figures_and_how_to_go_on() -> None:
    stop = refusal(
        exceeded("cost", Decimal("1.00"), spent=Decimal("0.90"), asked=Decimal("0.30")), CLAIMED
    )
    assert stop.reason == BlockReason.BUDGET_EXCEEDED
    said = str(stop)
    for part in (
        "step 'ask' may take 0.30 USD", "0.10 USD left", "limit 1.00 USD", "spent 0.90 USD", "reserved 0.00 USD",
        "Nothing was sent.", "`onward runs budget run-1 --cost 1.20 --reason ...`", "`onward runs resume run-1`",
    ):  # fmt: skip
        assert part in said


def test_a_batchs_limit_is_raised_at_the_batch() -> None:
    stop = refusal(replace(exceeded("calls", 5, spent=4, held=1), wallet_id="batch-1"), CLAIMED)
    assert "`onward batch budget batch-1 --calls 6 --reason ...`" in str(stop)
    assert "the budget of batch batch-1 has 0 calls left" in str(stop)


def test_attempts_and_time_are_told_in_their_own_words() -> None:
    tries = str(refusal(exceeded("attempts", 3, spent=3), CLAIMED))
    assert "step 'ask' was attempted 3 times" in tries
    assert "--attempts 4" in tries
    late = str(refusal(exceeded("seconds", 60.0, spent=61.5, asked=0), CLAIMED))
    assert "began 61.5 s ago and may take 60 s" in late
    assert "--seconds 124" in late


def test_an_unknown_price_names_the_model_and_the_setting() -> None:
    unknown = exceeded("cost", Decimal(5), spent=Decimal(0), asked=None)
    said = str(refusal(unknown, CLAIMED, model="gpt-new"))
    assert "the price of model 'gpt-new' is not known" in said
    assert "ONWARD_PRICES" in said


@pytest.mark.parametrize(
    ("what", "limit"), [("cost", "cost limit of 5.00 USD"), ("tokens", "5 tokens")]
)
def test_an_answer_of_any_length_says_where_its_limit_is_set(what: str, limit: str) -> None:
    unknown = exceeded(what, Decimal(5), spent=Decimal(0), asked=None)
    said = str(refusal(unknown, CLAIMED, model="gpt-new", is_priced=True))
    for part in (
        limit, "how long an answer of model 'gpt-new' can get", "max_output in ONWARD_PRICES", "max_tokens",
        "nothing was sent", "`onward runs resume run-1`",
    ):  # fmt: skip
        assert part in said


def standing(name: str, **facts: Any) -> Standing:
    zero: dict[str, Any] = dict.fromkeys(
        ("spent_tokens", "spent_calls", "held_tokens", "held_calls", "recovery_tokens"), 0
    )
    zero |= dict.fromkeys(("spent_cost", "held_cost", "recovery_cost"), Decimal(0))
    return Standing(
        wallet_id=name, kind="run", parent_id=None,
        **{"limits": Limits(), "spent_seconds": None, "recovery_seconds": 0.0, **zero, **facts},
    )  # fmt: skip


def test_what_is_left_is_the_least_of_all_wallets_above() -> None:
    own = standing(
        "run", limits=Limits(tokens=100, cost=Decimal(2)), spent_tokens=30, held_tokens=10
    )
    batch = standing("batch", limits=Limits(tokens=70, calls=9), spent_tokens=50, spent_calls=2)
    seen = view_of([own, batch])
    assert (seen.left.tokens, seen.left.cost, seen.left.calls) == (20, Decimal(2), 7)
    assert (seen.spent.tokens, seen.reserved.tokens) == (30, 10)


def test_a_step_under_test_has_its_budget_unspent() -> None:
    ctx = Context.for_test(budget=Budget(cost="1.00"))
    assert isinstance(ctx.budget, RunBudget)
    assert ctx.budget.left.cost == 1
    assert ctx.budget.left.calls is None
    assert ctx.budget.spent.cost == 0
    assert Context.for_test().budget.left.cost is None
