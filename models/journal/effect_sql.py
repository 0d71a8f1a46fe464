"""The holder's statements about effects. Each is one transaction, found by primary key.

Locks are taken in the order live, then effect; whoever needs both keeps to it. ``settled`` is read as of
the statement's start, and a settlement may have come while it waited for a lock: then the row that it
waited for is gone, a new one would be made, and the trigger ``effect_settled_once`` has the statement
repeated.
"""

from typing import LiteralString

from models.journal import sql

#: The columns a settlement keeps of its intent.
KEPT: LiteralString = (
    "key, run_id, step_key, branch, queue, tool, tool_version, effect_class, undoes, request,"
    " request_digest, token, attempt, sends, worker, created_at, first_sent_at"
)

#: ``suspect``: the journal went back in time since the run began, so what it does not know of may have
#: been sent in the time that is lost, and its key may have been forgotten since.
SUSPECT: LiteralString = """w.declared_at, w.rewound_to, w.declared_at IS NOT NULL AND coalesce(
    w.rewound_to + make_interval(secs => %(key_retention)s::float8) <= onward_now(), true) AS suspect"""

REWOUND_SINCE: LiteralString = """CROSS JOIN LATERAL (
    SELECT max(declared_at) AS declared_at, min(rewound_to) AS rewound_to
    FROM rewind WHERE declared_at > r.created_at) w"""

_HELD: LiteralString = f"""
WITH held AS MATERIALIZED (
    SELECT l.queue, r.hold, coalesce(r.hold <> 'failed', false) AS withheld, {SUSPECT}
    FROM live l JOIN run r ON r.run_id = %(run_id)s
    {REWOUND_SINCE}
    WHERE {sql.HELD} AND l.lease_expires_at > onward_now()
    FOR NO KEY UPDATE OF l
)"""

#: What may become of an effect that is known. Sent again only when it is known not to have happened, or
#: while the provider still honours the key; the holder's own intent whose answer was lost counts once.
_JUDGED: LiteralString = """
known AS (
    SELECT e.* FROM held, effect e WHERE e.key = %(key)s FOR NO KEY UPDATE OF e
), judged AS (
    SELECT k.*, c.same, CASE
        WHEN held.withheld THEN 'withheld'
        WHEN k.request_digest <> %(request_digest)s THEN 'conflict'
        WHEN c.same THEN 'granted'
        WHEN k.state = 'refused' AND k.passed THEN 'declined'
        WHEN k.state IN ('refused', 'absent') AND held.suspect AND NOT c.honoured
             AND coalesce(k.doubted_at, k.sent_at) < held.declared_at THEN 'rewound'
        WHEN k.state = 'refused' THEN 'granted'
        WHEN k.state = 'absent' AND c.affordable AND NOT k.passed THEN 'granted'
        WHEN k.state = 'absent' THEN 'exhausted'
        WHEN k.token < %(token)s AND k.person IS NULL AND c.honoured AND c.affordable THEN 'granted'
        ELSE 'in_doubt' END AS verdict
    FROM held, known k, LATERAL (SELECT
        k.state = 'intended' AND k.token = %(token)s AND k.nonce = %(nonce)s AS same,
        coalesce(k.resend_until > onward_now(), false) AS honoured,
        k.sends - k.pardoned_sends <= %(resend_limit)s AS affordable) c
)"""

#: A key is honoured from its first send, which may lie in the time that is lost.
_MADE: LiteralString = """
made AS (
    INSERT INTO effect (key, run_id, step_key, branch, queue, tool, tool_version, effect_class, undoes,
        request, request_digest, state, token, attempt, nonce, start_id, worker, pid, pid_started, pid_space,
        created_at, first_sent_at, sent_at, send_by, resend_until, absent_after, doubted_at)
    SELECT %(key)s, %(run_id)s, %(step_key)s, %(branch)s, held.queue, %(tool)s, %(tool_version)s,
        %(effect_class)s, %(undoes)s, %(request)s, %(request_digest)s,
        CASE WHEN held.suspect THEN 'unknown' ELSE 'intended' END, %(token)s, %(attempt)s, %(nonce)s,
        %(start_id)s, %(worker)s, %(pid)s, %(pid_started)s, %(pid_space)s, clock.now, sent.at, sent.at,
        sent.at + make_interval(secs => %(send_within)s),
        coalesce(held.rewound_to, sent.at) + make_interval(secs => %(key_retention)s::float8),
        sent.at + make_interval(secs => %(send_within)s + %(absent_after)s::float8),
        CASE WHEN held.suspect THEN held.declared_at END
    FROM held, (SELECT onward_now() AS now) clock,
        LATERAL (SELECT CASE WHEN held.suspect THEN held.declared_at ELSE clock.now END AS at) sent
    WHERE NOT held.withheld AND NOT EXISTS (SELECT 1 FROM settled) AND NOT EXISTS (SELECT 1 FROM known)
    ON CONFLICT (key) DO NOTHING
    RETURNING state, sends
)"""

#: ``earlier_doubt``: an earlier send may have happened, so a refusal of this one proves nothing.
_AGAIN: LiteralString = """
again AS (
    UPDATE effect e SET state = 'intended', token = %(token)s, attempt = %(attempt)s, nonce = %(nonce)s,
        sends = e.sends + CASE WHEN j.same THEN 0 ELSE 1 END,
        earlier_doubt = CASE WHEN j.same THEN e.earlier_doubt ELSE e.state IN ('intended', 'unknown') END,
        request = %(request)s, request_digest = %(request_digest)s, tool_version = %(tool_version)s,
        start_id = %(start_id)s, worker = %(worker)s, pid = %(pid)s, pid_started = %(pid_started)s,
        pid_space = %(pid_space)s, call_over = false, doubted_at = NULL, looks = 0, failed_checks = 0,
        looker = NULL, looker_until = NULL, passed = false, error = NULL, sent_at = onward_now(),
        send_by = onward_now() + make_interval(secs => %(send_within)s),
        absent_after = onward_now() + make_interval(secs => %(send_within)s + %(absent_after)s::float8),
        revision = e.revision + 1
    FROM judged j WHERE e.key = %(key)s AND j.verdict = 'granted'
    RETURNING e.sends
)"""

_REWOUND: LiteralString = """
rewound AS (
    UPDATE effect e SET state = 'unknown', doubted_at = held.declared_at, due_at = onward_now(), looks = 0,
        failed_checks = 0, looker = NULL, looker_until = NULL, call_over = false,
        absent_after = held.declared_at
            + make_interval(secs => %(send_within)s + %(absent_after)s::float8),
        revision = e.revision + 1
    FROM held, judged j WHERE e.key = %(key)s AND j.verdict = 'rewound'
    RETURNING e.key
), told AS (
    INSERT INTO event (run_id, step_key, token, kind, detail)
    SELECT %(run_id)s, %(step_key)s, %(token)s, 'effect_unknown',
           %(key)s || ': the journal went back in time, and it may have been sent in what was lost'
    FROM (SELECT 1 FROM made WHERE state = 'unknown' UNION ALL SELECT 1 FROM rewound) unknown
), told_again AS (
    INSERT INTO event (run_id, step_key, token, kind, detail)
    SELECT %(run_id)s, %(step_key)s, %(token)s, 'effect_sent_again',
           %(key)s || ': the request may have left once more from here on (send ' || a.sends || ')'
    FROM again a, judged j WHERE NOT j.same
)"""

#: What has been undone is not there to be built upon: the call that asks for it again fails for good.
_SETTLED: LiteralString = """settled AS (
    SELECT CASE WHEN u.undone THEN 'abandoned' ELSE s.outcome END AS outcome, s.result, s.request_digest,
           s.token, CASE WHEN u.undone THEN 'it was undone' ELSE s.reason END AS reason,
           extract(epoch FROM onward_now() - s.settled_at)::float8 AS age
    FROM effect_settlement s, LATERAL (
        SELECT EXISTS (SELECT 1 FROM effect_settlement d WHERE d.key = %(undo_key)s AND d.outcome = 'settled')
            OR EXISTS (SELECT 1 FROM effect e WHERE e.key = %(undo_key)s
                       AND e.state IN ('intended', 'unknown')) AS undone) u
    WHERE s.key = %(key)s
)"""

RECALL: LiteralString = (
    f"WITH {_SETTLED} SELECT outcome, result, request_digest, token, reason, age FROM settled"
)

#: What follows a CTE ``held`` that says whether the caller may ask at all.
INTENT: LiteralString = f"""{_SETTLED}, {_JUDGED}, {_MADE}, {_AGAIN}, {_REWOUND}
SELECT s.outcome, s.result, s.request_digest, s.token, s.reason, CASE WHEN held.withheld THEN held.hold END,
       j.verdict, j.state, j.sends, j.person, j.error, m.state, coalesce(m.sends, a.sends)
FROM held LEFT JOIN settled s ON true LEFT JOIN judged j ON true LEFT JOIN made m ON true
LEFT JOIN again a ON true"""

INTEND: LiteralString = f"{_HELD}, {INTENT}"

#: The holder of the send: a doubt, a look-up or another claim's send has changed state or token.
_OURS: LiteralString = "e.key = %(key)s AND e.token = %(token)s AND e.state = 'intended'"

SETTLE: LiteralString = f"""
WITH done AS (DELETE FROM effect e WHERE {_OURS} RETURNING e.*)
INSERT INTO effect_settlement ({KEPT}, outcome, result, result_digest, source)
SELECT {KEPT}, 'settled', %(result)s, %(result_digest)s, 'answer' FROM done
RETURNING key"""

REFUSE: LiteralString = f"""
WITH done AS (
    UPDATE effect e SET call_over = true, error = %(error)s, revision = e.revision + 1,
        state = CASE WHEN e.earlier_doubt THEN 'unknown' ELSE 'refused' END,
        doubted_at = CASE WHEN e.earlier_doubt THEN onward_now() END, due_at = onward_now()
    WHERE {_OURS} RETURNING e.run_id, e.step_key, e.token, e.state, e.earlier_doubt
), told AS (
    INSERT INTO event (run_id, step_key, token, kind, detail)
    SELECT run_id, step_key, token, CASE WHEN earlier_doubt THEN 'effect_unknown' ELSE 'effect_refused' END,
           %(key)s || ': ' || CASE WHEN earlier_doubt THEN 'an earlier send may have happened; this one: '
                                   ELSE '' END || %(error)s
    FROM done
)
SELECT state FROM done"""

#: The body has caught these refusals and asks for something else: from here on they are answers.
PASS: LiteralString = f"""
WITH held AS MATERIALIZED (
    SELECT 1 FROM live l WHERE {sql.HELD} AND l.lease_expires_at > onward_now() FOR NO KEY UPDATE OF l
), passed AS (
    UPDATE effect e SET passed = true, revision = e.revision + 1
    FROM held WHERE e.key = ANY(%(keys)s)
      AND (e.state = 'refused' AND e.token = %(token)s OR e.state = 'absent' AND e.token < %(token)s)
)
SELECT 1 FROM held"""

DOUBT: LiteralString = f"""
WITH done AS (
    UPDATE effect e SET state = 'unknown', call_over = %(call_over)s, doubted_at = onward_now(),
        due_at = onward_now(), error = %(error)s, revision = e.revision + 1
    WHERE {_OURS} RETURNING e.run_id, e.step_key, e.token
)
INSERT INTO event (run_id, step_key, token, kind, detail)
SELECT run_id, step_key, token, 'effect_unknown', %(key)s || ': ' || %(error)s FROM done RETURNING 1"""

#: A call that was given up has ended without an answer that could be kept: nothing of it is under way any more.
END_CALL: LiteralString = """
WITH done AS (
    UPDATE effect e SET call_over = true, error = %(error)s, due_at = onward_now(), revision = e.revision + 1
    WHERE e.key = %(key)s AND e.token = %(token)s AND e.state = 'unknown' AND NOT e.call_over
    RETURNING e.run_id, e.step_key, e.token
)
INSERT INTO event (run_id, step_key, token, kind, detail)
SELECT run_id, step_key, token, 'effect_call_ended', %(key)s || ': ' || %(error)s FROM done"""

#: A late answer makes whoever looks look now, and takes back a belief in its absence.
KEEP_EVIDENCE: LiteralString = """
WITH kept AS (
    INSERT INTO effect_evidence (key, token, result, result_digest, worker)
    VALUES (%(key)s, %(token)s, %(result)s, %(result_digest)s, %(worker)s)
    ON CONFLICT DO NOTHING RETURNING key, token
), again AS (
    UPDATE effect e SET state = 'unknown', person = NULL, due_at = onward_now(),
        doubted_at = coalesce(e.doubted_at, onward_now()), revision = e.revision + 1
    FROM kept WHERE e.key = %(key)s AND e.token = %(token)s AND e.state IN ('unknown', 'absent')
)
INSERT INTO event (run_id, step_key, token, kind, detail)
SELECT %(run_id)s, %(step_key)s, %(token)s, 'effect_late_answer',
       %(key)s || ': answered to ' || %(worker)s::text || ' after it was given up'
FROM kept"""

RECORD_PURE: LiteralString = f"""{_HELD}
INSERT INTO effect_settlement (key, run_id, step_key, branch, queue, tool, tool_version, effect_class,
    request, request_digest, outcome, result, result_digest, source, token, attempt, sends, worker,
    created_at, first_sent_at)
SELECT %(key)s, %(run_id)s, %(step_key)s, %(branch)s, held.queue, %(tool)s, %(tool_version)s, 'pure',
    %(request)s, %(request_digest)s, 'settled', %(result)s, %(result_digest)s, 'answer', %(token)s,
    %(attempt)s, 1, %(worker)s, onward_now(), onward_now()
FROM held WHERE NOT EXISTS (SELECT 1 FROM effect WHERE key = %(key)s)
ON CONFLICT DO NOTHING"""

UNASKED: LiteralString = f"""
WITH unasked AS (
    SELECT s.key FROM live l JOIN effect_settlement s
        ON s.run_id = %(run_id)s AND s.step_key = %(step_key)s
    WHERE {sql.HELD} AND s.outcome = 'settled' AND s.effect_class <> 'pure' AND s.undoes IS NULL
      AND NOT (s.key = ANY(%(asked)s))
      AND NOT EXISTS (SELECT 1 FROM event e WHERE e.run_id = %(run_id)s
                      AND e.kind = 'effect_not_asked_again' AND e.detail = s.key)
), told AS (
    INSERT INTO event (run_id, step_key, token, kind, detail)
    SELECT %(run_id)s, %(step_key)s, %(token)s, 'effect_not_asked_again', key FROM unasked
)
SELECT key FROM unasked ORDER BY key"""
