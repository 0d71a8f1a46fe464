"""Asking for the undoing of what a run did, and what became of it. ``undoing`` does it.

A whole run is held meanwhile: nothing of it is claimed, its branches end as those of a cancelled run do, and
in the end it is ``compensated``, for good. Single effects (``only``) are undone beside the run, which stays
what it is. Asked for again, it goes on where it stopped, and what stopped it is tried anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import LiteralString

from models import database
from models.journal import runs, undo_sql
from models.journal.errors import Refused, UnknownRun
from models.journal.runs import MAX_PROSE, Cancellation
from models.messages import printable, shorten
from models.settings import settings
from models.states import EffectClass, EffectState, Hold, RunState


@dataclass(frozen=True, slots=True)
class Requested:
    """Where a run's compensation stands after it was asked for. ``changed``: this request made a difference."""

    run_id: str
    state: str
    changed: bool


@dataclass(frozen=True, slots=True)
class EffectStanding:
    """One effect of a run, and what became of its undoing."""

    key: str
    step_key: str
    tool: str
    effect_class: str
    state: str
    person: str | None  #: why somebody has to say whether it happened
    unasked: bool  #: the finished body of its step did not ask for it again
    undo_state: str | None
    undo_person: str | None


#: Undos that wait for a person are tried anew; those in doubt are asked about first, as before.
_PARDONED: LiteralString = """
pardoned AS (
    UPDATE effect e SET person = NULL, pardoned_sends = e.sends, failed_checks = 0, looks = 0,
        due_at = onward_now(), revision = e.revision + 1
    FROM opening o
    WHERE e.run_id = o.run_id AND e.undoes IS NOT NULL AND e.person IS NOT NULL
      AND (o.only_keys IS NULL OR e.undoes = ANY(o.only_keys))
)"""

#: What is to be undone is not sent again under its key: unless somebody is sending it now, it is looked up.
_ASKED_FIRST: LiteralString = """
asked_first AS (
    UPDATE effect e SET state = 'unknown', doubted_at = coalesce(e.doubted_at, onward_now()),
        due_at = onward_now(), resend_until = least(e.resend_until, onward_now()), revision = e.revision + 1
    FROM opening o
    WHERE e.run_id = o.run_id AND e.undoes IS NULL AND e.key = ANY(%(keys)s::text[])
      AND e.state IN ('intended', 'unknown') AND e.resend_until > onward_now() AND NOT EXISTS (
          SELECT 1 FROM live l WHERE l.run_id = e.run_id AND l.branch = e.branch
          AND l.step_key = e.step_key AND l.owner IS NOT NULL)
    RETURNING e.run_id, e.step_key, e.token, e.key
), told_first AS (
    INSERT INTO event (run_id, step_key, token, kind, detail)
    SELECT run_id, step_key, token, 'effect_unknown', key || ': it is to be undone, and may have happened'
    FROM asked_first
)"""

_LOCKED: LiteralString = """
WITH first AS MATERIALIZED (
    SELECT 1 FROM effect WHERE run_id = %(run_id)s AND (undoes IS NOT NULL AND person IS NOT NULL
        OR undoes IS NULL AND key = ANY(%(keys)s::text[]) AND state IN ('intended', 'unknown'))
    ORDER BY key FOR NO KEY UPDATE
), before AS MATERIALIZED (
    SELECT c.* FROM compensation c, (SELECT count(*) FROM first) locked WHERE c.run_id = %(run_id)s
    FOR NO KEY UPDATE OF c
)"""

#: A run that is still being cancelled comes to rest under the other hold.
_ALL: LiteralString = f"""{_LOCKED}, old AS (
    SELECT r.run_id, NULL::text[] AS only_keys, %(by)s AS requested_by, %(why)s AS why,
           CASE WHEN r.hold = 'compensate' THEN b.run_state ELSE r.state END AS state,
           CASE WHEN r.hold = 'compensate' THEN b.run_reason ELSE r.reason END AS reason,
           CASE WHEN r.hold = 'compensate' THEN b.run_detail ELSE r.detail END AS detail
    FROM run r LEFT JOIN before b ON true
    WHERE r.run_id = %(run_id)s AND (r.state IN ('failed', 'blocked', 'cancelled')
        OR r.hold = 'cancel' AND r.state IN ('pending', 'running', 'waiting'))
    FOR NO KEY UPDATE OF r
), opening AS (
    UPDATE run r SET state = 'compensating', hold = 'compensate', finished_at = NULL, reason = old.reason,
        detail = old.detail, revision = r.revision + 1
    FROM old WHERE r.run_id = %(run_id)s RETURNING old.*
), {undo_sql.OPENED}, {_PARDONED}
SELECT 1 FROM opening"""

#: The run's row is locked, since one that is sent back at this moment must not be undone beside itself.
_SINGLE: LiteralString = f"""{_LOCKED}, opening AS (
    SELECT r.run_id, %(keys)s::text[] AS only_keys, %(by)s AS requested_by, %(why)s AS why, r.state, r.reason,
           r.detail
    FROM run r LEFT JOIN before b ON true
    WHERE r.run_id = %(run_id)s AND r.state IN ('completed', 'failed', 'blocked', 'cancelled')
      AND r.hold IS DISTINCT FROM 'compensate'
      AND NOT coalesce(b.state = 'undoing' AND b.only_keys @> %(keys)s::text[], false)
    FOR NO KEY UPDATE OF r
), {undo_sql.OPENED}, {_PARDONED}, {_ASKED_FIRST}
SELECT 1 FROM opening"""

#: Due, nobody is at it, and nothing has to come to rest first. Stamped ahead, so that a lost message is sent
#: again and a message in a long queue is not sent every second.
_TAKE_DUE: LiteralString = f"""
WITH due AS (
    SELECT c.run_id FROM compensation c JOIN run r ON r.run_id = c.run_id
    WHERE c.state = 'undoing' AND c.due_at <= onward_now() AND coalesce(c.doer_until <= onward_now(), true)
      AND (%(run_id)s::text IS NULL OR c.run_id = %(run_id)s)
      AND (c.only_keys IS NOT NULL OR r.hold = 'compensate' AND NOT EXISTS (
           SELECT 1 FROM live l WHERE l.run_id = c.run_id AND l.state = 'running'))
      AND NOT EXISTS (SELECT 1 FROM effect e WHERE e.run_id = c.run_id AND {undo_sql.CONCERNED}
          AND e.person IS NULL AND CASE WHEN e.undoes IS NULL THEN true ELSE e.state = 'unknown'
              AND NOT coalesce(e.resend_until > onward_now()
                               AND e.sends - e.pardoned_sends <= %(resend_limit)s, false) END)
    ORDER BY c.due_at LIMIT %(limit)s FOR UPDATE OF c SKIP LOCKED
)
UPDATE compensation c SET due_at = onward_now() + make_interval(secs => %(pause)s), revision = c.revision + 1
FROM due WHERE c.run_id = due.run_id RETURNING c.run_id, c.queue"""

#: What stopped it has been resolved: nothing of it needs a person any more.
_REOPEN: LiteralString = f"""
WITH again AS (
    UPDATE compensation c SET state = 'undoing', error = NULL, pardoned_failures = c.failures,
        due_at = onward_now(), revision = c.revision + 1
    WHERE c.state = 'blocked' AND NOT EXISTS (SELECT 1 FROM effect e
        WHERE e.run_id = c.run_id AND e.person IS NOT NULL AND {undo_sql.CONCERNED})
    RETURNING c.*
), shown AS (
    UPDATE run r SET state = 'compensating', reason = a.run_reason, detail = a.run_detail,
        revision = r.revision + 1
    FROM again a WHERE r.run_id = a.run_id AND r.hold = 'compensate' AND r.state = 'blocked'
)
SELECT run_id FROM again"""

_STANDINGS: LiteralString = """
SELECT o.key, o.step_key, o.tool, o.effect_class, o.state, o.person,
       EXISTS (SELECT 1 FROM event v WHERE v.run_id = o.run_id AND v.kind = 'effect_not_asked_again'
               AND v.detail = o.key),
       u.state, u.person
FROM effects o LEFT JOIN effects u ON u.run_id = o.run_id AND u.undoes = o.key
WHERE o.run_id = %(run_id)s AND o.undoes IS NULL AND o.effect_class <> 'pure'
  AND o.state NOT IN ('refused', 'absent')
ORDER BY o.position DESC NULLS FIRST, o.created_at DESC"""


def request(run_id: str, *, by: str, reason: str, only: Sequence[str] = ()) -> Requested:
    """Ask for what a run did to be undone: all of it, or the effects named.

    Asking again changes nothing while it goes on, and lets it go on when it is blocked. Raises ``Refused``
    for a run that is not at rest, a completed one as a whole, and keys of which nothing can be undone.
    """
    params: dict[str, object] = {
        "run_id": run_id, "by": _prose(by), "why": _prose(reason), "keys": sorted(set(only)),
    }  # fmt: skip
    if only and not _open(run_id, sorted(set(only))):
        return Requested(run_id, "done", changed=False)
    changed = database.fetch_one(_SINGLE if only else _ALL, params) is not None
    if not changed:
        _check(run_id, single=bool(only))
    rows = database.fetch(
        "SELECT state FROM compensation WHERE run_id = %(run_id)s", {"run_id": run_id}
    )
    return Requested(run_id, rows[0][0] if rows else "done", changed)


def cancel_and_request(
    run_id: str, *, by: str, reason: str, cancellation_id: str
) -> tuple[Cancellation, Requested]:
    """Cancel a run and have what it did undone, in one transaction. Raises ``Refused``, ``UnknownRun``."""
    with database.transaction():
        cancelled = runs.cancel(run_id, by=by, reason=reason, cancellation_id=cancellation_id)
        return cancelled, request(run_id, by=by, reason=reason)


def take_due(*, limit: int, run_id: str | None = None) -> list[tuple[str, str]]:
    """Hand out compensations that can go on now: (run, queue)."""
    rows = database.fetch(
        _TAKE_DUE,
        {
            "limit": limit, "run_id": run_id, "resend_limit": settings().resend_limit,
            "pause": 2 * settings().publish_grace,
        },
    )  # fmt: skip
    return [(row[0], row[1]) for row in rows]


def give_back(run_ids: Sequence[str], *, after: float) -> None:
    """Messages for these could not be sent: they are due again ``after`` seconds from now."""
    database.fetch(
        "UPDATE compensation SET due_at = onward_now() + make_interval(secs => %(after)s),"
        " revision = revision + 1 WHERE run_id = ANY(%(run_ids)s) AND state = 'undoing'",
        {"run_ids": list(run_ids), "after": after},
    )


def reopen_resolved() -> list[str]:
    """Let those go on whose last question to a person is answered; returns their runs."""
    return [row[0] for row in database.fetch(_REOPEN, {})]


def standings(run_id: str) -> list[EffectStanding]:
    """What a run did, or may have done, outside: in the order in which it would be undone."""
    return [EffectStanding(*row) for row in database.fetch(_STANDINGS, {"run_id": run_id})]


def untracked_steps(run_id: str) -> list[str]:
    """Steps that ran and whose doings Onward cannot see."""
    rows = database.fetch(
        "SELECT p.step_key FROM plan p JOIN steps s ON s.run_id = p.run_id AND s.step_key = p.step_key"
        " WHERE p.run_id = %(run_id)s AND p.untracked AND s.attempt > 0 ORDER BY p.position",
        {"run_id": run_id},
    )
    return [row[0] for row in rows]


def _open(run_id: str, keys: Sequence[str]) -> list[str]:
    """Those of these effects that are not undone yet. Raises ``Refused`` when one cannot be meant."""
    rows = database.fetch(
        "SELECT o.key, o.state, o.effect_class, o.undoes, u.state FROM effects o"
        " LEFT JOIN effects u ON u.run_id = o.run_id AND u.undoes = o.key WHERE o.run_id = %(run_id)s",
        {"run_id": run_id},
    )
    known = {key: facts for key, *facts in rows}
    wrong = [f"{key} {problem}" for key in keys if (problem := _problem(known.get(key)))]
    if wrong:
        raise Refused(
            f"Nothing of run {run_id} was undone: {'; '.join(wrong)}. "
            f"`onward runs compensate {run_id} --dry-run` lists what can be."
        )
    return [
        key for key in keys if known[key][3] not in (EffectState.SETTLED, EffectState.ABANDONED)
    ]


def _problem(facts: Sequence[str | None] | None) -> str | None:
    if facts is None:
        return "is no effect of this run"
    state, effect_class, undoes, _ = facts
    if undoes is not None:
        return "is itself the undoing of another effect"
    if effect_class == EffectClass.PURE:
        return "changed nothing outside"
    if state in (EffectState.REFUSED, EffectState.ABSENT):
        return "did not happen"
    if state == EffectState.ABANDONED:
        return "was given up by a person: nobody knows whether it happened"
    return None


def _check(run_id: str, *, single: bool) -> None:
    """Why nothing was changed: it goes on already, or it cannot be done."""
    row = database.fetch_one(
        "SELECT state, hold FROM run WHERE run_id = %(run_id)s", {"run_id": run_id}
    )
    if row is None:
        raise UnknownRun(f"There is no run {run_id!r}; `onward runs list` shows those that exist.")
    state, hold = row
    if state == RunState.COMPLETED and not single:
        raise Refused(
            f"Run {run_id} is completed, and its result stands on what it did: name the effects to undo, "
            "`--only KEY`."
        )
    if state in (RunState.PENDING, RunState.RUNNING, RunState.WAITING) and hold != Hold.COMPENSATE:
        raise Refused(
            f"Run {run_id} is {state}: cancel it first, `onward runs cancel {run_id} --compensate` does both."
        )


def _prose(text: str) -> str:
    return shorten(printable(text), limit=MAX_PROSE)
