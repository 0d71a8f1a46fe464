"""The recoverer's verbs about effects in doubt: whose turn it is, what was found, what follows from it.

    take_due    which effects are to be looked up now           -> a message for each
    begin       a look-up starts, one at a time, counted before the tool's code runs
    found | believe_absent | look_again | check_failed | ask_person            what came of it

What came of it is written under the looker and the revision that its look-up began with: whatever happened
to the effect meanwhile (a late answer, a person's word, another looker after this one's time) counts
instead. A look-up that never comes back has been counted, and its time runs out by itself.
"""

from collections.abc import Sequence
from typing import LiteralString

from models import database
from models.artifacts.payloads import load, load_optional, seal
from models.digests import digest_text
from models.journal import doubts, waking
from models.journal.doubts import REWOUND, SENT_AGAIN, STEP_OF
from models.journal.effect_values import OpenEffect
from models.journal.effects import KEPT
from models.settings import settings
from models.states import EffectClass

#: Seconds that a looker has beyond the hard limit of its task: its process is killed before they are over.
SPARE = 10.0

#: Handing one out stamps it (``looker_until`` without a looker), so that two publishers never share one. Its
#: message may be lost: then it is handed out again, later and later, since a queue may also just be long.
_TAKE_DUE: LiteralString = f"""
WITH due AS (
    SELECT e.key FROM effect e {STEP_OF}
    WHERE e.state = 'unknown' AND e.person IS NULL AND e.due_at <= onward_now()
      AND coalesce(e.looker_until <= onward_now(), true) AND NOT {SENT_AGAIN}
      AND (%(run_id)s::text IS NULL OR e.run_id = %(run_id)s)
    ORDER BY e.due_at LIMIT %(limit)s FOR UPDATE OF e SKIP LOCKED
)
UPDATE effect e SET looker = NULL, revision = e.revision + 1, looker_until = onward_now() + make_interval(
    secs => greatest(%(grace)s, least(extract(epoch FROM onward_now() - e.due_at)::float8, %(longest)s)))
FROM due WHERE e.key = due.key
RETURNING e.run_id, e.key, e.queue"""

#: Nothing is looked up by two at once, nor again by a message that comes late. With the journal gone back in
#: time, what counts is how long ago that was noticed: until then anyone may have sent it.
_BEGIN: LiteralString = f"""
WITH taken AS (
    UPDATE effect e SET looker = %(looker)s, checks = e.checks + 1, failed_checks = e.failed_checks + 1,
        looker_until = onward_now() + make_interval(secs => %(time)s), revision = e.revision + 1
    WHERE e.key = %(key)s AND e.state = 'unknown' AND e.person IS NULL AND e.due_at <= onward_now()
      AND (e.looker IS NULL OR e.looker_until <= onward_now())
    RETURNING e.*
)
SELECT e.key, e.run_id, e.step_key, e.branch, e.tool, e.tool_version, e.effect_class, e.undoes, e.request,
    e.token, e.sends, e.looks, e.checks, e.failed_checks - 1, e.error, e.pid, e.pid_started, e.pid_space,
    e.call_over, e.looker, e.revision, (
        SELECT v.result FROM effect_evidence v WHERE v.key = e.key ORDER BY v.token DESC LIMIT 1), (
        SELECT s.result FROM effect_settlement s WHERE s.key = e.undoes),
    {SENT_AGAIN}, e.undoes IS NULL AND EXISTS (
        SELECT 1 FROM attempt a WHERE a.run_id = e.run_id AND a.step_key = e.step_key
        AND a.token = e.token AND a.outcome = 'died'),
    extract(epoch FROM CASE WHEN w.at IS NULL OR e.doubted_at = w.at THEN e.absent_after
                            ELSE w.at + (e.absent_after - e.sent_at) END - onward_now())::float8,
    extract(epoch FROM onward_now() - greatest(e.doubted_at, w.at))::float8, w.at IS NOT NULL,
    e.earlier_doubt
FROM taken e {STEP_OF}
CROSS JOIN LATERAL (SELECT max(declared_at) AS at FROM rewind WHERE declared_at >= e.sent_at) w"""

_OURS: LiteralString = "e.key = %(key)s AND e.looker = %(looker)s AND e.revision = %(revision)s AND e.state = 'unknown'"
_LET_GO: LiteralString = "looker = NULL, looker_until = NULL, revision = e.revision + 1"
_TELL: LiteralString = (
    "INSERT INTO event (run_id, step_key, token, kind, detail)"
    " SELECT run_id, step_key, token, %(kind)s, key || ': ' || %(said)s FROM done RETURNING 1"
)

#: A step that is over did not wait for it: its result does not know of this effect.
_FOUND: LiteralString = f"""
WITH done AS (DELETE FROM effect e WHERE {_OURS} RETURNING e.*), told AS ({_TELL}), unasked AS (
    INSERT INTO event (run_id, step_key, token, kind, detail)
    SELECT run_id, step_key, token, 'effect_not_asked_again', key
    FROM done, (SELECT count(*) FROM told) told_first
    WHERE undoes IS NULL AND EXISTS (SELECT 1 FROM step s WHERE s.run_id = done.run_id
                                     AND s.step_key = done.step_key AND s.state = 'completed')
)
INSERT INTO effect_settlement ({KEPT}, outcome, result, result_digest, source, reason)
SELECT {KEPT}, 'settled', %(result)s, %(result_digest)s, %(source)s, %(said)s FROM done
RETURNING key"""

#: ``doubted_at`` of one that the journal forgot: known from here on, whenever it went back in time before.
_ABSENT: LiteralString = f"""
WITH done AS (
    UPDATE effect e SET state = 'absent', failed_checks = 0, looks = e.looks + 1, error = %(said)s, {_LET_GO},
        doubted_at = CASE WHEN {REWOUND} THEN onward_now() ELSE e.doubted_at END, earlier_doubt = false
    WHERE {_OURS} RETURNING e.*
), told AS ({_TELL})
SELECT 1 FROM done"""

_AGAIN: LiteralString = f"""
WITH done AS (
    UPDATE effect e SET due_at = onward_now() + make_interval(secs => %(after)s), error = %(said)s, {_LET_GO},
        looks = CASE WHEN %(failed)s THEN e.looks WHEN %(counts)s THEN e.looks + 1 ELSE 0 END,
        failed_checks = CASE WHEN %(failed)s THEN e.failed_checks ELSE 0 END
    WHERE {_OURS} RETURNING e.*
), told AS ({_TELL})
SELECT 1 FROM done"""

_PERSON: LiteralString = f"""
WITH done AS (
    UPDATE effect e SET person = %(said)s, error = %(said)s, {_LET_GO} WHERE {_OURS} RETURNING e.*
), told AS ({_TELL})
SELECT {REWOUND} FROM done e"""

_SHOW: LiteralString = """
UPDATE live l SET error = %(shown)s, error_type = 'effect_unknown', revision = l.revision + 1
WHERE l.run_id = %(run_id)s AND l.branch = %(branch)s AND l.step_key = %(step_key)s AND l.state = 'unknown'
  AND l.block_reason IS NULL"""

_DIED: LiteralString = """
WITH done AS (
    UPDATE effect e SET looker = NULL, looker_until = NULL, error = %(said)s, revision = e.revision + 1,
        due_at = onward_now() + make_interval(
            secs => least(%(pause)s * 2 ^ least(e.failed_checks - 1, 30), %(longest)s))
    WHERE e.looker = %(looker)s AND e.state = 'unknown' RETURNING e.*
)
INSERT INTO event (run_id, step_key, token, kind, detail)
SELECT run_id, step_key, token, 'effect_looked', key || ': ' || %(said)s FROM done"""


def take_due(*, limit: int, run_id: str | None = None) -> list[tuple[str, str, str]]:
    """(run, key, queue) of effects to look up now, handed out to one publisher at a time."""
    rows = database.fetch(
        _TAKE_DUE,
        {
            "limit": limit, "run_id": run_id, "grace": settings().publish_grace,
            "longest": settings().publish_backoff_max, **doubts.resending(),
        },
    )  # fmt: skip
    return [(row[0], row[1], row[2]) for row in rows]


def give_back(keys: Sequence[str], *, after: float) -> None:
    """Messages for these could not be sent: they are handed out again in ``after`` seconds."""
    database.fetch(
        "UPDATE effect SET looker_until = onward_now() + make_interval(secs => %(after)s),"
        " revision = revision + 1 WHERE key = ANY(%(keys)s) AND looker IS NULL AND state = 'unknown'",
        {"keys": list(keys), "after": after},
    )


def begin(key: str, *, looker: str) -> OpenEffect | None:
    """Start a look-up: counted now, whatever becomes of its process. ``looker`` names it, once.

    None: there is nothing to look up under this key, or not yet, or somebody is at it.
    """
    row = database.fetch_one(
        _BEGIN,
        {
            "key": key, "looker": looker, "time": settings().lookup_time_limit + SPARE,
            **doubts.resending(),
        },
    )  # fmt: skip
    if row is None:
        return None
    said = (load_optional(row[21]), load_optional(row[22]))
    facts = (*row[:6], EffectClass(row[6]), row[7], load(row[8]), *row[9:21], *said, *row[23:])
    return OpenEffect(*facts)


def found(effect: OpenEffect, *, result: str, source: str, said: str) -> bool:
    """It happened: record its result, for good, and let its step go on. False: it has been taken up by others."""
    facts = {"result": seal(result), "result_digest": digest_text(result), "source": source}
    return _resolve(effect, _FOUND, kind="effect_settled", said=said, **facts)


def believe_absent(effect: OpenEffect, *, said: str) -> bool:
    """It did not happen, and nothing of it can come any more: its step may send it again."""
    return _resolve(effect, _ABSENT, kind="effect_absent", said=said)


def look_again(effect: OpenEffect, *, after: float, counts: bool, said: str) -> bool:
    """This look decided nothing. ``counts``: it found nothing when nothing could still arrive."""
    return _postpone(effect, after=after, said=said, counts=counts, failed=False)


def check_failed(effect: OpenEffect, *, after: float, said: str) -> bool:
    """The look-up gave no answer, which changes nothing but the time of the next."""
    return _postpone(effect, after=after, said=said, counts=False, failed=True)


def ask_person(effect: OpenEffect, *, said: str) -> bool:
    """Only a person can say what became of it: the step is blocked until one has."""
    with waking.step_locked(effect.run_id, effect.branch):
        facts = {"kind": "effect_needs_person", "said": said}
        row = database.fetch_one(_PERSON, _guard(effect) | facts)
        if row is not None:
            waking.tell_doer(effect.run_id)
        if row is not None and effect.undoes is None:
            detail = doubts.stopped_by(effect.key, tool=effect.tool, why=said)
            doubts.block(**_where(effect), detail=detail, rewound=row[0])
    return row is not None


def let_go(effect: OpenEffect) -> None:
    """What was found does not count: whoever comes next need not wait for this looker's time to end."""
    database.fetch(
        f"UPDATE effect e SET failed_checks = %(failed)s, {_LET_GO}"
        " WHERE e.key = %(key)s AND e.looker = %(looker)s",
        _guard(effect) | {"failed": effect.failed_checks},
    )


def looker_died(looker: str, *, said: str) -> None:
    """The process of a look-up is gone, as its parent saw: the next try need not wait for its time to end."""
    database.fetch(
        _DIED,
        {
            "looker": looker, "said": said, "pause": settings().look_pause,
            "longest": settings().look_pause_max,
        },
    )  # fmt: skip


def _resolve(
    effect: OpenEffect, statement: LiteralString, *, kind: str, said: str, **facts: object
) -> bool:
    with waking.step_locked(effect.run_id, effect.branch):
        params = _guard(effect) | {"kind": kind, "said": said, **facts}
        if database.fetch_one(statement, params) is None:
            return False
        waking.go_on(effect.run_id, effect.branch, effect.step_key)
    return True


def _postpone(effect: OpenEffect, *, said: str, **facts: object) -> bool:
    params = _guard(effect) | {"kind": "effect_looked", "said": said, **facts}
    with waking.step_locked(effect.run_id, effect.branch):
        if database.fetch_one(_AGAIN, params) is None:
            return False
        if effect.undoes is None:
            shown = f"{effect.tool} may have happened, and is looked up: {said}"
            database.fetch(_SHOW, {**_where(effect), "shown": shown})
    return True


def _guard(effect: OpenEffect) -> dict[str, object]:
    return {"key": effect.key, "looker": effect.looker, "revision": effect.revision}


def _where(effect: OpenEffect) -> dict[str, str]:
    return {"run_id": effect.run_id, "branch": effect.branch, "step_key": effect.step_key}
