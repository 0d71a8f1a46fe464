"""Stopping runs and sending them on again. Guarded on the run's own state; each says what it found."""

from dataclasses import dataclass
from typing import LiteralString

from models import database
from models.journal import calls, events, undo_sql
from models.journal.errors import Refused, UnknownRun
from models.messages import printable, shorten
from models.states import BlockReason, Hold, RunState

MAX_PROSE = (
    2000  #: characters of a reason or a label; what people write is never a ground to refuse
)


@dataclass(frozen=True, slots=True)
class Cancellation:
    """A run's one cancellation: asking again returns the same."""

    cancellation_id: str
    cancelled_by: str
    reason: str
    first: bool


def cancel(run_id: str, *, by: str, reason: str, cancellation_id: str) -> Cancellation:
    """Stop a run for good. Steps in the air finish or are reconciled first; nothing new is claimed."""
    by, reason = (shorten(printable(text), limit=MAX_PROSE) for text in (by, reason))
    row = database.fetch_one(
        """
        WITH held AS (
            UPDATE run SET hold = 'cancel', cancellation_id = %(id)s, cancelled_by = %(by)s,
                cancel_reason = %(reason)s, revision = revision + 1
            WHERE run_id = %(run_id)s AND cancellation_id IS NULL
              AND state NOT IN ('completed', 'cancelled', 'compensated')
              AND hold IS DISTINCT FROM 'compensate'
            RETURNING run_id
        ), told AS (
            INSERT INTO event (run_id, kind, detail, actor)
            SELECT run_id, 'run_cancel_requested', %(reason)s, %(by)s FROM held
        )
        SELECT 1 FROM held""",
        {"run_id": run_id, "id": cancellation_id, "by": by, "reason": reason},
    )
    if row:
        return Cancellation(cancellation_id, by, reason, first=True)
    found = database.fetch_one(
        "SELECT state, cancellation_id, cancelled_by, cancel_reason FROM run WHERE run_id = %(run_id)s",
        {"run_id": run_id},
    )
    if found is None:
        raise UnknownRun(f"There is no run {run_id!r}; `onward runs list` shows those that exist.")
    if found[1] is None:
        raise Refused(f"Run {run_id} is {found[0]}: there is nothing left to cancel.")
    return Cancellation(found[1], found[2], found[3], first=False)


def send_back(run_id: str, *, by: str) -> list[str]:
    """Send a failed or blocked run's stopped steps back to pending; returns their keys.

    Counters stay as they are: what was counted until now is pardoned (failures, deaths, sends of what never
    arrived, answers that were not taken), so the limits start anew while the history keeps every failure.
    Raises ``Refused`` when nothing of the run is stopped, or when it was cancelled: that is for good.
    """
    with database.transaction() as link:
        rows = link.execute(
            """
            UPDATE live SET state = 'pending', pardoned_failures = failures, pardoned_crashes = crashes,
                pardoned_lost = lost, block_reason = NULL, due_at = onward_now(),
                publish_at = onward_now(), publications = 0, revision = revision + 1
            WHERE run_id = %(run_id)s AND (state = 'failed' OR block_reason IS NOT NULL)
              AND coalesce(block_reason NOT IN ('unknown_effect', 'journal_rewound'), true)
              AND state <> 'running' AND missing = 0
            RETURNING step_key, error_type""",
            {"run_id": run_id},
        ).fetchall()
        link.execute(
            "UPDATE effect SET pardoned_sends = sends, revision = revision + 1"
            " WHERE run_id = %(run_id)s AND state = 'absent' AND undoes IS NULL",
            {"run_id": run_id},
        )
        link.execute(_LOCKED, {"run_id": run_id})
        row = link.execute(_SENT_BACK, {"run_id": run_id}).fetchone()
        if row is None or not rows:
            raise _nothing_stopped(run_id)
        for step_key, error_type in rows:
            events.record(run_id, "step_sent_back", step_key=step_key, actor=by)
            if is_out_of_asks(error_type):
                calls.pardon(run_id, step_key, actor=by, reason=f"sent back after {error_type}")
    return [row[0] for row in rows]


def is_out_of_asks(error_type: str | None) -> bool:
    """Whether a step ended because no answer of a model was good enough, as often as it may ask."""
    return error_type is not None and (
        error_type == "schema_invalid" or error_type.startswith("answer_")
    )


#: By a statement of its own: the next one then sees a compensation that was asked for meanwhile.
_LOCKED: LiteralString = "SELECT 1 FROM run WHERE run_id = %(run_id)s FOR NO KEY UPDATE"

#: What waits for a person's word about an effect stays blocked, and its run shows that.
_SENT_BACK: LiteralString = """
UPDATE run r SET hold = NULL, reason = stopped.block_reason, detail = stopped.error, finished_at = NULL,
    state = CASE WHEN stopped.block_reason IS NOT NULL THEN 'blocked'
                 WHEN r.started_at IS NULL THEN 'pending' ELSE 'running' END,
    revision = r.revision + 1
FROM (VALUES (1)) one LEFT JOIN LATERAL (
    SELECT l.block_reason, l.error FROM live l
    WHERE l.run_id = %(run_id)s AND l.block_reason IS NOT NULL ORDER BY l.branch LIMIT 1
) stopped ON true
WHERE r.run_id = %(run_id)s AND r.state IN ('failed', 'blocked') AND coalesce(r.hold, 'failed') = 'failed'
  AND NOT EXISTS (SELECT 1 FROM compensation c WHERE c.run_id = %(run_id)s AND c.state = 'undoing')
RETURNING 1"""


#: A failed run whose workflow says so goes straight on to being compensated: nobody sees it failed before.
_SETTLE: LiteralString = f"""
WITH first AS MATERIALIZED (
    SELECT 1 FROM compensation WHERE run_id = %(run_id)s FOR NO KEY UPDATE
), ended AS (
    UPDATE run r SET
        state = CASE WHEN r.hold = 'cancel' THEN 'cancelled'
                     WHEN r.on_failure = 'compensate' THEN 'compensating' ELSE 'failed' END,
        hold = CASE WHEN r.hold = 'failed' AND r.on_failure = 'compensate' THEN 'compensate' ELSE r.hold END,
        reason = CASE r.hold WHEN 'cancel' THEN r.reason ELSE (
            SELECT l.error_type FROM live l WHERE l.run_id = r.run_id AND l.state = 'failed'
            ORDER BY l.branch LIMIT 1) END,
        detail = CASE r.hold WHEN 'cancel' THEN r.detail ELSE (
            SELECT string_agg(l.step_key
                              || coalesce(' [' || substring(l.branch FROM '[.]([0-9]+)$') || ']', '')
                              || ': ' || coalesce(l.error, l.error_type, 'failed'), '; ' ORDER BY l.branch)
            FROM live l WHERE l.run_id = r.run_id AND l.state = 'failed') END,
        finished_at = CASE WHEN r.hold = 'cancel' OR r.on_failure IS NULL THEN onward_now() END,
        revision = r.revision + 1
    FROM (SELECT count(*) FROM first) locked
    WHERE r.run_id = %(run_id)s AND r.hold IN ('cancel', 'failed')
      AND (r.state IN ('pending', 'running', 'blocked') OR r.hold = 'cancel' AND r.state = 'failed')
      AND NOT EXISTS (SELECT 1 FROM live l WHERE l.run_id = r.run_id AND (
          l.state IN ('running', 'waiting', 'unknown')
          OR (r.hold = 'cancel' AND l.state IN ('pending', 'failed'))))
    RETURNING r.run_id, r.state, r.reason, r.detail
), opening AS (
    SELECT run_id, NULL::text[] AS only_keys, 'onward' AS requested_by, 'its workflow says so: on_failure' AS why,
           'failed' AS state, reason, detail
    FROM ended WHERE state = 'compensating'
), {undo_sql.OPENED}, told AS (
    INSERT INTO event (run_id, kind)
    SELECT run_id, CASE state WHEN 'compensating' THEN 'run_failed' ELSE 'run_' || state END FROM ended
)
SELECT state FROM ended"""


def settle(run_id: str) -> str | None:
    """Give a held run its final state once nothing of it is in the air; returns that state.

    A failed run names every step that failed. Called after each failure and by every sweep, since
    the sibling that ends last may be on another worker.
    """
    row = database.fetch_one(_SETTLE, {"run_id": run_id})
    return row[0] if row else None


def _nothing_stopped(run_id: str) -> Refused | UnknownRun:
    found = database.fetch_one(
        "SELECT state, hold, reason FROM run WHERE run_id = %(run_id)s", {"run_id": run_id}
    )
    if found is None:
        return UnknownRun(f"There is no run {run_id!r}; `onward runs list` shows those that exist.")
    if found[2] in (BlockReason.UNKNOWN_EFFECT, BlockReason.JOURNAL_REWOUND) and found[1] is None:
        return Refused(
            f"Run {run_id} waits for a person's word about an effect that may have happened: `onward effects list "
            f"--run {run_id}` shows it, `onward effects resolve KEY` says what became of it, and the run goes on."
        )
    if found[1] == Hold.CANCEL:
        return Refused(f"Run {run_id} was cancelled, which is for good: submit a new run instead.")
    if found[0] == RunState.COMPENSATED:
        return Refused(
            f"What run {run_id} did was undone, which is for good: submit a new run instead."
        )
    if found[1] == Hold.COMPENSATE:
        return Refused(
            f"Run {run_id} is {found[0]}, and what it did is being undone: it cannot go on. "
            f"`onward runs compensate {run_id}` tries again what could not be undone."
        )
    undoing = database.fetch_one(
        "SELECT 1 FROM compensation WHERE run_id = %(run_id)s AND state = 'undoing'",
        {"run_id": run_id},
    )
    if undoing is not None:
        return Refused(
            f"Run {run_id} is {found[0]}, and effects of it are being undone: try again once that is over."
        )
    if found[1] == Hold.FAILED and found[0] == RunState.RUNNING:
        return Refused(
            f"Run {run_id} has a failed step, and others still run: try again once they ended."
        )
    return Refused(f"Run {run_id} is {found[0]}: no step of it can be sent back.")
