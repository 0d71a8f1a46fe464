"""The holder's verbs about effects: write the intent down, then what came of it.

    intend   intent durable, the key bound to the request        (1 commit)  -> send
    settle | refuse | doubt   what the answer said, or that none came        (1 commit)

Nothing is sent before ``intend`` said ``Granted``. It locks the step's live row, so an expiry that runs
beside it either comes first, and the intent finds its lease gone, or waits, and then sees the intent: no
sweep can decide that nothing left the building while something is about to. What is written afterwards
is guarded on the effect's own token: a displaced owner settles nothing, its answer is kept as evidence.
"""

from typing import LiteralString

from models import database
from models.digests import digest_text
from models.failpoints import FailPoint, arm_effect_commit, failpoint
from models.journal import sql
from models.journal.effect_values import (
    Conflict,
    Exhausted,
    GivenUp,
    Granted,
    InDoubt,
    Intent,
    Recorded,
    Sender,
    Standing,
    Withheld,
)
from models.journal.errors import CommitUnknown, LeaseLost
from models.journal.values import Claimed
from models.settings import settings
from models.states import EffectState

_HELD: LiteralString = f"""
WITH held AS MATERIALIZED (
    SELECT l.queue, r.hold, w.declared_at, w.rewound_to
    FROM live l JOIN run r ON r.run_id = %(run_id)s
    LEFT JOIN (SELECT max(declared_at) AS declared_at, min(rewound_to) AS rewound_to FROM rewind) w
        ON r.created_at < w.declared_at
    WHERE {sql.HELD} AND l.lease_expires_at > onward_now()
    FOR NO KEY UPDATE OF l
)"""

_SENT: LiteralString = """
    sent_at = onward_now(), send_by = onward_now() + make_interval(secs => %(send_within)s),
    absent_after = onward_now() + make_interval(secs => %(send_within)s + %(absent_after)s::float8)"""

#: A new intent is granted at once, unless the journal went back in time since the run began: then it may
#: have been sent in the time that is lost, and only a key that is certainly still honoured is sent again.
_MADE: LiteralString = """
made AS (
    INSERT INTO effect (key, run_id, step_key, branch, queue, tool, tool_version, effect_class, undoes,
        request, request_digest, state, token, attempt, start_id, worker, pid, pid_started, pid_space,
        first_sent_at, sent_at, send_by, resend_until, absent_after, doubted_at)
    SELECT %(key)s, %(run_id)s, %(step_key)s, %(branch)s, held.queue, %(tool)s, %(tool_version)s,
        %(effect_class)s, %(undoes)s, %(request)s, %(request_digest)s,
        CASE WHEN suspect THEN 'unknown' ELSE 'intended' END, %(token)s, %(attempt)s, %(start_id)s,
        %(worker)s, %(pid)s, %(pid_started)s, %(pid_space)s,
        CASE WHEN suspect THEN held.declared_at ELSE onward_now() END, onward_now(),
        onward_now() + make_interval(secs => %(send_within)s),
        onward_now() + make_interval(secs => %(key_retention)s::float8),
        CASE WHEN suspect THEN held.declared_at ELSE onward_now() END
            + make_interval(secs => %(send_within)s + %(absent_after)s::float8),
        CASE WHEN suspect THEN held.declared_at END
    FROM held, LATERAL (SELECT held.declared_at IS NOT NULL AND coalesce(
        held.rewound_to + make_interval(secs => %(key_retention)s::float8) <= onward_now(), true) AS suspect) s
    WHERE (held.hold IS NULL OR held.hold = 'failed')
      AND NOT EXISTS (SELECT 1 FROM settled) AND NOT EXISTS (SELECT 1 FROM known)
    RETURNING state, sends
)"""

#: Sent again only when it is known not to have happened, or when the provider still honours the key.
_AGAIN: LiteralString = f"""
again AS (
    UPDATE effect e SET state = 'intended', token = %(token)s, attempt = %(attempt)s, sends = e.sends + 1,
        request = %(request)s, request_digest = %(request_digest)s, tool_version = %(tool_version)s,
        start_id = %(start_id)s, worker = %(worker)s, pid = %(pid)s, pid_started = %(pid_started)s,
        pid_space = %(pid_space)s, call_over = false, doubted_at = NULL, looks = 0, failed_checks = 0,
        looker = NULL, looker_until = NULL, error = NULL, {_SENT},
        resend_until = coalesce(e.resend_until, onward_now() + make_interval(secs => %(key_retention)s::float8)),
        revision = e.revision + 1
    FROM held, known k
    WHERE e.key = %(key)s AND (held.hold IS NULL OR held.hold = 'failed')
      AND (k.request_digest IS NULL OR k.request_digest = %(request_digest)s)
      AND (e.state = 'refused'
           OR e.state = 'absent' AND e.sends - e.pardoned_sends <= %(resend_limit)s
           OR e.state IN ('intended', 'unknown') AND e.token < %(token)s AND e.person IS NULL
              AND e.resend_until > onward_now() AND e.sends - e.pardoned_sends <= %(resend_limit)s)
    RETURNING e.state, e.sends
)"""

_INTEND: LiteralString = f"""{_HELD}, settled AS (
    SELECT outcome, result, request_digest, token, reason FROM effect_settlement WHERE key = %(key)s
), known AS (
    SELECT * FROM effect WHERE key = %(key)s FOR UPDATE
), {_MADE}, {_AGAIN}
SELECT held.hold, s.outcome, s.result, s.request_digest, s.token, s.reason, k.state, k.request_digest,
       k.sends, k.person, coalesce(m.state, a.state), coalesce(m.sends, a.sends)
FROM held LEFT JOIN settled s ON true LEFT JOIN known k ON true LEFT JOIN made m ON true
LEFT JOIN again a ON true"""

#: The holder of the send: a doubt, a look-up or another claim's send has changed state or token.
_OURS: LiteralString = "e.key = %(key)s AND e.token = %(token)s AND e.state = 'intended'"

#: The columns a settlement keeps of its intent.
KEPT: LiteralString = (
    "key, run_id, step_key, branch, queue, tool, tool_version, effect_class, undoes, request,"
    " request_digest, token, attempt, sends, worker, created_at, first_sent_at"
)

_SETTLE: LiteralString = f"""
WITH done AS (DELETE FROM effect e WHERE {_OURS} RETURNING e.*)
INSERT INTO effect_settlement ({KEPT}, outcome, result, result_digest, source)
SELECT {KEPT}, 'settled', %(result)s, %(result_digest)s, 'answer' FROM done
RETURNING key"""

_REFUSE: LiteralString = f"""
WITH done AS (
    UPDATE effect e SET state = 'refused', call_over = true, error = %(error)s, revision = e.revision + 1
    WHERE {_OURS} RETURNING e.run_id, e.step_key, e.token
)
INSERT INTO event (run_id, step_key, token, kind, detail)
SELECT run_id, step_key, token, 'effect_refused', %(key)s || ': ' || %(error)s FROM done
RETURNING run_id"""

_DOUBT: LiteralString = f"""
WITH done AS (
    UPDATE effect e SET state = 'unknown', call_over = %(call_over)s, doubted_at = onward_now(),
        due_at = onward_now(), error = %(error)s, revision = e.revision + 1
    WHERE {_OURS} RETURNING e.run_id, e.step_key, e.token
)
INSERT INTO event (run_id, step_key, token, kind, detail)
SELECT run_id, step_key, token, 'effect_unknown', %(key)s || ': ' || %(error)s FROM done
RETURNING run_id"""

#: A late answer makes whoever looks look now, and takes back a belief in its absence.
_KEEP_EVIDENCE: LiteralString = """
WITH kept AS (
    INSERT INTO effect_evidence (key, token, result, result_digest, worker)
    VALUES (%(key)s, %(token)s, %(result)s, %(result_digest)s, %(worker)s)
    ON CONFLICT DO NOTHING
), again AS (
    UPDATE effect e SET state = 'unknown', person = NULL, due_at = onward_now(),
        doubted_at = coalesce(e.doubted_at, onward_now()), revision = e.revision + 1
    WHERE e.key = %(key)s AND e.token = %(token)s AND e.state IN ('unknown', 'absent')
)
INSERT INTO event (run_id, step_key, token, kind, detail)
VALUES (%(run_id)s, %(step_key)s, %(token)s, 'effect_late_answer', %(key)s)"""

#: A call that changes nothing outside needs no intent: its answer is recorded so that it is not asked again.
_RECORD_PURE: LiteralString = f"""{_HELD}
INSERT INTO effect_settlement (key, run_id, step_key, branch, queue, tool, tool_version, effect_class,
    request, request_digest, outcome, result, result_digest, source, token, attempt, sends, worker,
    created_at, first_sent_at)
SELECT %(key)s, %(run_id)s, %(step_key)s, %(branch)s, held.queue, %(tool)s, %(tool_version)s, 'pure',
    %(request)s, %(request_digest)s, 'settled', %(result)s, %(result_digest)s, 'answer', %(token)s,
    %(attempt)s, 1, %(worker)s, onward_now(), onward_now()
FROM held ON CONFLICT DO NOTHING"""


def intend(intent: Intent, claimed: Claimed, sender: Sender) -> Standing:
    """Write down what is about to be asked, and say whether it may be.

    Raises ``LeaseLost`` when the step is not ours any more. An unanswered COMMIT is read back: nothing is
    sent while it is undecided.
    """
    params = _intent_params(intent, claimed, sender)
    try:
        row = database.fetch_one(_INTEND, params)
    except CommitUnknown:
        if (sends := _sent_by_us(intent.key, claimed.token)) is not None:
            return Granted(sends)
        row = database.fetch_one(_INTEND, params)
    if row is None:
        raise LeaseLost(
            f"Attempt {claimed.attempt} of step {claimed.step_key!r} in run {claimed.run_id} no longer owns "
            f"the step: {intent.tool} was not called."
        )
    return _standing(row, intent.request_digest)


def settle(key: str, claimed: Claimed, *, result: str) -> None:
    """Record an answer. Raises ``LeaseLost`` when others have taken the effect up: then it is evidence."""
    failpoint(FailPoint.E4, claimed.step_name)
    arm_effect_commit(claimed.step_name)
    params = _sent(key, claimed) | {"result": result, "result_digest": digest_text(result)}
    if database.fetch_one(_SETTLE, params) is None and not _settled_by_us(
        key, claimed.token, result
    ):
        keep_evidence(key, claimed, result=result)
        raise LeaseLost(
            f"The answer to {key} came after the effect had been taken up by others; it is kept as evidence."
        )
    failpoint(FailPoint.E6, claimed.step_name)


def refuse(key: str, claimed: Claimed, *, error: str) -> None:
    """Record that it definitely did not happen; the body may ask for it again."""
    database.fetch_one(_REFUSE, _sent(key, claimed) | {"error": error})


def doubt(key: str, claimed: Claimed, *, error: str, call_over: bool) -> None:
    """Record that it may have happened. ``call_over``: the call has ended, whatever it did."""
    database.fetch_one(_DOUBT, _sent(key, claimed) | {"error": error, "call_over": call_over})


def keep_evidence(key: str, claimed: Claimed, *, result: str) -> None:
    """File a displaced owner's late answer. It changes no step; whoever looks reads it first."""
    database.fetch(
        _KEEP_EVIDENCE,
        _sent(key, claimed)
        | {
            "result": result, "result_digest": digest_text(result), "worker": claimed.owner,
            "run_id": claimed.run_id, "step_key": claimed.step_key,
        },
    )  # fmt: skip


def record_pure(intent: Intent, claimed: Claimed, sender: Sender, *, result: str) -> None:
    """Record the answer of a call that changes nothing outside."""
    params = _intent_params(intent, claimed, sender)
    database.fetch(_RECORD_PURE, params | {"result": result, "result_digest": digest_text(result)})


def recall(key: str) -> Recorded | None:
    """The recorded result under a key."""
    row = database.fetch_one(
        "SELECT result, token FROM effect_settlement WHERE key = %(key)s AND outcome = 'settled'",
        {"key": key},
    )
    return Recorded(*row) if row else None


def note_unasked(claimed: Claimed, asked: set[str]) -> list[str]:
    """Report effects that an earlier attempt settled and the finished body did not ask for again.

    They happened, and the result that will be recorded does not know of them. Returns their keys.
    """
    rows = database.fetch(
        """
        WITH unasked AS (
            SELECT s.key FROM effect_settlement s
            WHERE s.run_id = %(run_id)s AND s.step_key = %(step_key)s AND s.outcome = 'settled'
              AND s.effect_class <> 'pure' AND s.undoes IS NULL AND NOT (s.key = ANY(%(asked)s))
              AND NOT EXISTS (SELECT 1 FROM event e WHERE e.run_id = s.run_id
                              AND e.kind = 'effect_not_asked_again' AND e.detail = s.key)
        ), told AS (
            INSERT INTO event (run_id, step_key, token, kind, detail)
            SELECT %(run_id)s, %(step_key)s, %(token)s, 'effect_not_asked_again', key FROM unasked
        )
        SELECT key FROM unasked ORDER BY key""",
        {
            "run_id": claimed.run_id, "step_key": claimed.step_key, "token": claimed.token,
            "asked": sorted(asked),
        },
    )  # fmt: skip
    return [row[0] for row in rows]


def _standing(row: database.Row, digest: str) -> Standing:
    (hold, outcome, result, settled_digest, settled_token, reason, state, known_digest, sends, person,
     sent, count) = row  # fmt: skip
    if outcome is not None and settled_digest not in (None, digest):
        return Conflict(EffectState(outcome))
    if outcome == EffectState.SETTLED:
        return Recorded(result, settled_token)
    if outcome is not None:
        return GivenUp(reason or "")
    if sent == EffectState.INTENDED:
        return Granted(count)
    if sent is not None:
        return InDoubt("the journal went back in time, and it may have been sent in what was lost")
    if state is not None and known_digest not in (None, digest):
        return Conflict(EffectState(state))
    if hold is not None and hold != "failed":
        return Withheld(hold)
    if state == EffectState.ABSENT:
        return Exhausted(sends)
    return InDoubt(person or "an earlier attempt may have sent it")


def _sent_by_us(key: str, token: int) -> int | None:
    row = database.fetch_one(
        "SELECT sends FROM effect WHERE key = %(key)s AND token = %(token)s AND state = 'intended'",
        {"key": key, "token": token},
    )
    return row[0] if row else None


def _settled_by_us(key: str, token: int, result: str) -> bool:
    """Whether the same write went through before its answer was lost and it was repeated."""
    row = database.fetch_one(
        "SELECT 1 FROM effect_settlement WHERE key = %(key)s AND token = %(token)s AND source = 'answer'"
        " AND result_digest = %(result_digest)s",
        {"key": key, "token": token, "result_digest": digest_text(result)},
    )
    return row is not None


def _sent(key: str, claimed: Claimed) -> dict[str, object]:
    return {"key": key, "token": claimed.token}


def _intent_params(intent: Intent, claimed: Claimed, sender: Sender) -> dict[str, object]:
    promise = intent.promise
    return {
        "run_id": claimed.run_id, "branch": claimed.branch, "step_key": claimed.step_key,
        "token": claimed.token, "owner": claimed.owner, "attempt": claimed.attempt, "key": intent.key,
        "tool": intent.tool, "tool_version": intent.tool_version, "undoes": intent.undoes,
        "effect_class": str(promise.effect_class), "request": intent.request,
        "request_digest": intent.request_digest, "send_within": intent.send_within,
        "absent_after": promise.absent_after, "key_retention": promise.key_retention,
        "resend_limit": settings().resend_limit, "start_id": sender.start_id, "worker": sender.worker,
        "pid": sender.pid, "pid_started": sender.pid_started, "pid_space": sender.pid_space,
    }  # fmt: skip
