"""Batches, workers and the database itself at a glance. Reads only."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from models import database
from models.journal.errors import JournalError
from models.states import RunState


class UnknownBatch(JournalError):
    """There is no batch of this id."""


class BatchState(StrEnum):
    """Where a batch stands as a whole."""

    EMPTY = "empty"
    PENDING = "pending"  #: no run has started
    RUNNING = "running"
    COMPLETED = "completed"
    COMPLETED_WITH_ERRORS = "completed_with_errors"  #: nothing moves; some runs did not complete
    FAILED = "failed"  #: nothing moves; no run completed


_MOVING = (RunState.PENDING, RunState.RUNNING, RunState.WAITING, RunState.COMPENSATING)


@dataclass(frozen=True, slots=True)
class BatchView:
    """One batch, its runs counted by state."""

    batch_id: str
    label: str
    created_at: datetime
    counts: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def completed(self) -> int:
        return self.counts.get(RunState.COMPLETED, 0)

    @property
    def moving(self) -> int:
        """Runs that may still end without anybody's help."""
        return sum(self.counts.get(state, 0) for state in _MOVING)

    @property
    def state(self) -> BatchState:
        if not self.total:
            return BatchState.EMPTY
        if self.counts.get(RunState.PENDING, 0) == self.total:
            return BatchState.PENDING
        if self.moving:
            return BatchState.RUNNING
        if self.completed == self.total:
            return BatchState.COMPLETED
        return BatchState.COMPLETED_WITH_ERRORS if self.completed else BatchState.FAILED

    def __str__(self) -> str:
        return f"{self.completed}/{self.total}, {self.state}"


@dataclass(frozen=True, slots=True)
class WorkerView:
    """One start of a worker and what it holds now. Ages are seconds by the journal's clock."""

    name: str
    host: str
    pid: int
    queues: list[str]
    concurrency: int
    started_at: datetime
    seen_ago: float
    stopped: bool
    holding: int


def get_batch(batch_id: str) -> BatchView:
    """A batch with its runs counted by state. Raises ``UnknownBatch``."""
    rows = database.fetch(
        """
        SELECT b.batch_id, b.label, b.created_at, r.state, count(r.run_id)
        FROM batch b LEFT JOIN run r ON r.batch_id = b.batch_id
        WHERE b.batch_id = %(batch_id)s GROUP BY 1, 2, 3, 4""",
        {"batch_id": batch_id},
    )
    if not rows:
        raise UnknownBatch(
            f"There is no batch {batch_id!r}; `onward runs list` shows the batches of recent runs."
        )
    counts = {row[3]: row[4] for row in rows if row[3] is not None}
    return BatchView(batch_id, rows[0][1], rows[0][2], counts)


def list_workers(*, silent_before: float | None = None) -> list[WorkerView]:
    """Starts of workers, newest first; ``silent_before`` leaves out those silent for that many seconds."""
    rows = database.fetch(
        """
        SELECT w.name, w.host, w.pid, w.queues, w.concurrency, w.started_at,
               extract(epoch FROM onward_now() - w.seen_at)::float8, w.stopped_at IS NOT NULL,
               (SELECT count(*) FROM live l WHERE starts_with(l.owner, w.start_id || '.'))
        FROM worker w
        WHERE %(silent)s::float8 IS NULL OR w.seen_at > onward_now() - make_interval(secs => %(silent)s)
        ORDER BY w.started_at DESC""",
        {"silent": silent_before},
    )
    return [WorkerView(*row) for row in rows]


def queues_in_use() -> dict[str, int]:
    """Steps that wait for a worker now, by queue; steps whose group is incomplete wait for that instead."""
    rows = database.fetch(
        "SELECT queue, count(*) FROM live WHERE state = 'pending' AND missing = 0 AND due_at <= onward_now()"
        " GROUP BY queue",
        {},
    )
    return {row[0]: row[1] for row in rows}


def untracked_stopped(run_ids: Collection[str]) -> list[tuple[str, str]]:
    """(run, step) of stopped steps of these runs that a retry would repeat unseen by Onward."""
    rows = database.fetch(
        "SELECT run_id, step_key FROM live WHERE run_id = ANY(%(run_ids)s) AND untracked AND missing = 0"
        " AND state <> 'running' AND (state = 'failed' OR block_reason IS NOT NULL) ORDER BY run_id, branch",
        {"run_ids": list(run_ids)},
    )
    return [(row[0], row[1]) for row in rows]


def epoch() -> float:
    """The journal's clock, in seconds since 1970."""
    return float(database.fetch("SELECT extract(epoch FROM onward_now())::float8", {})[0][0])


def schema_revision() -> str | None:
    """The migration this database is at; None when it has no journal at all."""
    (table,) = database.fetch("SELECT to_regclass('alembic_version')", {})[0]
    row = database.fetch_one("SELECT version_num FROM alembic_version", {}) if table else None
    return row[0] if row else None
