"""Money, set aside before a request leaves and settled after it: in the journal, so that no crash spends it anew.

    reserve   spent + held + asked within every limit up the chain      -> send
    charge | release   what it did cost, or that it cost nothing
    charge_lost, charge_strays   claims that are over: what they had set aside may have been billed

A hold is deleted by whoever settles it, in the commit that charges it, so each is charged once: the sweep, the
next attempt and a displaced owner that comes back late may all try. Its answer is charged by ``calls.record``.
"""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from models import database
from models.journal import wallet_sql
from models.journal.call_values import (
    Amount,
    Charge,
    Exceeded,
    Limit,
    Limits,
    NewWallet,
    Reservation,
    Reserved,
    Standing,
)
from models.journal.effect_values import Holder, Withheld
from models.journal.errors import CommitUnknown, LeaseLost, Refused, RolledBack, UnknownRun
from models.messages import printable, shorten

_TRIES = 4  #: a wallet may have to be opened first, and a refusal is asked for twice
_ALL_LIMITS, _OWN_LIMITS = 5, 2
_MAX_PROSE = 2000


def reserve(claimed: Holder, reservation: Reservation) -> Reserved | Exceeded | Withheld:
    """Set aside what one request may cost, in the run's wallet and all above it, or say which limit forbids it.

    Raises ``LeaseLost`` when the step is not ours any more. Repeatable: after an unanswered COMMIT, or after
    ``JournalUnavailable``, the same reservation is known again and held once.
    """
    params = _held(claimed) | _place(claimed, reservation) | {
        "tokens": reservation.tokens, "cost": reservation.cost, "model": reservation.model,
        "asked_tokens": None if "tokens" in reservation.guessed else reservation.tokens,
        "asked_cost": None if "cost" in reservation.guessed else reservation.cost,
        "judged": _ALL_LIMITS,
    }  # fmt: skip
    refused = False
    for _ in range(_TRIES):
        try:
            row = database.fetch_one(wallet_sql.RESERVE, params)
        except CommitUnknown:
            row = database.fetch_one(wallet_sql.RESERVE, params)
        if row is None:
            raise _displaced(claimed)
        opened, withheld, reserved, *exceeded = row
        if reserved:
            return Reserved()
        if withheld is not None:
            return Withheld(withheld)
        if not opened:
            database.fetch(wallet_sql.OPEN_LATE, {"run_id": claimed.run_id})
        elif exceeded[0] is not None and refused:
            return _exceeded(exceeded)
        refused = exceeded[0] is not None  # it may have met its own hold, committed a moment before
    raise RolledBack("The reservation met its own wallet being opened; it may be tried again.")


def check(claimed: Holder) -> Exceeded | None:
    """Whether a body may start at all: the limits on time and on attempts of this step.

    Raises ``LeaseLost`` when the step is not ours any more.
    """
    params = _held(claimed) | {"asked_tokens": 0, "asked_cost": Decimal(0), "judged": _OWN_LIMITS}
    row = database.fetch_one(wallet_sql.CHECK, params)
    if row is None:
        raise _displaced(claimed)
    return None if row[0] is None else _exceeded(row)


def release(claimed: Holder, reservation: Reservation) -> None:
    """Give back what was set aside: the request cost nothing. What is settled already stays so."""
    database.fetch(wallet_sql.SETTLE, settlement(claimed, reservation, charge=None))


def charge(claimed: Holder, reservation: Reservation, cost: Charge, *, recovery: bool) -> bool:
    """Charge what a request did cost. ``recovery``: its answer is lost. False: somebody has settled it before.

    Not guarded on the claim: what was billed was billed, whoever owns the step by now.
    """
    params = settlement(claimed, reservation, charge=cost, recovery=recovery)
    return database.fetch_one(wallet_sql.SETTLE, params) is not None


def charge_lost(claimed: Holder) -> int:
    """Charge what earlier claims of this step had set aside, in full: their answers will not come any more."""
    row = database.fetch_one(
        wallet_sql.CHARGE_EARLIER,
        {"run_id": claimed.run_id, "step_key": claimed.step_key, "token": claimed.token},
    )
    return int(row[0]) if row else 0


def strays(*, limit: int, after: tuple[str, str] = ("", "")) -> list[tuple[str, str]]:
    """Steps (run, key) of which claims that are over still hold money, in their order."""
    rows = database.fetch(
        wallet_sql.STRAYS, {"limit": limit, "after_run": after[0], "after_step": after[1]}
    )
    return [(row[0], row[1]) for row in rows]


def charge_strays(steps: Sequence[tuple[str, str]]) -> int:
    """Charge what claims of these steps that are over had set aside; how many holds."""
    row = database.fetch_one(
        wallet_sql.CHARGE_STRAYS,
        {"run_ids": [step[0] for step in steps], "step_keys": [step[1] for step in steps]},
    )
    return int(row[0]) if row else 0


def open_wallets(wallets: Sequence[NewWallet]) -> None:
    """Open wallets in the transaction of a submission, once its batch and runs are inserted.

    A run in a batch pays from its batch as well, whose wallet is opened with it. One that exists stays as it is.
    """
    if not wallets:
        return
    limits = [wallet.limits for wallet in wallets]
    database.fetch(
        wallet_sql.OPEN,
        {
            "ids": [wallet.wallet_id for wallet in wallets],
            "kinds": [wallet.kind for wallet in wallets],
            "parents": [wallet.parent_id for wallet in wallets],
            "tokens": [limit.tokens for limit in limits],
            "costs": [limit.cost for limit in limits],
            "calls": [limit.calls for limit in limits],
            "seconds": [limit.seconds for limit in limits],
            "attempts": [limit.attempts for limit in limits],
        },
    )


def ensure(run_id: str) -> str:
    """The wallet that pays for a run, opened when it needed none until now. Raises ``UnknownRun``."""
    database.fetch(wallet_sql.OPEN_LATE, {"run_id": run_id})
    return _find(run_id)[0]


def standing(owner_id: str) -> Standing:
    """How the wallet of this run or batch stands; of one that needed none yet, zeros. Raises ``UnknownRun``."""
    wallet_id, kind, parent_id = _find(owner_id)
    row = database.fetch_one(wallet_sql.STANDING, {"wallet_id": wallet_id})
    lost = database.fetch_one(wallet_sql.LOST_SECONDS, {"wallet_id": wallet_id})
    seconds = float(lost[0]) if lost else 0.0
    if row is None:
        return _untouched(wallet_id, kind, parent_id, recovery_seconds=seconds)
    tokens, cost, calls, limit_seconds, attempts = row[3:8]
    return Standing(
        wallet_id=row[0], kind=row[1], parent_id=row[2],
        limits=Limits(
            tokens=tokens, cost=cost, calls=calls, seconds=limit_seconds, attempts=attempts
        ),
        spent_tokens=row[8], spent_cost=row[9], spent_calls=row[10], spent_seconds=row[11],
        held_tokens=row[12], held_cost=row[13], held_calls=row[14], recovery_tokens=row[15],
        recovery_cost=row[16], recovery_seconds=seconds,
    )  # fmt: skip


def raise_limits(
    owner_id: str, *, by: str, reason: str, tokens: int | None = None, cost: Decimal | None = None,
    calls: int | None = None, seconds: float | None = None, attempts: int | None = None,
) -> Standing:  # fmt: skip
    """Set limits of a run or a batch anew; those not named stay. Written down with the name of who did.

    Nothing goes on by itself: `onward runs resume` sends what was blocked back. Raises ``UnknownRun``, and
    ``Refused`` when no limit is named.
    """
    named = Limits(tokens=tokens, cost=cost, calls=calls, seconds=seconds, attempts=attempts)
    if not named:
        raise Refused(f"No limit of {owner_id} was named: nothing was changed.")
    wallet_id, kind, _ = _find(owner_id)
    by, reason = (shorten(printable(text), limit=_MAX_PROSE) for text in (by, reason))
    with database.transaction():
        if kind == "batch":
            database.fetch(wallet_sql.OPEN_BATCH, {"batch_id": wallet_id})
        else:
            database.fetch(wallet_sql.OPEN_LATE, {"run_id": owner_id})
        database.fetch(
            wallet_sql.RAISE,
            _limits(named) | {
                "wallet_id": wallet_id, "by": by, "owner_id": owner_id,
                "detail": f"{_told(named)} of {kind} {wallet_id}: {reason}",
            },
        )  # fmt: skip
    return standing(owner_id)


def raises(owner_id: str) -> list[tuple[datetime, str, str]]:
    """When the limits of this run or batch were changed, by whom, and to what and why; the oldest first."""
    return [
        (row[0], row[1], row[2])
        for row in database.fetch(wallet_sql.RAISES, {"owner_id": owner_id})
    ]


def settlement(
    claimed: Holder, reservation: Reservation, *, charge: Charge | None, recovery: bool = False
) -> dict[str, object]:
    """What ``wallet_sql.SETTLED`` needs to know. Without a charge the hold is given back."""
    return _held(claimed) | _place(claimed, reservation) | {
        "charged": charge is not None, "recovery": recovery,
        "spent_tokens": charge.tokens if charge else None,
        "spent_cost": charge.cost if charge else None, "seconds": charge.seconds if charge else None,
    }  # fmt: skip


def _held(claimed: Holder) -> dict[str, object]:
    return {
        "run_id": claimed.run_id, "branch": claimed.branch, "step_key": claimed.step_key,
        "token": claimed.token, "owner": claimed.owner,
    }  # fmt: skip


def _place(claimed: Holder, reservation: Reservation) -> dict[str, object]:
    place = reservation.place
    return {
        "made_by": reservation.made_by(claimed),
        "hold_generation": place.generation, "hold_scope": place.scope, "hold_position": place.position,
        "send": reservation.send,
    }  # fmt: skip


def _displaced(claimed: Holder) -> LeaseLost:
    return LeaseLost(
        f"Attempt {claimed.attempt} of step {claimed.step_key!r} in run {claimed.run_id} no longer owns the step: "
        f"nothing more is sent for it here."
    )


def _exceeded(row: Sequence[Any]) -> Exceeded:
    wallet_id, what, *amounts = row
    limit, spent, held, asked = (None if one is None else _amount(what, one) for one in amounts)
    assert limit is not None  # noqa: S101 - only what has a limit is passed
    return Exceeded(wallet_id, what, limit, spent or 0, held or 0, asked)


def _amount(what: Limit, amount: Decimal) -> Amount:
    if what == "cost":
        return amount
    return float(amount) if what == "seconds" else int(amount)


def _find(owner_id: str) -> tuple[str, str, str | None]:
    """The wallet of a run or a batch, what it is, and what it pays from as well."""
    row = database.fetch_one(
        "SELECT coalesce(wallet_id, run_id), 'run', batch_id FROM run WHERE run_id = %(id)s"
        " UNION ALL SELECT batch_id, 'batch', NULL FROM batch WHERE batch_id = %(id)s LIMIT 1",
        {"id": owner_id},
    )
    if row is None:
        raise UnknownRun(
            f"There is no run or batch {owner_id!r}; `onward runs list` and `onward batches list` show those "
            f"that exist."
        )
    return row[0], row[1], row[2]


def _untouched(
    wallet_id: str, kind: str, parent_id: str | None, *, recovery_seconds: float
) -> Standing:
    return Standing(
        wallet_id=wallet_id, kind=kind, parent_id=parent_id, limits=Limits(), spent_tokens=0,
        spent_cost=Decimal(0), spent_calls=0, spent_seconds=None, held_tokens=0, held_cost=Decimal(0),
        held_calls=0, recovery_tokens=0, recovery_cost=Decimal(0), recovery_seconds=recovery_seconds,
    )  # fmt: skip


def _limits(limits: Limits) -> dict[str, object]:
    return {
        "tokens": limits.tokens, "cost": limits.cost, "calls": limits.calls,
        "seconds": limits.seconds, "attempts": limits.attempts,
    }  # fmt: skip


def _told(limits: Limits) -> str:
    return ", ".join(
        f"{name} {amount}" for name, amount in _limits(limits).items() if amount is not None
    )
