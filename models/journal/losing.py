"""Whose owner is gone: running steps become ``unknown``. Set-based, skipping what others hold.

An expired lease always becomes ``unknown`` first, with its attempt row and one event, in one statement;
what to do about it is decided afterwards (``rescue``).
"""

from collections.abc import Sequence
from typing import LiteralString

from models import database
from models.failpoints import FailPoint, failpoint
from models.journal.branches import START, Place, arrays, page
from models.journal.values import BranchRef, HeldStep

#: The UPDATE re-checks what the SELECT saw; what it counts depends on how the loss was noticed. Which process
#: it was stays in the row: whoever asks the outside world asks as well whether that one can still act.
_LOSE: LiteralString = """
, lost AS (
    UPDATE live l SET owner = NULL, carrier = NULL, lease_expires_at = NULL, state = 'unknown',
        crashes = l.crashes + %(crashed)s, lost = l.lost + 1 - %(crashed)s, error_type = %(cause)s,
        error = %(reason)s, due_at = onward_now(), revision = l.revision + 1
    FROM stale
    WHERE l.run_id = stale.run_id AND l.branch = stale.branch AND l.token = stale.token
      AND l.owner = stale.owner
    RETURNING l.*, stale.owner AS old_owner
), noted AS (
    INSERT INTO attempt (run_id, step_key, token, outcome, attempt, branch, owner, worker, error_type,
                         error, started_at)
    SELECT run_id, step_key, token, %(cause)s, attempt, branch, old_owner, worker, %(cause)s, %(reason)s,
           claimed_at
    FROM lost ON CONFLICT DO NOTHING
), told AS (
    INSERT INTO event (run_id, step_key, token, kind, detail)
    SELECT run_id, step_key, token, 'lease_' || %(cause)s, %(reason)s || coalesce(' on ' || worker, '')
    FROM lost
)
SELECT count(*), coalesce(array_agg(DISTINCT run_id), ARRAY[]::text[]) FROM lost"""

#: Rows that changed since they were seen, and rows that another sweep has in hand, are left alone.
_EXPIRED: LiteralString = f"""
WITH stale AS (
    SELECT l.run_id, l.branch, l.token, l.owner FROM live l
    JOIN unnest(%(run_ids)s::text[], %(branches)s::text[], %(revisions)s::bigint[])
         AS d(run_id, branch, revision)
      ON l.run_id = d.run_id AND l.branch = d.branch AND l.revision = d.revision
    WHERE l.lease_expires_at <= onward_now() FOR UPDATE OF l SKIP LOCKED
){_LOSE}"""

_CARRIED: LiteralString = f"""
WITH stale AS (
    SELECT run_id, branch, token, owner FROM live
    WHERE run_id = %(run_id)s AND carrier = %(task_id)s AND starts_with(owner, %(start_id)s || '.')
    ORDER BY run_id, branch FOR UPDATE
){_LOSE}"""

_OWNED: LiteralString = f"""
WITH stale AS (
    SELECT run_id, branch, token, owner FROM live
    WHERE starts_with(owner, %(start_id)s || '.') AND NOT (pid = ANY(%(alive)s))
    ORDER BY run_id, branch FOR UPDATE
){_LOSE}"""


def expired(*, limit: int, after: Place = START) -> list[BranchRef]:
    """Running steps whose lease is over."""
    rows = database.fetch(
        "SELECT run_id, branch, revision FROM live"
        " WHERE lease_expires_at <= onward_now() AND owner IS NOT NULL"
        " AND (run_id, branch) > (%(after_run)s, %(after_branch)s) ORDER BY 1, 2 LIMIT %(limit)s",
        page(limit, after),
    )
    return [BranchRef(*row) for row in rows]


def expire(refs: Sequence[BranchRef]) -> int:
    """Turn running steps whose lease is over into unknown ones; returns how many."""
    failpoint(FailPoint.S1)
    row = database.fetch_one(
        _EXPIRED,
        {**arrays(refs), "crashed": 0, "cause": "expired", "reason": "the owner fell silent"},
    )
    failpoint(FailPoint.S2)
    return int(row[0]) if row else 0


def mark_died(run_id: str, *, task_id: str, start_id: str, reason: str) -> int:
    """The process that carried this Celery task is gone, as its parent saw. Counts a crash."""
    row = database.fetch_one(
        _CARRIED,
        {
            "run_id": run_id, "task_id": task_id, "start_id": start_id, "crashed": 1, "cause": "died",
            "reason": reason,
        },
    )  # fmt: skip
    return int(row[0]) if row else 0


def carriers(run_id: str, *, task_id: str, start_id: str) -> list[tuple[int, int]]:
    """The (pid, start time) of the processes that run what this Celery task carries."""
    rows = database.fetch(
        "SELECT pid, pid_started FROM live WHERE run_id = %(run_id)s AND carrier = %(task_id)s"
        " AND starts_with(owner, %(start_id)s || '.')",
        {"run_id": run_id, "task_id": task_id, "start_id": start_id},
    )
    return [(row[0], row[1]) for row in rows]


def mark_orphaned(start_id: str, *, alive: Sequence[int], reason: str) -> list[str]:
    """Steps of a worker start that is proven gone, but for those whose own process still lives.

    Returns the runs they belong to.
    """
    rows = database.fetch(
        _OWNED,
        {
            "start_id": start_id,
            "alive": list(alive),
            "crashed": 0,
            "cause": "expired",
            "reason": reason,
        },
    )
    return [run_id for row in rows for run_id in row[1]]


def held_by(start_id: str) -> list[HeldStep]:
    """Every step that a worker start holds, and the process that runs it."""
    rows = database.fetch(
        "SELECT pid, pid_started, run_id, step_key, token FROM live"
        " WHERE starts_with(owner, %(start_id)s || '.') AND pid IS NOT NULL",
        {"start_id": start_id},
    )
    return [HeldStep(*row) for row in rows]
