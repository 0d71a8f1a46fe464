"""Answers that change nothing: why a claim failed, what a run is waiting for, what happened to it."""

from collections.abc import Collection
from enum import StrEnum
from typing import LiteralString

from models import database


class NotClaimed(StrEnum):
    """Why a message found nothing to run."""

    DONE = "done"  #: the step is over; the message came late
    RUNNING = "running"  #: somebody holds it; the message is a copy
    MOVED = "moved"  #: the branch stands elsewhere
    HELD = "held"  #: the run is cancelled or failed
    EARLY = "early"  #: it is not due yet
    JOINING = "joining"  #: members of its group are missing
    STOPPED = "stopped"  #: unknown, failed or blocked: recovery or a person decides
    VERSION = "version"  #: the run is pinned to code this worker does not have
    GONE = "gone"  #: no such run or step


#: Messages that say what was already known: counted as suppressed duplicates.
DUPLICATES = frozenset({NotClaimed.DONE, NotClaimed.RUNNING, NotClaimed.MOVED})


def why_not(run_id: str, branch: str, step_key: str) -> NotClaimed:
    """Why ``claim`` answered None, as far as can be told a moment later."""
    row = database.fetch_one(
        """
        SELECT EXISTS (SELECT 1 FROM step s WHERE s.run_id = r.run_id AND s.step_key = %(step_key)s),
               l.step_key = %(step_key)s, l.state, r.hold IS NOT NULL, l.missing > 0,
               l.due_at > onward_now()
        FROM run r LEFT JOIN live l ON l.run_id = r.run_id AND l.branch = %(branch)s
        WHERE r.run_id = %(run_id)s""",
        {"run_id": run_id, "branch": branch, "step_key": step_key},
    )
    if row is None:
        return NotClaimed.GONE
    done, here, state, held, joining, early = row
    verdicts = (
        (done, NotClaimed.DONE),
        (not here, NotClaimed.MOVED),
        (state == "running", NotClaimed.RUNNING),
        (held, NotClaimed.HELD),
        (joining, NotClaimed.JOINING),
        (state != "pending", NotClaimed.STOPPED),
        (early, NotClaimed.EARLY),
    )
    return next((verdict for found, verdict in verdicts if found), NotClaimed.VERSION)


_FACTS: LiteralString = """
SELECT r.run_id, r.state, r.hold, r.reason, r.detail, l.step_key, l.state, l.missing, l.queue, l.attempt,
       l.failures, extract(epoch FROM l.due_at - onward_now())::float8,
       extract(epoch FROM l.lease_expires_at - onward_now())::float8,
       extract(epoch FROM onward_now() - l.claimed_at)::float8, l.worker, l.publications, l.block_reason,
       l.error, l.progress_done, l.progress_total, l.progress_note
FROM run r LEFT JOIN live l ON l.run_id = r.run_id"""

_OF_RUN: LiteralString = f"{_FACTS} WHERE r.run_id = %(run_id)s ORDER BY l.branch"

#: What nothing but a person or a new worker gets going. A failed run is settled, not stuck.
_STUCK: LiteralString = f"""{_FACTS}
WHERE r.state = 'blocked' OR (r.state IN ('pending', 'running', 'waiting') AND (l.run_id IS NULL
    OR l.state = 'pending' AND l.missing = 0 AND l.due_at <= onward_now() AND l.queue <> ALL(%(served)s)))
ORDER BY r.run_id, l.branch LIMIT %(limit)s"""


def branch_rows(run_id: str) -> list[database.Row]:
    """Every branch in motion of one run, beside the run's own state."""
    return database.fetch(_OF_RUN, {"run_id": run_id})


def stuck_rows(served: Collection[str], *, limit: int) -> list[database.Row]:
    """The same of runs that are blocked, lost, or due on a queue that nobody serves."""
    return database.fetch(_STUCK, {"served": list(served), "limit": limit})


def served_queues(*, silent_after: float) -> set[str]:
    """Queues that some worker seen lately consumes."""
    rows = database.fetch(
        "SELECT DISTINCT unnest(queues) FROM worker WHERE stopped_at IS NULL"
        " AND seen_at > onward_now() - make_interval(secs => %(silent)s)",
        {"silent": silent_after},
    )
    return {row[0] for row in rows}


def pass_age(name: str) -> float | None:
    """Seconds since the last complete pass of a periodic job; None when there was none."""
    row = database.fetch_one(
        "SELECT extract(epoch FROM onward_now() - completed_at)::float8 FROM pass WHERE name = %(name)s",
        {"name": name},
    )
    return row[0] if row else None
