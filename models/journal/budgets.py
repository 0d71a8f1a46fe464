"""The budgets that submissions name: opened with their run or batch, and held against what is there already."""

from dataclasses import asdict
from decimal import Decimal
from typing import LiteralString

from models import database
from models.journal.call_values import Limits
from models.journal.errors import SubmissionConflict

#: Of a run that a submission has made (``made``): it pays for itself when it has limits, or when its batch has.
WALLET: LiteralString = """CASE
    WHEN %(limited)s THEN %(run_id)s
    WHEN %(paid_from)s::text IS NOT NULL THEN %(paid_from)s
    WHEN EXISTS (SELECT 1 FROM wallet WHERE wallet_id = %(batch_id)s) THEN %(run_id)s END"""
OPENED: LiteralString = """
    INSERT INTO wallet (wallet_id, kind, parent_id, limit_tokens, limit_cost, limit_calls, limit_seconds,
                        limit_attempts)
    SELECT run_id, 'run', coalesce(%(paid_from)s, %(batch_id)s), %(limit_tokens)s::bigint,
           %(limit_cost)s::numeric, %(limit_calls)s::bigint, %(limit_seconds)s::float8,
           %(limit_attempts)s::bigint
    FROM made WHERE wallet_id = run_id
    UNION ALL
    SELECT %(batch_id)s, 'batch', NULL, NULL, NULL, NULL, NULL, NULL
    FROM made WHERE wallet_id = run_id AND %(batch_id)s::text IS NOT NULL
    ON CONFLICT DO NOTHING"""

BATCH: LiteralString = """
WITH made AS (
    INSERT INTO batch (batch_id, label) VALUES (%(batch_id)s, %(label)s)
    ON CONFLICT DO NOTHING RETURNING batch_id
), paying AS (
    INSERT INTO wallet (wallet_id, kind, limit_tokens, limit_cost, limit_calls, limit_seconds, limit_attempts)
    SELECT batch_id, 'batch', %(limit_tokens)s::bigint, %(limit_cost)s::numeric, %(limit_calls)s::bigint,
           %(limit_seconds)s::float8, %(limit_attempts)s::bigint
    FROM made WHERE %(limited)s ON CONFLICT DO NOTHING
)
SELECT 1 FROM made"""

_HAS: LiteralString = """
SELECT limit_tokens, limit_cost, limit_calls, limit_seconds, limit_attempts, EXISTS (
    SELECT 1 FROM event WHERE run_id = %(owner_id)s AND kind = 'budget_raised')
FROM wallet WHERE wallet_id = %(owner_id)s"""

#: What was charged and set aside for a run, beside what its wallet says of it and of whatever else it pays for.
_BOOKS: LiteralString = """
SELECT w.wallet_id, s.tokens, w.spent_tokens, s.cost, w.spent_cost, s.lost, w.recovery_tokens, h.tokens,
       w.held_tokens, h.cost, w.held_cost
FROM run r JOIN wallet w ON w.wallet_id = r.wallet_id,
LATERAL (
    SELECT coalesce(sum(tokens), 0) AS tokens, coalesce(sum(cost), 0) AS cost,
           coalesce(sum(tokens) FILTER (WHERE recovery), 0) AS lost FROM spend WHERE run_id = r.run_id) s,
LATERAL (
    SELECT coalesce(sum(tokens), 0) AS tokens, coalesce(sum(cost), 0) AS cost FROM hold WHERE run_id = r.run_id) h
WHERE r.run_id = %(run_id)s"""
_BOOKED = (
    "tokens spent",
    "USD spent",
    "tokens lost to recovery",
    "tokens reserved",
    "USD reserved",
)


def short_books(run_id: str) -> list[tuple[str, str, Decimal, Decimal]]:
    """Where a run's wallet says less than was charged or set aside: wallet, what, what it says, what it should."""
    row = database.fetch_one(_BOOKS, {"run_id": run_id})
    if row is None:
        return []
    booked = zip(_BOOKED, row[1::2], row[2::2], strict=True)
    return [(row[0], what, says, true) for what, true, says in booked if says < true]


def params(budget: Limits | None) -> dict[str, object]:
    """What these statements need to know of a budget."""
    given = budget or Limits()
    return {
        "limited": budget is not None, "limit_tokens": given.tokens, "limit_cost": given.cost,
        "limit_calls": given.calls, "limit_seconds": given.seconds, "limit_attempts": given.attempts,
    }  # fmt: skip


def require(owner_id: str, asked: Limits, *, group: str) -> None:
    """Whoever submits again gets the budget they name, or an error: never another one in silence.

    One that a person has raised since is no other: submitting again is how a submission that was cut is completed.
    """
    row = database.fetch_one(_HAS, {"owner_id": owner_id})
    has, raised = Limits(), False
    if row is not None:
        tokens, cost, calls, seconds, attempts, raised = row
        has = Limits(tokens=tokens, cost=cost, calls=calls, seconds=seconds, attempts=attempts)
    if asked == has or (raised and _is_within(asked, has)):
        return
    raise SubmissionConflict(
        f"There is a {group} {owner_id} already, with {_told(has)}, not {_told(asked)}. Nothing was submitted: leave "
        f"the budget out, or change it with `onward {'runs' if group == 'run' else group} budget {owner_id}`."
    )


def _is_within(asked: Limits, has: Limits) -> bool:
    before, after = asdict(asked), asdict(has)
    return all(
        after[name] is None or (limit is not None and limit <= after[name])
        for name, limit in before.items()
    )


def _told(limits: Limits) -> str:
    named = [f"{name} {limit}" for name, limit in asdict(limits).items() if limit is not None]
    return f"a budget of {', '.join(named)}" if named else "no budget"
