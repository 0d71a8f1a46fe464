"""What the journal knows about one run, as people ask for it. Reads only.

One statement per question, through the views ``runs`` and ``steps``, which hide that what moves and
what is finished live in two tables.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString

from models import database
from models.journal.call_sql import LINES as CALL_LINES
from models.journal.errors import UnknownRun
from models.journal.stories import LINES, Happening

_RUN_COLUMNS: LiteralString = """run_id, batch_id, submission_key, workflow, version, state, hold, reason,
    detail, priority, step_count, completed_steps, duplicates, created_at, started_at, finished_at,
    cancelled_by, cancel_reason"""


@dataclass(frozen=True, slots=True)
class RunView:
    """One run as a person sees it."""

    run_id: str
    batch_id: str | None
    submission_key: str | None
    workflow: str
    version: str
    state: str
    hold: str | None
    reason: str | None
    detail: str | None
    priority: int
    step_count: int
    completed_steps: int
    duplicates: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    cancelled_by: str | None
    cancel_reason: str | None


@dataclass(frozen=True, slots=True)
class StepView:
    """One planned step with the one state people mean."""

    step_key: str
    step_name: str
    kind: str
    branch: str
    queue: str
    state: str
    attempt: int
    token: int
    worker: str | None
    failures: int | None
    crashes: int | None
    lost: int | None
    block_reason: str | None
    error_type: str | None
    error: str | None
    started_at: datetime | None
    finished_at: datetime | None
    output_digest: str | None
    progress_done: float | None
    progress_total: float | None
    progress_note: str | None
    untracked: bool
    inserted_by: str | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended, with the recorded text of its result when it completed."""

    state: str
    reason: str | None
    detail: str | None
    cancelled_by: str | None
    cancel_reason: str | None
    workflow: str
    version: str
    step_name: str | None
    output: str | None


def find(reference: str) -> str:
    """The id of the run that has this id, or was submitted under this key. Raises ``UnknownRun``."""
    row = database.fetch_one(
        "SELECT run_id FROM run WHERE run_id = %(it)s OR submission_key = %(it)s"
        " ORDER BY run_id = %(it)s DESC LIMIT 1",
        {"it": reference},
    )
    if row is None:
        raise _unknown(reference)
    return str(row[0])


def get_run(run_id: str) -> RunView:
    """One run. Raises ``UnknownRun``."""
    row = database.fetch_one(
        f"SELECT {_RUN_COLUMNS} FROM runs WHERE run_id = %(run_id)s", {"run_id": run_id}
    )
    if row is None:
        raise _unknown(run_id)
    return RunView(*row)


def list_runs(
    *, state: str | None = None, workflow: str | None = None, batch_id: str | None = None,
    limit: int = 50,
) -> list[RunView]:  # fmt: skip
    """Runs, newest first."""
    rows = database.fetch(
        f"""
        SELECT {_RUN_COLUMNS} FROM runs
        WHERE (%(state)s::text IS NULL OR state = %(state)s)
          AND (%(workflow)s::text IS NULL OR workflow = %(workflow)s)
          AND (%(batch_id)s::text IS NULL OR batch_id = %(batch_id)s)
        ORDER BY created_at DESC, run_id DESC LIMIT %(limit)s""",
        {"state": state, "workflow": workflow, "batch_id": batch_id, "limit": limit},
    )
    return [RunView(*row) for row in rows]


def get_runs(run_ids: list[str]) -> dict[str, RunView]:
    """Several runs by id; those that do not exist are left out."""
    rows = database.fetch(
        f"SELECT {_RUN_COLUMNS} FROM runs WHERE run_id = ANY(%(run_ids)s)", {"run_ids": run_ids}
    )
    return {view.run_id: view for view in (RunView(*row) for row in rows)}


def list_steps(run_id: str) -> list[StepView]:
    """Every planned step in the order it was written. Raises ``UnknownRun``."""
    rows = database.fetch(
        """
        SELECT s.step_key, s.step_name, s.kind, s.branch, s.queue, s.state, s.attempt, s.token, s.worker,
               s.failures, s.crashes, s.lost, s.block_reason, s.error_type, s.error, s.started_at,
               s.finished_at, s.output_digest, s.progress_done, s.progress_total, s.progress_note,
               p.untracked, s.inserted_by
        FROM steps s JOIN plan p ON p.run_id = s.run_id AND p.step_key = s.step_key
        WHERE s.run_id = %(run_id)s ORDER BY s.position""",
        {"run_id": run_id},
    )
    if not rows:
        raise _unknown(run_id)
    return [StepView(*row) for row in rows]


#: A claim shows up in the row of what it led to: a result, an attempt, or the branch still in motion.
#: Instants that are equal (one commit, or a clock that tests stopped) are told in the order of tokens.
_TIMELINE: LiteralString = f"""
WITH claims AS (
    SELECT step_key, attempt, token, worker, started_at FROM step
    WHERE run_id = %(run_id)s AND state = 'completed'
    UNION
    SELECT step_key, attempt, token, worker, started_at FROM attempt WHERE run_id = %(run_id)s
    UNION
    SELECT step_key, attempt, token, worker, claimed_at FROM live
    WHERE run_id = %(run_id)s AND state = 'running'
)
SELECT at, kind, step_key, attempt, token, worker, detail, actor, effect FROM (
    SELECT created_at AS at, 0 AS place, 'run_submitted' AS kind, NULL AS step_key, NULL::bigint AS attempt,
           NULL::bigint AS token, NULL AS worker, workflow || ' version ' || version AS detail,
           coalesce(submission_key, 'onward') AS actor, NULL AS effect FROM run WHERE run_id = %(run_id)s
    UNION ALL
    SELECT started_at, 1, 'step_claimed', step_key, attempt, token, worker, '', coalesce(worker, 'onward'), NULL
    FROM claims WHERE started_at IS NOT NULL
    UNION ALL
    SELECT finished_at, 2, 'step_' || state, step_key, attempt, token, worker, '', coalesce(worker, 'onward'),
           NULL
    FROM step WHERE run_id = %(run_id)s
    UNION ALL
    SELECT ended_at, 2, 'attempt_' || outcome, step_key, attempt, token, worker,
           coalesce(error_type || ': ', '') || coalesce(error, ''), coalesce(worker, 'onward'), NULL
    FROM attempt WHERE run_id = %(run_id)s
    UNION ALL
    SELECT at, 3, kind, step_key, NULL, token, NULL, detail, actor, NULL
    FROM event WHERE run_id = %(run_id)s AND NOT starts_with(kind, 'effect_')
    UNION ALL
    {LINES}
    UNION ALL
    {CALL_LINES}
    UNION ALL
    SELECT finished_at, 4, 'run_completed', result_key, NULL, NULL, NULL, '', 'onward', NULL
    FROM run WHERE run_id = %(run_id)s AND state = 'completed'
) found ORDER BY at, place > 0, token NULLS LAST, place"""


def timeline(run_id: str) -> list[Happening]:
    """Steps, attempts, effects and events of a run in the order of time. Raises ``UnknownRun``."""
    rows = database.fetch(_TIMELINE, {"run_id": run_id})
    if not rows:
        raise _unknown(run_id)
    return [Happening(*row) for row in rows]


def outcome(run_id: str) -> Outcome:
    """How a run stands or ended. Raises ``UnknownRun``."""
    row = database.fetch_one(
        """
        SELECT r.state, r.reason, r.detail, r.cancelled_by, r.cancel_reason, r.workflow, r.version,
               p.step_name, s.output
        FROM run r
        LEFT JOIN plan p ON p.run_id = r.run_id AND p.step_key = r.result_key
        LEFT JOIN step s ON s.run_id = r.run_id AND s.step_key = r.result_key
        WHERE r.run_id = %(run_id)s""",
        {"run_id": run_id},
    )
    if row is None:
        raise _unknown(run_id)
    return Outcome(*row)


def _unknown(run_id: str) -> UnknownRun:
    return UnknownRun(f"There is no run {run_id!r}; `onward runs list` shows those that exist.")
