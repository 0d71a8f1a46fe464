"""What a person says about an effect: it happened, it did not, or it is given up.

Each is one transaction: the step's row is locked, the effect is changed only from a state in which nobody
is about to change it, and the step goes on. An intent whose owner still holds it is the owner's; what is
settled stays so. Works for undos as well, whose owner is the doer of the compensation.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString

from models import database
from models.artifacts.payloads import load, seal
from models.digests import digest_text
from models.ids import check_identifier
from models.journal import stories, waking
from models.journal.effects import KEPT
from models.journal.errors import Refused
from models.journal.runs import MAX_PROSE
from models.messages import printable, shorten
from models.states import EffectState


@dataclass(frozen=True, slots=True)
class Resolved:
    """What was recorded. ``arrives_until``: until then a request that was sent may still arrive."""

    key: str
    run_id: str
    step_key: str
    finding: str
    arrives_until: datetime | None = None


_OWNED: LiteralString = """e.state = 'intended' AND CASE WHEN e.undoes IS NULL
    THEN EXISTS (SELECT 1 FROM live l WHERE l.run_id = e.run_id AND l.branch = e.branch
                 AND l.step_key = e.step_key AND l.token = e.token AND l.owner IS NOT NULL)
    ELSE EXISTS (SELECT 1 FROM compensation c WHERE c.run_id = e.run_id AND c.doer_until > onward_now()) END"""

#: A look-up under way, or a late answer, knows better than "it is not there".
_CONTRADICTED: LiteralString = """(e.state = 'unknown' AND e.looker IS NOT NULL AND e.looker_until > onward_now()
    OR EXISTS (SELECT 1 FROM effect_evidence v WHERE v.key = e.key))"""

#: A step that is over did not wait for it: its result does not know of this effect.
_SETTLE: LiteralString = f"""
WITH done AS (DELETE FROM effect e WHERE e.key = %(key)s AND NOT ({_OWNED}) RETURNING e.*), told AS (
    INSERT INTO event (run_id, step_key, token, kind, detail, actor)
    SELECT run_id, step_key, token, 'effect_resolved', %(told)s, %(by)s FROM done RETURNING at
), kept AS (
    INSERT INTO effect_settlement ({KEPT}, outcome, result, result_digest, source, actor, reason, settled_at)
    SELECT {KEPT}, %(outcome)s, %(result)s, %(result_digest)s, 'person', %(by)s, %(reason)s, told.at
    FROM done, told
), unasked AS (
    INSERT INTO event (run_id, step_key, token, kind, detail)
    SELECT run_id, step_key, token, 'effect_not_asked_again', key FROM done
    WHERE undoes IS NULL AND %(result)s::text IS NOT NULL AND EXISTS (
        SELECT 1 FROM step s WHERE s.run_id = done.run_id AND s.step_key = done.step_key AND s.state = 'completed')
)
SELECT run_id, step_key, NULL::timestamptz FROM done"""

#: Freed for another request, and what was sent so far no longer counts. ``doubted_at``: known from here on,
#: whenever the journal went back in time before.
_FREE: LiteralString = f"""
WITH done AS (
    UPDATE effect e SET state = 'absent', request_digest = NULL, pardoned_sends = e.sends, person = NULL,
        doubted_at = onward_now(), looker = NULL, looker_until = NULL, earlier_doubt = false, passed = false,
        revision = e.revision + 1
    WHERE e.key = %(key)s AND NOT ({_OWNED}) AND NOT {_CONTRADICTED}
      AND NOT (e.state = 'absent' AND e.request_digest IS NULL AND e.person IS NULL)
    RETURNING e.*
), told AS (
    INSERT INTO event (run_id, step_key, token, kind, detail, actor)
    SELECT run_id, step_key, token, 'effect_resolved', %(told)s, %(by)s FROM done
)
SELECT run_id, step_key, CASE WHEN absent_after > onward_now() THEN absent_after END FROM done"""

#: A step that was stopped for what is resolved now: its key is free for what it asks, or its call has a result
#: that could not be recorded.
_SEND_BACK: LiteralString = """
WITH back AS (
    UPDATE live SET state = 'pending', pardoned_failures = failures, pardoned_crashes = crashes,
        pardoned_lost = lost, block_reason = NULL, due_at = onward_now(), publish_at = onward_now(),
        publications = 0, revision = revision + 1
    WHERE run_id = %(run_id)s AND branch = %(branch)s AND step_key = %(step_key)s AND state = 'failed'
      AND (block_reason = 'idempotency_conflict' AND %(freed)s
           OR block_reason = 'unserialisable_output' AND NOT EXISTS (
               SELECT 1 FROM effect e WHERE e.run_id = %(run_id)s AND e.step_key = %(step_key)s
               AND e.undoes IS NULL AND e.person IS NOT NULL))
    RETURNING run_id, step_key, token
)
INSERT INTO event (run_id, step_key, token, kind, actor)
SELECT run_id, step_key, token, 'step_sent_back', %(by)s FROM back"""

_REOPEN: LiteralString = """
WITH done AS (
    UPDATE effect e SET person = NULL, due_at = onward_now(), failed_checks = 0, looks = 0,
        revision = e.revision + 1
    WHERE e.key = %(key)s AND e.state = 'unknown' AND e.person IS NOT NULL RETURNING e.*
), told AS (
    INSERT INTO event (run_id, step_key, token, kind, detail, actor)
    SELECT run_id, step_key, token, 'effect_reopened', key || ': to be looked up again', %(by)s FROM done
)
SELECT 1 FROM done"""


def found(key: str, *, external_id: str, result: str, by: str, reason: str) -> Resolved:
    """It happened: record the result that its step gets. Raises ``Refused``, ``UnknownEffect``."""
    return _resolve(
        key, _SETTLE, f"found as {external_id}", by=by, reason=reason, outcome=str(EffectState.SETTLED),
        result=seal(result), result_digest=digest_text(result),
    )  # fmt: skip


def abandon(key: str, *, by: str, reason: str) -> Resolved:
    """Give it up: the step's call fails for good. Raises ``Refused``, ``UnknownEffect``."""
    return _resolve(
        key, _SETTLE, "abandoned", by=by, reason=reason, outcome=str(EffectState.ABANDONED),
        result=None, result_digest=None,
    )  # fmt: skip


def absent(key: str, *, by: str, reason: str) -> Resolved:
    """It did not happen: it may be sent again, also as another request. Raises as the others do."""
    return _resolve(key, _FREE, "absent", by=by, reason=reason)


def ask_again(run_id: str, *, by: str) -> dict[str, str]:
    """Have what waits for a person looked up once more, where it can be; returns step keys by effect.

    For causes outside that are gone: a look-up that failed, or could not decide then. An effect of a
    tool that can neither be repeated nor asked stays with the person.
    """
    by = check_identifier("by", by)
    rows = database.fetch(
        "SELECT key, branch, step_key FROM effect WHERE run_id = %(run_id)s AND state = 'unknown'"
        " AND person IS NOT NULL AND effect_class <> 'once' ORDER BY created_at, key",
        {"run_id": run_id},
    )
    reopened = {}
    for key, branch, step_key in rows:
        with waking.step_locked(run_id, branch):
            if database.fetch_one(_REOPEN, {"key": key, "by": by}):
                waking.go_on(run_id, branch, step_key)
                reopened[key] = step_key
    return reopened


def _resolve(
    key: str, statement: LiteralString, finding: str, *, by: str, reason: str, **facts: object
) -> Resolved:
    by, reason = check_identifier("by", by), shorten(printable(reason), limit=MAX_PROSE)
    params = {
        "key": key, "by": by, "reason": reason, "told": f"{key}: {printable(finding)}: {reason}", **facts,
    }  # fmt: skip
    where = database.fetch_one(
        "SELECT run_id, branch, step_key, undoes FROM effect WHERE key = %(key)s", params
    )
    if where is None:
        raise _moved_on(key)
    run_id, branch, step_key, undoes = where
    with waking.step_locked(run_id, branch):
        row = database.fetch_one(statement, params)
        if row is None:
            raise _moved_on(key)
        stopped = {"run_id": run_id, "branch": branch, "step_key": step_key}
        if undoes is None:
            database.fetch(_SEND_BACK, {**stopped, "by": by, "freed": statement is _FREE})
        waking.go_on(run_id, branch, step_key)
    return Resolved(key, row[0], row[1], finding, row[2])


def _moved_on(key: str) -> Refused:
    """What is there now instead of what could be resolved. Raises ``UnknownEffect``."""
    view = stories.get_effect(key)
    if view.state == EffectState.SETTLED:
        return Refused(
            f"Effect {key} was settled at {view.settled_at:%Y-%m-%d %H:%M:%S} ({view.source}, by {view.actor}): "
            "what is settled stays so, and nothing was changed."
        )
    if view.state == EffectState.ABANDONED:
        return Refused(
            f"Effect {key} was abandoned at {view.settled_at:%Y-%m-%d %H:%M:%S} by {view.actor}, which is for "
            "good: nothing was changed."
        )
    return Refused(f"Effect {key} {_standing(key, view)}. Nothing was changed.")


def _standing(key: str, view: stories.EffectView) -> str:
    row = database.fetch_one(
        f"SELECT {_OWNED}, e.looker IS NOT NULL AND e.looker_until > onward_now(),"
        " e.state = 'absent' AND e.request_digest IS NULL AND e.person IS NULL,"
        " (SELECT v.result FROM effect_evidence v WHERE v.key = e.key ORDER BY v.at DESC LIMIT 1)"
        " FROM effect e WHERE e.key = %(key)s",
        {"key": key},
    )
    owned, looking, freed, evidence = row or (False, False, False, None)
    if owned:
        return (
            f"is being sent by {view.worker} (attempt {view.attempt}), which still holds it: it is settled by "
            "its answer, or can be resolved once its owner is gone"
        )
    if evidence is not None:
        return f"has a late answer that says it happened ({shorten(load(evidence))}): resolve it with --found"
    if looking:
        return "is being looked up at this moment, and what is found counts: look again in a minute"
    if freed:
        return "was resolved as absent before: its key is free, and the step may send it"
    return f"is {view.state} now, and changed at the same moment: look at it again"
