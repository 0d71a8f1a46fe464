"""What happens to steps whose owner is gone, once it is decided. Set-based, in small batches.

Everything here is written under the row's revision, so two sweeps, or a sweep and a person, never act on
the same row twice.
"""

from collections.abc import Sequence
from typing import LiteralString

from models import database
from models.journal import doubts, events
from models.journal.branches import START, Place, arrays, one, page
from models.journal.doubts import GIVEN_UP, IN_DOUBT
from models.journal.values import BranchRef, StaleStep
from models.states import BlockReason

#: Why it was lost is what its last attempt says: the row itself may tell of a look-up by now.
_UNKNOWN: LiteralString = f"""
SELECT l.run_id, l.branch, l.step_key, l.revision, l.crashes - l.pardoned_crashes,
       l.lost - l.pardoned_lost, l.untracked, {GIVEN_UP}, coalesce(a.error_type, l.error_type, 'expired'),
       coalesce(a.error, l.error, ''), l.worker, of_step.unsettled, of_step.sends,
       coalesce(p.has_lookup, false) AND l.block_reason IS NULL
FROM live l JOIN run r ON r.run_id = l.run_id
LEFT JOIN plan p ON p.run_id = l.run_id AND p.step_key = l.step_key
LEFT JOIN LATERAL (
    SELECT error_type, error FROM attempt WHERE run_id = l.run_id AND step_key = l.step_key
    AND token = l.token AND outcome <> 'superseded' LIMIT 1) a ON true
CROSS JOIN {doubts.OF_STEP} of_step
WHERE l.state = 'unknown' AND l.due_at <= onward_now()
  AND (l.block_reason IS NULL
       OR {GIVEN_UP} AND l.block_reason NOT IN ('unknown_effect', 'journal_rewound'))
  AND (%(run_id)s::text IS NULL OR l.run_id = %(run_id)s)
  AND (l.run_id, l.branch) > (%(after_run)s, %(after_branch)s)
ORDER BY l.run_id, l.branch LIMIT %(limit)s"""


def unknown_steps(
    *, limit: int, run_id: str | None = None, after: Place = START
) -> list[StaleStep]:
    """Unknown steps that are due and not blocked, as ``decide`` wants them.

    Blocked steps of a branch that is given up are decided again, unless the world must be asked first.
    """
    rows = database.fetch(_UNKNOWN, {**page(limit, after), "run_id": run_id, **doubts.resending()})
    return [
        StaleStep(
            run_id=row[0], branch=row[1], step_key=row[2], revision=row[3],
            crashes=row[4], lost=row[5], untracked=row[6], cancel_requested=row[7], cause=row[8],
            reason=row[9], worker=row[10], unsettled_effects=row[11], sends=row[12], has_lookup=row[13],
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
        {**arrays(refs), "delays": list(delays)},
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
        {**one(ref), "reason": reason, "pause": pause},
    )


def block(ref: BranchRef, reason: BlockReason, *, detail: str, failed: bool) -> bool:
    """Stop a branch until a person removes the cause; the run shows the reason."""
    with database.transaction():
        row = database.fetch_one(
            """
            UPDATE live l SET block_reason = %(reason)s::text, error = %(detail)s,
                error_type = %(reason)s,
                state = CASE WHEN %(failed)s THEN 'failed' ELSE l.state END,
                due_at = least(l.due_at, onward_now()), revision = l.revision + 1
            WHERE l.run_id = %(run_id)s AND l.branch = %(branch)s AND l.revision = %(revision)s
              AND l.state <> 'running'
            RETURNING l.step_key, l.token""",
            {**one(ref), "reason": reason, "detail": detail, "failed": failed},
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
    """End branches of a cancelled run that are neither running nor finished nor in doubt; returns their runs."""
    rows = database.fetch(
        f"""
        WITH gone AS (
            DELETE FROM live l
            USING unnest(%(run_ids)s::text[], %(branches)s::text[], %(revisions)s::bigint[])
                  AS d(run_id, branch, revision)
            WHERE l.run_id = d.run_id AND l.branch = d.branch AND l.revision = d.revision
              AND l.owner IS NULL AND NOT {IN_DOUBT}
            RETURNING l.*
        ), kept AS (
            INSERT INTO step (run_id, step_key, branch, state, prev_key, attempt, token, worker, started_at)
            SELECT run_id, step_key, branch, 'cancelled', prev_key, attempt, token, worker, claimed_at
            FROM gone WHERE missing = 0
        )
        SELECT DISTINCT run_id FROM gone""",
        arrays(refs),
    )
    return [row[0] for row in rows]


def cancellable(*, limit: int, after: Place = START) -> list[BranchRef]:
    """Branches that nothing holds, nothing is in doubt about, and nothing will come of."""
    rows = database.fetch(
        f"""
        SELECT l.run_id, l.branch, l.revision FROM live l JOIN run r ON r.run_id = l.run_id
        WHERE l.state IN ('pending', 'failed', 'waiting')
          AND {GIVEN_UP} AND NOT {IN_DOUBT}
          AND (l.run_id, l.branch) > (%(after_run)s, %(after_branch)s)
        ORDER BY 1, 2 LIMIT %(limit)s""",
        page(limit, after),
    )
    return [BranchRef(*row) for row in rows]


def held_runs(*, limit: int, after: str = "") -> list[str]:
    """Held runs that have not been given their final state yet."""
    rows = database.fetch(
        "SELECT run_id FROM run r WHERE r.hold IN ('cancel', 'failed') AND run_id > %(after)s"
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
