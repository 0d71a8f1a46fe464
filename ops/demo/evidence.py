"""What the journal says about the batch. Reads only."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from models import database


@dataclass(frozen=True, slots=True)
class Progress:
    """Where the batch stands."""

    documents: int
    completed: int
    stopped: int  #: failed, blocked or cancelled: nothing but a person moves them
    steps_done: int
    steps_planned: int

    @property
    def settled(self) -> bool:
        return self.completed + self.stopped >= self.documents


@dataclass(frozen=True, slots=True)
class HeldStep:
    """One running step and the process that holds it."""

    run_id: str
    branch: str
    step_key: str
    kind: str
    token: int
    worker: str  #: as the supervisor names it
    pid: int
    pid_started: int

    def __str__(self) -> str:
        pid = f", pid {self.pid}" if self.pid else ""
        return f"{self.step_key} of {short(self.run_id)} (token {self.token}{pid})"


@dataclass(frozen=True, slots=True)
class QueuedStep:
    """One pending step whose message is out."""

    run_id: str
    branch: str
    step_key: str
    token: int
    publications: int


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of one step since a fault."""

    finished_at: datetime | None = None
    finished_token: int | None = None  #: of the claim whose result was recorded
    outcome: str | None = None  #: how the claim that was hit ended otherwise
    reason: str = ""
    rejected: bool = False  #: its late result was kept as evidence and changed nothing
    token: int | None = None  #: the branch's token now, while it stands at this step
    publications: int = 0


_PROGRESS = """
SELECT count(*), count(*) FILTER (WHERE state = 'completed'),
       count(*) FILTER (WHERE state IN ('failed', 'blocked', 'cancelled')),
       (SELECT count(*) FROM step s JOIN run o USING (run_id) WHERE o.batch_id = %(batch_id)s),
       coalesce(sum(step_count), 0)
FROM run WHERE batch_id = %(batch_id)s"""

_HELD = """
SELECT l.run_id, l.branch, l.step_key, p.kind, l.token, split_part(l.worker, '@', 1), l.pid, l.pid_started
FROM live l JOIN plan p USING (run_id, step_key)
WHERE l.batch_id = %(batch_id)s AND l.owner IS NOT NULL AND l.pid IS NOT NULL
ORDER BY l.claimed_at DESC"""

_QUEUED = """
SELECT run_id, branch, step_key, token, publications FROM live
WHERE batch_id = %(batch_id)s AND state = 'pending' AND missing = 0 AND publications > 0
  AND due_at <= onward_now() ORDER BY publish_at"""

_FATES = """
SELECT s.finished_at, s.token, a.outcome, coalesce(a.error, ''), late.token IS NOT NULL,
       l.token, coalesce(l.publications, 0)
FROM unnest(%(run_ids)s::text[], %(branches)s::text[], %(step_keys)s::text[], %(tokens)s::bigint[])
     WITH ORDINALITY AS h(run_id, branch, step_key, token, place)
LEFT JOIN step s ON s.run_id = h.run_id AND s.step_key = h.step_key AND s.state = 'completed'
LEFT JOIN attempt a ON a.run_id = h.run_id AND a.step_key = h.step_key AND a.token = h.token
     AND a.outcome <> 'superseded'
LEFT JOIN attempt late ON late.run_id = h.run_id AND late.step_key = h.step_key
     AND late.token = h.token AND late.outcome = 'superseded'
LEFT JOIN live l ON l.run_id = h.run_id AND l.branch = h.branch AND l.step_key = h.step_key
ORDER BY h.place"""

_CLAIMS = """
SELECT coalesce((SELECT sum(s.attempt) FROM step s JOIN run r USING (run_id) WHERE r.batch_id = %(batch_id)s), 0)
     + coalesce((SELECT sum(attempt) FROM live WHERE batch_id = %(batch_id)s), 0)"""


def progress(batch_id: str) -> Progress:
    """Counts over the whole batch."""
    return Progress(*map(int, database.fetch(_PROGRESS, {"batch_id": batch_id})[0]))


def held(batch_id: str) -> list[HeldStep]:
    """Every running step of the batch, the latest claim first."""
    return [HeldStep(*row) for row in database.fetch(_HELD, {"batch_id": batch_id})]


def queued(batch_id: str) -> list[QueuedStep]:
    """Every step that waits for a worker with a message under way."""
    return [QueuedStep(*row) for row in database.fetch(_QUEUED, {"batch_id": batch_id})]


def fates(steps: Sequence[HeldStep | QueuedStep]) -> list[Fate]:
    """What became of these steps, in their order."""
    rows = database.fetch(
        _FATES,
        {
            "run_ids": [one.run_id for one in steps],
            "branches": [one.branch for one in steps],
            "step_keys": [one.step_key for one in steps],
            "tokens": [one.token for one in steps],
        },
    )
    return [Fate(*row) for row in rows]


def claims(batch_id: str) -> int:
    """How often any step of the batch was begun: every claim counts, whatever came of it."""
    return int(database.fetch(_CLAIMS, {"batch_id": batch_id})[0][0])


def lost_claims(batch_id: str) -> int:
    """Claims that led to no result, those of dead owners included."""
    return claims(batch_id) - progress(batch_id).steps_done


def clock() -> datetime:
    """The database's time, by which everything in the journal is dated."""
    now: datetime = database.fetch("SELECT onward_now()", {})[0][0]
    return now


def sweep_began_after(moment: datetime) -> datetime | None:
    """When the first sweep known to have begun after ``moment`` was complete."""
    row = database.fetch_one(
        "SELECT completed_at FROM pass WHERE name = 'sweep' AND started_at > %(moment)s"
        " AND completed_at >= started_at",
        {"moment": moment},
    )
    return row[0] if row else None


def result_of(step: HeldStep) -> str | None:
    """The text that a completed step recorded."""
    row = database.fetch_one(
        "SELECT output FROM step WHERE run_id = %(run_id)s AND step_key = %(step_key)s",
        {"run_id": step.run_id, "step_key": step.step_key},
    )
    return None if row is None or row[0] is None else str(json.loads(row[0]))


def done_before(runs: Sequence[str], moment: datetime) -> tuple[float, int]:
    """Seconds of work and LLM steps that these runs had behind them at a moment."""
    row = database.fetch_one(
        "SELECT coalesce(sum(extract(epoch FROM s.finished_at - s.started_at)), 0)::float8,"
        " count(*) FILTER (WHERE p.kind = 'llm') FROM step s JOIN plan p USING (run_id, step_key)"
        " WHERE s.run_id = ANY(%(runs)s) AND s.state = 'completed' AND s.finished_at <= %(moment)s",
        {"runs": list(runs), "moment": moment},
    )
    return (row[0], row[1]) if row else (0.0, 0)


def short(run_id: str) -> str:
    """Enough of a run id to recognise it: its last characters, the random ones."""
    return f"run …{run_id[-6:]}"
