"""What happens to steps whose owner is gone. Set-based, in small batches, skipping what others hold.

An expired lease always becomes ``unknown`` first, with its attempt row and one event, in one
transaction; what to do about it is decided afterwards and written under the row's revision, so two
sweeps, or a sweep and a person, never act on the same row twice.
"""

from collections.abc import Sequence
from typing import LiteralString, TypeAlias

from models import database
from models.failpoints import FailPoint, failpoint
from models.journal import events, sql
from models.journal.values import BranchRef, HeldStep, StaleStep
from models.states import BlockReason

#: The UPDATE re-checks what the SELECT saw; what it counts depends on how the loss was noticed.
_LOSE: LiteralString = f"""
, lost AS (
    UPDATE live l SET {sql.NO_LEASE}, state = 'unknown', crashes = l.crashes + %(crashed)s,
        lost = l.lost + 1 - %(crashed)s, error_type = %(cause)s, error = %(reason)s, due_at = onward_now(),
        revision = l.revision + 1
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

#: Of a branch whose run was cancelled, or whose group member a tolerated failure has ended (the join it
#: would report to is gone): nothing will come of it.
_GIVEN_UP: LiteralString = """(coalesce(r.hold = 'cancel', false)
    OR (strpos(l.branch, '/') > 0 AND NOT EXISTS (SELECT 1 FROM live up WHERE up.run_id = l.run_id
        AND up.branch = regexp_replace(l.branch, '/[^/]*$', ''))))"""

_UNKNOWN: LiteralString = f"""
SELECT l.run_id, l.branch, l.step_key, l.revision, l.crashes - l.pardoned_crashes,
       l.lost - l.pardoned_lost, l.untracked,
       {_GIVEN_UP}, coalesce(l.error_type, 'expired'), coalesce(l.error, ''), l.worker
FROM live l JOIN run r ON r.run_id = l.run_id
WHERE l.state = 'unknown' AND l.due_at <= onward_now()
  AND (l.block_reason IS NULL OR {_GIVEN_UP} AND l.block_reason <> 'unknown_effect')
  AND (%(run_id)s::text IS NULL OR l.run_id = %(run_id)s)
  AND (l.run_id, l.branch) > (%(after_run)s, %(after_branch)s)
ORDER BY l.run_id, l.branch LIMIT %(limit)s"""

#: (run, branch) of the last row of a batch: the next goes on from there, so that rows which cannot be
#: handled never keep those behind them from being reached.
Place: TypeAlias = tuple[str, str]
START: Place = ("", "")


def expired(*, limit: int, after: Place = START) -> list[BranchRef]:
    """Running steps whose lease is over."""
    rows = database.fetch(
        "SELECT run_id, branch, revision FROM live"
        " WHERE lease_expires_at <= onward_now() AND owner IS NOT NULL"
        " AND (run_id, branch) > (%(after_run)s, %(after_branch)s) ORDER BY 1, 2 LIMIT %(limit)s",
        _page(limit, after),
    )
    return [BranchRef(*row) for row in rows]


def expire(refs: Sequence[BranchRef]) -> int:
    """Turn running steps whose lease is over into unknown ones; returns how many."""
    failpoint(FailPoint.S1)
    row = database.fetch_one(
        _EXPIRED,
        {**_arrays(refs), "crashed": 0, "cause": "expired", "reason": "the owner fell silent"},
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


def unknown_steps(
    *, limit: int, run_id: str | None = None, after: Place = START
) -> list[StaleStep]:
    """Unknown steps that are due and not blocked, as ``decide`` wants them.

    Blocked steps of a branch that is given up are decided again, unless the world must be asked first.
    """
    rows = database.fetch(_UNKNOWN, {**_page(limit, after), "run_id": run_id})
    return [
        StaleStep(
            run_id=row[0], branch=row[1], step_key=row[2], revision=row[3],
            crashes=row[4], lost=row[5], untracked=row[6], cancel_requested=row[7], cause=row[8],
            reason=row[9], worker=row[10],
        )
        for row in rows
    ]  # fmt: skip


def requeue(refs: Sequence[BranchRef], delays: Sequence[float]) -> int:
    """Make unknown steps pending again, each due after its delay. Guarded on revision."""
    row = database.fetch_one(
        """
        WITH back AS (
            UPDATE live l SET state = 'pending', due_at = onward_now() + make_interval(secs => d.delay),
                publish_at = onward_now() + make_interval(secs => d.delay), publications = 0,
                revision = l.revision + 1
            FROM unnest(%(run_ids)s::text[], %(branches)s::text[], %(revisions)s::bigint[],
                        %(delays)s::float8[]) AS d(run_id, branch, revision, delay)
            WHERE l.run_id = d.run_id AND l.branch = d.branch AND l.revision = d.revision
              AND l.state = 'unknown'
            RETURNING l.run_id, l.step_key, l.token
        ), told AS (
            INSERT INTO event (run_id, step_key, token, kind)
            SELECT run_id, step_key, token, 'step_requeued' FROM back
        )
        SELECT count(*) FROM back""",
        {**_arrays(refs), "delays": list(delays)},
    )
    return int(row[0]) if row else 0


def set_aside(ref: BranchRef, reason: str, *, pause: float) -> None:
    """Leave an unknown step alone for ``pause`` seconds, with the reason in its row. Guarded on revision."""
    database.fetch(
        """
        UPDATE live l SET error = %(reason)s, due_at = onward_now() + make_interval(secs => %(pause)s),
            revision = l.revision + 1
        WHERE l.run_id = %(run_id)s AND l.branch = %(branch)s AND l.revision = %(revision)s
          AND l.state = 'unknown'""",
        {**_one(ref), "reason": reason, "pause": pause},
    )


def block(ref: BranchRef, reason: BlockReason, *, detail: str, failed: bool) -> bool:
    """Stop a branch until a person removes the cause; the run shows the reason."""
    with database.transaction():
        row = database.fetch_one(
            """
            UPDATE live l SET block_reason = %(reason)s::text, error = %(detail)s,
                error_type = %(reason)s,
                state = CASE WHEN %(failed)s THEN 'failed' ELSE l.state END, revision = l.revision + 1
            WHERE l.run_id = %(run_id)s AND l.branch = %(branch)s AND l.revision = %(revision)s
              AND l.state <> 'running'
            RETURNING l.step_key, l.token""",
            {**_one(ref), "reason": reason, "detail": detail, "failed": failed},
        )
        if row is None:
            return False
        database.fetch(
            "UPDATE run SET state = 'blocked', reason = %(reason)s, detail = %(detail)s,"
            " revision = revision + 1 WHERE run_id = %(run_id)s AND state IN ('pending', 'running', 'waiting')",
            {"run_id": ref.run_id, "reason": reason, "detail": detail},
        )
        events.record(
            ref.run_id, "run_blocked", step_key=row[0], token=row[1], detail=f"{reason}: {detail}"
        )
    return True


def cancel_branches(refs: Sequence[BranchRef]) -> list[str]:
    """End branches of a cancelled run that are neither running nor finished; returns their runs."""
    rows = database.fetch(
        """
        WITH gone AS (
            DELETE FROM live l
            USING unnest(%(run_ids)s::text[], %(branches)s::text[], %(revisions)s::bigint[])
                  AS d(run_id, branch, revision)
            WHERE l.run_id = d.run_id AND l.branch = d.branch AND l.revision = d.revision
              AND l.owner IS NULL
            RETURNING l.*
        ), kept AS (
            INSERT INTO step (run_id, step_key, branch, state, prev_key, attempt, token, worker, started_at)
            SELECT run_id, step_key, branch, 'cancelled', prev_key, attempt, token, worker, claimed_at
            FROM gone WHERE missing = 0
        )
        SELECT DISTINCT run_id FROM gone""",
        _arrays(refs),
    )
    return [row[0] for row in rows]


def cancellable(*, limit: int, after: Place = START) -> list[BranchRef]:
    """Branches that nothing holds, nothing is in doubt about, and nothing will come of."""
    rows = database.fetch(
        f"""
        SELECT l.run_id, l.branch, l.revision FROM live l JOIN run r ON r.run_id = l.run_id
        WHERE l.state IN ('pending', 'failed', 'waiting')
          AND {_GIVEN_UP}
          AND (l.run_id, l.branch) > (%(after_run)s, %(after_branch)s)
        ORDER BY 1, 2 LIMIT %(limit)s""",
        _page(limit, after),
    )
    return [BranchRef(*row) for row in rows]


def held_runs(*, limit: int, after: str = "") -> list[str]:
    """Held runs that have not been given their final state yet."""
    rows = database.fetch(
        "SELECT run_id FROM run r WHERE r.hold IS NOT NULL AND run_id > %(after)s"
        " AND (r.state IN ('pending', 'running', 'blocked') OR r.hold = 'cancel' AND r.state = 'failed')"
        " ORDER BY run_id LIMIT %(limit)s",
        {"limit": limit, "after": after},
    )
    return [row[0] for row in rows]


def wake_waiting(*, limit: int) -> int:
    """Waiting steps whose time has come become pending."""
    row = database.fetch_one(
        """
        WITH ready AS (
            SELECT run_id, branch FROM live WHERE state = 'waiting' AND due_at <= onward_now()
            ORDER BY run_id, branch LIMIT %(limit)s FOR UPDATE SKIP LOCKED
        ), woken AS (
            UPDATE live l SET state = 'pending', publish_at = onward_now(), publications = 0,
                revision = l.revision + 1
            FROM ready WHERE l.run_id = ready.run_id AND l.branch = ready.branch RETURNING 1
        )
        SELECT count(*) FROM woken""",
        {"limit": limit},
    )
    return int(row[0]) if row else 0


def _one(ref: BranchRef) -> dict[str, object]:
    return {"run_id": ref.run_id, "branch": ref.branch, "revision": ref.revision}


def _arrays(refs: Sequence[BranchRef]) -> dict[str, object]:
    return {
        "run_ids": [ref.run_id for ref in refs],
        "branches": [ref.branch for ref in refs],
        "revisions": [ref.revision for ref in refs],
    }


def _page(limit: int, after: Place) -> dict[str, object]:
    return {"limit": limit, "after_run": after[0], "after_branch": after[1]}
