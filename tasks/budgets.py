"""``Budget``: what a run, or a batch of runs, may spend; and what is said when it is used up.

    @workflow("contract-review", version="3", budget=Budget(cost="5.00", calls=200))

The journal counts, before each request leaves, so no crash, retry or resume starts a fresh allowance.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal, InvalidOperation
from typing import Self, TypeVar

from models.errors import OnwardError
from models.journal.call_values import Amount, Exceeded, Limits, Standing
from models.journal.values import Claimed
from models.messages import safe_repr
from models.states import BlockReason
from tasks.errors import EffectBlocked

Number = TypeVar("Number", int, float, Decimal)

_WHOLE = 2**62  #: more than anybody counts, and the journal's column holds it
_DEAREST, _FINEST = Decimal(1_000_000_000), Decimal("1e-12")


class BudgetError(OnwardError):
    """A budget that cannot be meant. Nothing was submitted."""

    error_type = "budget_refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits; those left out are none. ``cost`` is US dollars: a string or a Decimal is taken exactly.

    ``tokens``, ``cost`` and ``calls`` are of model calls; ``seconds`` is wall-clock since the run started, waits
    included; ``attempts`` is of each step, whatever ended them, a person's retries included.
    """

    tokens: int | None = None
    cost: Decimal | str | float | None = None
    calls: int | None = None
    seconds: float | None = None
    attempts: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("tokens", 0), ("calls", 0), ("attempts", 1)):
            _check_whole(name, getattr(self, name), least=least)
        object.__setattr__(self, "cost", _dollars(self.cost))
        _check_seconds(self.seconds)
        if not self.limits:
            raise BudgetError(
                "A budget names at least one limit: Budget(cost='5.00'), or tokens, calls, seconds, attempts."
            )

    @classmethod
    def of(cls, given: object, /) -> Self | None:
        """From what a submission carries: a ``Budget``, or a mapping as JSON has it."""
        match given:
            case None | cls():
                return given
            case Mapping():
                names = {field.name for field in fields(cls)}
                if unknown := sorted(str(name) for name in set(given) - names):
                    raise BudgetError(
                        f"A budget has no {safe_repr(unknown[0])}; it has tokens, cost, calls, seconds, attempts."
                    )
                return cls(**given)
            case _:
                raise BudgetError(
                    f"budget= takes Budget(...) or a mapping of its limits, not {safe_repr(given)}."
                )

    @property
    def limits(self) -> Limits:
        """The same, as the journal takes it."""
        cost = self.cost
        assert cost is None or isinstance(cost, Decimal)  # noqa: S101 - made so above
        return Limits(
            tokens=self.tokens, cost=cost, calls=self.calls, seconds=self.seconds,
            attempts=self.attempts,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """One figure per limit. None: not limited, or not counted for a run as a whole."""

    tokens: int | None = None
    cost: Decimal | None = None
    calls: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class BudgetView:
    """How a run's money stands at one moment. ``left`` is the least that any wallet above the step allows.

    A figure to show, or to stop early by. It is not recorded: a prompt made of it is another prompt in the next
    attempt, and its recorded answer is then refused as a mismatch.
    """

    spent: Amounts
    reserved: Amounts
    left: Amounts


class RunBudget:
    """``ctx.budget``. Each look reads the journal anew: other branches of the run spend meanwhile."""

    __slots__ = ("look",)

    def __init__(self, look: Callable[[], BudgetView]) -> None:
        self.look = look  #: all figures of one moment

    @property
    def spent(self) -> Amounts:
        return self.look().spent

    @property
    def reserved(self) -> Amounts:
        return self.look().reserved

    @property
    def left(self) -> Amounts:
        return self.look().left

    @classmethod
    def for_test(cls, budget: Budget | None) -> Self:
        """What a step under test sees: nothing spent."""
        limits = budget.limits if budget else Limits()
        zero = Amounts(tokens=0, cost=Decimal(0), calls=0, seconds=0.0)
        left = Amounts(
            tokens=limits.tokens, cost=limits.cost, calls=limits.calls, seconds=limits.seconds
        )
        return cls(lambda: BudgetView(spent=zero, reserved=zero, left=left))


def view_of(chain: Sequence[Standing]) -> BudgetView:
    """What a step sees, from the run's own wallet and those above it."""
    own = chain[0]
    return BudgetView(
        spent=Amounts(
            tokens=own.spent_tokens, cost=own.spent_cost, calls=own.spent_calls,
            seconds=own.spent_seconds,
        ),
        reserved=Amounts(tokens=own.held_tokens, cost=own.held_cost, calls=own.held_calls),
        left=Amounts(
            tokens=_least(one.left_tokens for one in chain),
            cost=_least(one.left_cost for one in chain),
            calls=_least(one.left_calls for one in chain),
            seconds=_least(one.left_seconds for one in chain),
        ),
    )  # fmt: skip


def refusal(
    exceeded: Exceeded, claimed: Claimed, *, model: str | None = None, is_priced: bool = False
) -> EffectBlocked:
    """What stops a step whose next request, or next attempt, a limit forbids; it says how to go on."""
    run_id, step_key, payer = claimed.run_id, claimed.step_key, exceeded.wallet_id
    group = "batch" if payer == claimed.batch_id else "runs"
    whose = f"{group.removesuffix('s')} {payer}"
    if exceeded.asked is None:
        missing, remedy = _unmeasured(exceeded, model or "unknown", is_priced=is_priced)
        return EffectBlocked(
            f"{whose} has a {exceeded.what.removesuffix('s')} limit of {amount(exceeded.what, exceeded.limit)}, and "
            f"{missing}: nothing was sent for step {step_key!r}. {remedy}, then `onward runs resume {run_id}` goes on "
            f"from this step",
            reason=BlockReason.BUDGET_EXCEEDED,
        )
    return EffectBlocked(
        f"{_told(exceeded, whose, step_key)}. Nothing was sent. `onward {group} budget {payer} --{exceeded.what} "
        f"{_needed(exceeded)} --reason ...` raises the limit, then `onward runs resume {run_id}` goes on from this "
        "step",
        reason=BlockReason.BUDGET_EXCEEDED,
    )


def amount(what: str, value: Amount | None) -> str:
    """``0.30 USD``, ``1,200 tokens``."""
    match what:
        case _ if value is None:
            return "no limit"
        case "cost":
            return dollars(value)
        case "seconds":
            return f"{float(value):,.1f} s".replace(".0 s", " s")
        case _:
            return f"{int(value):,} {what}"


def dollars(value: Amount) -> str:
    """Every digit that was counted, and two at least."""
    whole, _, cents = f"{_exact(value):f}".partition(".")
    return f"{whole}.{cents[:2]:0<2}{cents[2:].rstrip('0')} USD"


def _unmeasured(exceeded: Exceeded, model: str, *, is_priced: bool) -> tuple[str, str]:
    """Why nobody can tell what a request takes at most, and what to do about it."""
    if exceeded.what == "cost" and not is_priced:
        return (
            f"the price of model {model!r} is not known",
            "Add the model to ONWARD_PRICES of the workers",
        )
    return (
        f"nothing says how long an answer of model {model!r} can get",
        "Give the model a max_output in ONWARD_PRICES of the workers (or the request a max_tokens, or "
        "declare_endpoint a max_output)",
    )


def _told(exceeded: Exceeded, whose: str, step_key: str) -> str:
    what = exceeded.what
    spent, limit = amount(what, exceeded.spent), amount(what, exceeded.limit)
    match what:
        case "attempts":
            return f"step {step_key!r} was attempted {exceeded.spent} times, and {whose} allows {limit} of a step"
        case "seconds":
            return f"{whose} began {spent} ago and may take {limit}; step {step_key!r} was not gone on with"
        case _:
            left = _exact(exceeded.limit) - _exact(exceeded.spent) - _exact(exceeded.held)
            return (
                f"the next model call of step {step_key!r} may take {amount(what, exceeded.asked)}, and the budget of "
                f"{whose} has {amount(what, max(left, Decimal(0)))} left (limit {limit}, spent {spent}, reserved "
                f"{amount(what, exceeded.held)})"
            )


def _needed(exceeded: Exceeded) -> str:
    """The least limit with which the same would have been allowed; of time, twice as much as it took."""
    if exceeded.what == "seconds":
        return str(2 * math.ceil(float(exceeded.spent)))
    needed = _exact(exceeded.spent) + _exact(exceeded.held) + _exact(exceeded.asked or 0)
    return f"{needed:f}"


def _exact(value: Amount) -> Decimal:
    return Decimal(str(value)) if isinstance(value, float) else Decimal(value)


def _least(given: Iterable[Number | None]) -> Number | None:
    return min((one for one in given if one is not None), default=None)


def _check_whole(name: str, given: object, *, least: int) -> None:
    if given is None:
        return
    if type(given) is not int or not least <= given <= _WHOLE:
        raise BudgetError(
            f"The budget's {name} must be a whole number, {least} or more, not {safe_repr(given)}."
        )


def _check_seconds(given: object) -> None:
    if given is None:
        return
    number = isinstance(given, int | float) and not isinstance(given, bool)
    if not number or not 0 < given <= _WHOLE:  # type: ignore[operator]
        raise BudgetError(f"The budget's seconds must be a number above 0, not {safe_repr(given)}.")


def _dollars(given: object) -> Decimal | None:
    """The amount as it is written: 0.3 is 3/10, whatever binary floats make of it."""
    if given is None:
        return None
    try:
        cost = Decimal(str(given)) if isinstance(given, float) else Decimal(given)  # type: ignore[arg-type]
    except (InvalidOperation, TypeError, ValueError):
        cost = Decimal("nan")
    meant = not isinstance(given, bool) and cost.is_finite() and 0 <= cost <= _DEAREST
    if not meant or cost % _FINEST:
        raise BudgetError(
            f"The budget's cost must be US dollars, such as '5.00', not {safe_repr(given)}."
        )
    return cost
