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
       l.error, l.progress_done, l.progress_total, l.progress_note, l.untracked, l.error_type
FROM run r LEFT JOIN live l ON l.run_id = r.run_id"""

_OF_RUN: LiteralString = f"{_FACTS} WHERE r.run_id = %(run_id)s ORDER BY l.branch"

#: What nothing but a person or a new worker gets going. A failed run is settled, not stuck.
_STUCK: LiteralString = f"""{_FACTS}
WHERE r.state = 'blocked' OR (r.state IN ('pending', 'running', 'waiting') AND (l.run_id IS NULL
    OR l.state = 'pending' AND l.missing = 0 AND l.due_at <= onward_now() AND l.queue <> ALL(%(served)s)
    OR l.state = 'unknown' AND l.untracked AND l.block_reason IS NULL AND l.queue <> ALL(%(served)s)
    OR l.state = 'unknown' AND EXISTS (
        SELECT 1 FROM effect e WHERE e.run_id = l.run_id AND e.step_key = l.step_key AND e.state = 'unknown'
        AND (e.person IS NOT NULL OR e.queue <> ALL(%(served)s)))))
    OR EXISTS (SELECT 1 FROM compensation c WHERE c.run_id = r.run_id
               AND (c.state = 'blocked' OR c.state = 'undoing' AND (c.queue <> ALL(%(served)s) OR EXISTS (
                   SELECT 1 FROM effect e WHERE e.run_id = c.run_id AND e.state = 'unknown'
                   AND e.queue <> ALL(%(served)s)))))
ORDER BY r.run_id, l.branch LIMIT %(limit)s"""

#: What people are told of effects in doubt. The last look is told by its event, which begins with the key.
_DOUBTS: LiteralString = """
SELECT e.run_id, e.key, e.step_key, e.tool, e.undoes IS NOT NULL, e.person,
       coalesce(e.doubted_at, e.sent_at),
       extract(epoch FROM onward_now() - coalesce(e.doubted_at, e.sent_at))::float8,
       extract(epoch FROM e.due_at - onward_now())::float8,
       e.looker IS NOT NULL AND e.looker_until > onward_now(), e.checks,
       (SELECT substr(v.detail, length(e.key) + 3) FROM event v
        WHERE v.run_id = e.run_id AND v.kind = 'effect_looked' AND starts_with(v.detail, e.key || ': ')
        ORDER BY v.event_id DESC LIMIT 1), e.queue
FROM effect e
WHERE e.run_id = ANY(%(run_ids)s) AND (e.state = 'unknown' OR e.person IS NOT NULL)
ORDER BY e.run_id, e.person IS NULL, e.due_at, e.key"""

_UNDOING: LiteralString = """
SELECT run_id, state, coalesce(doer_until > onward_now(), false),
       extract(epoch FROM due_at - onward_now())::float8, queue, error
FROM compensation WHERE run_id = ANY(%(run_ids)s) AND state <> 'done'"""


def branch_rows(run_id: str) -> list[database.Row]:
    """Every branch in motion of one run, beside the run's own state."""
    return database.fetch(_OF_RUN, {"run_id": run_id})


def stuck_rows(served: Collection[str], *, limit: int) -> list[database.Row]:
    """The same of runs that are blocked, lost, or due on a queue that nobody serves."""
    return database.fetch(_STUCK, {"served": list(served), "limit": limit})


def doubt_rows(run_ids: Collection[str]) -> list[database.Row]:
    """Effects of these runs of which it is not known whether they happened, those for a person first."""
    return database.fetch(_DOUBTS, {"run_ids": list(run_ids)})


def undoing_rows(run_ids: Collection[str]) -> list[database.Row]:
    """Compensations of these runs that are not over."""
    return database.fetch(_UNDOING, {"run_ids": list(run_ids)})


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
