"""Which effects may have happened and are to be looked up before anything is repeated or given up.

An effect is in doubt from its intent to its outcome. While its owner runs, that is the owner's business.
Afterwards it is sent again under its key, where the provider still honours that and somebody will do it;
all others are looked up. Pieces of statements: ``e`` an effect, ``l`` the live row of its step, ``r`` its run.
"""

from typing import LiteralString

from models import database
from models.journal.branches import one
from models.journal.values import BranchRef
from models.settings import settings
from models.states import BlockReason

#: Of a branch whose run was cancelled or is being undone, or whose group member a tolerated failure has ended
#: (the join it would report to is gone): nothing will come of it.
GIVEN_UP: LiteralString = """(coalesce(r.hold IN ('cancel', 'compensate'), false)
    OR (strpos(l.branch, '/') > 0 AND NOT EXISTS (SELECT 1 FROM live up WHERE up.run_id = l.run_id
        AND up.branch = regexp_replace(l.branch, '/[^/]*$', ''))))"""

#: The next attempt sends it again, as ``effects.intend`` would let it. An undo is sent again by whoever
#: compensates.
SENT_AGAIN: LiteralString = f"""(e.person IS NULL AND coalesce(e.resend_until > onward_now(), false)
    AND e.sends - e.pardoned_sends <= %(resend_limit)s
    AND (e.undoes IS NOT NULL OR l.run_id IS NOT NULL AND NOT {GIVEN_UP}))"""

#: The journal went back in time after it was sent: what was sent since, and by whom, is lost.
REWOUND: LiteralString = "EXISTS (SELECT 1 FROM rewind w WHERE w.declared_at >= e.sent_at)"

#: Of a step: nothing of it may be cancelled while this is true.
IN_DOUBT: LiteralString = """EXISTS (SELECT 1 FROM effect e WHERE e.run_id = l.run_id
    AND e.step_key = l.step_key AND e.undoes IS NULL AND e.state IN ('intended', 'unknown'))"""

#: Joined to a step: how many of its effects are to be looked up, and how often one of them was sent.
OF_STEP: LiteralString = f"""LATERAL (
    SELECT count(*) FILTER (WHERE e.state IN ('intended', 'unknown') AND NOT {SENT_AGAIN}) AS unsettled,
           coalesce(max(e.sends - e.pardoned_sends) FILTER (WHERE e.state <> 'refused'), 0) AS sends
    FROM effect e WHERE e.run_id = l.run_id AND e.step_key = l.step_key AND e.undoes IS NULL)"""

#: Joined to an effect: its run, and its step if that is still in motion.
STEP_OF: LiteralString = """JOIN run r ON r.run_id = e.run_id
    LEFT JOIN live l ON l.run_id = e.run_id AND l.branch = e.branch AND l.step_key = e.step_key"""

#: What is due at once: a look-up.
_DOUBT: LiteralString = """
doubted AS (
    UPDATE effect e SET state = 'unknown', doubted_at = onward_now(), due_at = onward_now(),
        error = found.cause, revision = e.revision + 1
    FROM found WHERE e.key = found.key AND e.revision = found.revision AND e.state = 'intended'
    RETURNING e.run_id, e.step_key, e.token, e.key, e.error
), told AS (
    INSERT INTO event (run_id, step_key, token, kind, detail)
    SELECT run_id, step_key, token, 'effect_unknown', key || ': ' || error FROM doubted
)
SELECT count(*) FROM doubted"""

_OF_THIS_STEP: LiteralString = f"""
WITH found AS MATERIALIZED (
    SELECT e.key, e.revision, 'its owner is gone: ' || %(cause)s AS cause FROM effect e {STEP_OF}
    WHERE e.run_id = %(run_id)s AND e.step_key = %(step_key)s AND e.undoes IS NULL
      AND e.state = 'intended' AND NOT {SENT_AGAIN}
), {_DOUBT}"""

#: Nobody will come back to these: their step has moved on without asking again, or will not run any more,
#: or its key is forgotten by now. Guarded on the revision: an attempt that begins meanwhile sends first.
_STRAY: LiteralString = f"""
WITH found AS MATERIALIZED (
    SELECT e.key, e.revision, CASE WHEN l.run_id IS NULL THEN 'its step went on without asking for it again'
        ELSE 'its step is ' || l.state || ', and its owner is gone' END AS cause
    FROM effect e {STEP_OF}
    WHERE e.state = 'intended' AND e.undoes IS NULL AND coalesce(l.state NOT IN ('running', 'unknown'), true)
      AND NOT {SENT_AGAIN}
    LIMIT %(limit)s
), {_DOUBT}"""

_SEEN: LiteralString = """
UPDATE live l SET due_at = onward_now() + make_interval(secs => %(pause)s), revision = l.revision + 1
WHERE l.run_id = %(run_id)s AND l.branch = %(branch)s AND l.revision = %(revision)s AND l.state = 'unknown'
RETURNING l.step_key, coalesce(l.error, 'it fell silent')"""

_ASKED: LiteralString = f"""
SELECT e.key, e.tool, e.person, {REWOUND} FROM effect e WHERE e.run_id = %(run_id)s AND e.step_key = %(step_key)s
    AND e.undoes IS NULL AND e.state = 'unknown' AND e.person IS NOT NULL ORDER BY e.key LIMIT 1"""


def doubt_step(ref: BranchRef, *, pause: float) -> int:
    """Take up what an unknown step has sent: its intents become unknown, and due for a look-up.

    The step itself stays as it is and is decided again once they are resolved, or after ``pause`` seconds.
    It is blocked when a person has been asked about one of them. Guarded on revision; returns how many
    came into doubt.
    """
    with database.transaction():
        seen = database.fetch_one(_SEEN, {**one(ref), "pause": pause})
        if seen is None:
            return 0
        step_key, cause = seen
        params = {"run_id": ref.run_id, "step_key": step_key, "cause": cause, **resending()}
        (doubted,) = database.fetch(_OF_THIS_STEP, params)[0]
        asked = database.fetch_one(_ASKED, params)
        if asked is not None:
            key, tool, why, rewound = asked
            block(
                ref.run_id, ref.branch, step_key=step_key, rewound=rewound,
                detail=stopped_by(key, tool=tool, why=why),
            )  # fmt: skip
    return int(doubted)


def doubt_strays(*, limit: int) -> int:
    """Take up intents that no step will come back to; returns how many came into doubt."""
    row = database.fetch_one(_STRAY, {"limit": limit, **resending()})
    return int(row[0]) if row else 0


_BLOCK: LiteralString = f"""
WITH blocked AS (
    UPDATE live l SET block_reason = %(reason)s::text, revision = l.revision + 1,
        error_type = CASE WHEN l.state = 'failed' THEN l.error_type ELSE %(reason)s END,
        error = CASE WHEN l.state = 'failed' THEN l.error ELSE %(detail)s END
    FROM run r
    WHERE l.run_id = %(run_id)s AND l.branch = %(branch)s AND l.step_key = %(step_key)s
      AND r.run_id = %(run_id)s AND l.block_reason IS NULL
      AND (l.state IN ('unknown', 'failed') OR l.state IN ('pending', 'waiting') AND {GIVEN_UP})
    RETURNING l.token
), shown AS (
    UPDATE run SET state = 'blocked', reason = %(reason)s, detail = %(detail)s, revision = revision + 1
    WHERE run_id = %(run_id)s AND state IN ('pending', 'running', 'waiting')
      AND EXISTS (SELECT 1 FROM blocked)
)
INSERT INTO event (run_id, step_key, token, kind, detail)
SELECT %(run_id)s, %(step_key)s, token, 'run_blocked', %(reason)s || ': ' || %(detail)s FROM blocked"""


def block(run_id: str, branch: str, *, step_key: str, detail: str, rewound: bool) -> None:
    """Stop a step until a person has said what became of its effect. Its live row is locked already.

    A step that may run is left alone: it stops by itself when it asks for the effect again.
    """
    reason = BlockReason.JOURNAL_REWOUND if rewound else BlockReason.UNKNOWN_EFFECT
    database.fetch(
        _BLOCK,
        {
            "run_id": run_id, "branch": branch, "step_key": step_key, "reason": str(reason),
            "detail": detail,
        },
    )  # fmt: skip


def stopped_by(key: str, *, tool: str, why: str) -> str:
    """What a blocked run says of an effect that a person has to decide."""
    return (
        f"{tool} may have happened ({why}): look at the outside world, then `onward effects resolve {key}` "
        "with --found ID, --absent or --abandon"
    )


def resending() -> dict[str, object]:
    """The parameter of ``SENT_AGAIN``."""
    return {"resend_limit": settings().resend_limit}
