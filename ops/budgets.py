"""Budgets as people see and change them: what was spent, reserved and left, and what recovery cost."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from decimal import Decimal

from models.journal import wallets
from models.journal.call_values import Amount, Limits, Standing
from models.journal.errors import Refused
from tasks.budgets import amount, dollars
from tasks.paying import chain


@dataclass(frozen=True, slots=True)
class Line:
    """One limit. ``left`` counts what is reserved as gone."""

    what: str
    limit: Amount | None
    spent: Amount | None  #: None: counted for each step by itself, or not started
    reserved: Amount | None
    left: Amount | None

    @property
    def told(self) -> str:
        """``spent 0.90 USD, reserved 0.00 USD, left 0.10 USD of 1.00 USD``."""
        if self.what == "attempts":
            return f"{self.limit} of each step"
        parts = [f"spent {amount(self.what, self.spent or 0)}"]
        if self.reserved is not None:
            parts.append(f"reserved {amount(self.what, self.reserved)}")
        if self.limit is not None:
            parts.append(f"left {amount(self.what, self.left)} of {amount(self.what, self.limit)}")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Report:
    """How a run's or a batch's wallet stands."""

    owner_id: str  #: a run's, or a batch's
    standing: Standing
    above: tuple[Standing, ...]  #: wallets that pay as well: what is spent here is spent there

    @property
    def payers(self) -> tuple[str, ...]:
        return tuple(one.wallet_id for one in self.above)

    @property
    def lines(self) -> tuple[Line, ...]:
        """Every limit, set or not."""
        return _lines(self.standing)

    @property
    def changes(self) -> list[tuple[datetime, str, str]]:
        """When its limits were changed, by whom, and to what and why."""
        return wallets.raises(self.standing.wallet_id)

    @property
    def recovery(self) -> str | None:
        """What crashes cost: answers that were lost, and time that lost attempts had worked."""
        it = self.standing
        if not (it.recovery_tokens or it.recovery_cost or it.recovery_seconds):
            return None
        return f"{it.recovery_tokens:,} tokens, {dollars(it.recovery_cost)}, {it.recovery_seconds:.1f} s"

    def facts(self) -> Iterator[tuple[str, str | None]]:
        """The lines worth a look: what is limited, and what was spent."""
        for line in self.lines:
            used = line.what != "seconds" and (line.spent or line.reserved)
            if line.limit is not None or used:
                yield f"{line.what} budget" if line.limit is not None else line.what, line.told
        for payer in self.above:
            for line in _lines(payer):
                if line.limit is not None:
                    yield f"{line.what} budget of {payer.kind} {payer.wallet_id}", line.told
        yield "recovery cost", self.recovery

    def as_dict(self) -> dict[str, object]:
        """For ``--json``. Costs are strings, so that no reader rounds them."""
        it = self.standing
        return {
            "wallet": it.wallet_id, "paid_from": list(self.payers), "limits": asdict(it.limits),
            "spent": {line.what: line.spent for line in self.lines if line.what != "attempts"},
            "reserved": {line.what: line.reserved for line in self.lines[:3]},
            "left": {line.what: line.left for line in self.lines if line.what != "attempts"},
            "left_above": {
                payer.wallet_id: {line.what: line.left for line in _lines(payer) if line.what != "attempts"}
                for payer in self.above
            },
            "recovery": {
                "tokens": it.recovery_tokens, "cost": it.recovery_cost, "seconds": it.recovery_seconds,
            },
        }  # fmt: skip


def of(owner_id: str) -> Report:
    """How the wallet of this run or batch stands. Raises ``UnknownRun``."""
    own, *above = chain(owner_id)
    return Report(owner_id, own, tuple(above))


def _lines(it: Standing) -> tuple[Line, ...]:
    limits = it.limits
    return (
        Line("tokens", limits.tokens, it.spent_tokens, it.held_tokens, it.left_tokens),
        Line("cost", limits.cost, it.spent_cost, it.held_cost, it.left_cost),
        Line("calls", limits.calls, it.spent_calls, it.held_calls, it.left_calls),
        Line("seconds", limits.seconds, it.spent_seconds, None, it.left_seconds),
        Line("attempts", limits.attempts, None, None, None),
    )


def change(before: Report, limits: Limits, *, by: str, reason: str) -> Report:
    """Set the limits that are named. Raises ``Refused`` for one below what is spent and reserved already."""
    owner_id = before.owner_id
    for line in before.lines:
        wanted, used = getattr(limits, line.what), _used(line)
        if wanted is not None and wanted < used:
            raise Refused(
                f"{owner_id} has {amount(line.what, used)} spent or reserved already: its limit cannot be "
                f"{amount(line.what, wanted)}. Nothing was changed."
            )
    wallets.raise_limits(owner_id, by=by, reason=reason, **asdict(limits))
    return of(owner_id)


def _used(line: Line) -> Decimal:
    return sum((Decimal(str(one)) for one in (line.spent, line.reserved) if one), Decimal(0))
