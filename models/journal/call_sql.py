"""The statements about calls. Each is one transaction that finds its rows by primary key.

Locks are taken in the order live, wallets, hold (``wallet_sql``). What the holder writes is guarded on its claim.
"""

from typing import LiteralString

from models.journal import sql
from models.journal.wallet_sql import LOCKED, OURS, SETTLED

_HELD: LiteralString = f"""
held AS MATERIALIZED (
    SELECT 1 FROM live l WHERE {sql.HELD} FOR NO KEY UPDATE OF l
)"""

_COLUMNS: LiteralString = """c.generation, c.scope, c.position, c.kind, c.digest, c.state, c.status, c.headers,
    c.model, c.model_answered, c.response_id, c.tokens_in, c.tokens_out, c.cost, c.token, v.verdict, v.reason,
    greatest(0, extract(epoch FROM onward_now() - c.answered_at))::float8"""

_VERDICT: LiteralString = """
    LEFT JOIN call_verdict v ON v.run_id = %(run_id)s AND v.step_key = c.step_key
        AND v.generation = c.generation AND v.scope = c.scope AND v.position = c.position"""

#: One row at least, so that a step without calls knows its generation and its pardons too.
HISTORY: LiteralString = f"""
WITH resets AS MATERIALIZED (
    SELECT count(*) FILTER (WHERE kind = 'branch') AS generation,
           coalesce(max(token) FILTER (WHERE kind = 'pardon'), 0) AS pardoned
    FROM call_reset WHERE run_id = %(run_id)s AND step_key = %(step_key)s
)
SELECT r.generation, r.pardoned, {_COLUMNS}
FROM resets r
LEFT JOIN recorded_call c ON c.run_id = %(run_id)s AND c.step_key = %(step_key)s
    AND c.generation = r.generation{_VERDICT}"""

_WHERE: LiteralString = (
    "c.run_id = %(run_id)s AND c.step_key = %(step_key)s AND c.generation = %(generation)s"
    " AND c.scope = %(scope)s AND c.position = %(position)s"
)

ANSWER: LiteralString = f"SELECT c.answer FROM recorded_call c WHERE {_WHERE}"
REQUEST: LiteralString = f"SELECT c.request FROM recorded_call c WHERE {_WHERE}"
TEXTS: LiteralString = f"SELECT c.request, c.answer FROM recorded_call c WHERE {_WHERE}"

#: A position is written once. The same write again, after an unanswered COMMIT, finds itself.
_RECORDED: LiteralString = f"""
known AS (
    SELECT c.token = %(token)s AND c.digest = %(digest)s AND c.answer_digest = %(answer_digest)s AS same
    FROM recorded_call c WHERE {_WHERE}
), made AS (
    INSERT INTO recorded_call (run_id, step_key, generation, scope, position, kind, digest, method, url,
        endpoint, dialect, model, model_answered, request, status, headers, answer, answer_digest, state,
        response_id, tokens_in, tokens_out, cost, token, attempt, worker, started_at)
    SELECT %(run_id)s, %(step_key)s, %(generation)s, %(scope)s, %(position)s, %(kind)s, %(digest)s,
        %(method)s, %(url)s, %(endpoint)s, %(dialect)s, %(model)s, %(model_answered)s, %(request)s,
        %(status)s, %(headers)s, %(answer)s, %(answer_digest)s, %(state)s, %(response_id)s,
        %(tokens_in)s::bigint, %(tokens_out)s::bigint, %(cost)s::numeric, %(token)s, %(attempt)s, %(worker)s,
        onward_now() - make_interval(secs => %(ago)s)
    FROM held ON CONFLICT DO NOTHING RETURNING 1
)"""

_MADE: LiteralString = "SELECT EXISTS (SELECT 1 FROM made), (SELECT same FROM known) FROM held"

RECORD: LiteralString = f"WITH {_HELD}, {_RECORDED} {_MADE}"

#: The answer and what it cost, in one commit.
RECORD_AND_SETTLE: LiteralString = f"""
WITH RECURSIVE {_HELD}, {_RECORDED}, owed AS (
    SELECT h.wallet_id FROM held, hold h WHERE {OURS}
), {LOCKED}, {SETTLED}
{_MADE}"""

JUDGE: LiteralString = f"""
WITH {_HELD}, judged AS (
    INSERT INTO call_verdict (run_id, step_key, generation, scope, position, verdict, reason, token)
    SELECT %(run_id)s, %(step_key)s, %(generation)s, %(scope)s, %(position)s, %(verdict)s, %(reason)s,
           %(token)s
    FROM held ON CONFLICT DO NOTHING
)
SELECT 1 FROM held"""

#: Requests of earlier claims that may have been answered, to nobody: by place, those before a pardon left aside.
LOSSES: LiteralString = """
WITH resets AS MATERIALIZED (
    SELECT count(*) FILTER (WHERE kind = 'branch') AS generation,
           coalesce(max(token) FILTER (WHERE kind = 'pardon'), 0) AS pardoned
    FROM call_reset WHERE run_id = %(run_id)s AND step_key = %(step_key)s
)
SELECT x.scope, x.position, count(*) FROM resets r, (
    SELECT generation, scope, position, token FROM spend
    WHERE run_id = %(run_id)s AND step_key = %(step_key)s AND recovery
    UNION ALL
    SELECT h.generation, h.scope, h.position, h.token FROM hold h
    WHERE h.run_id = %(run_id)s AND h.step_key = %(step_key)s AND NOT EXISTS (
        SELECT 1 FROM recorded_call c WHERE c.run_id = h.run_id AND c.step_key = h.step_key
        AND c.generation = h.generation AND c.scope = h.scope AND c.position = h.position)
) x
WHERE x.generation = r.generation AND x.token > r.pardoned AND x.token < %(token)s
GROUP BY x.scope, x.position"""

#: Effects that may have happened depend on what was answered before them.
EFFECTS: LiteralString = """
SELECT EXISTS (
    SELECT 1 FROM effect_settlement s WHERE s.run_id = %(run_id)s AND s.step_key = %(step_key)s
    AND s.outcome = 'settled' AND s.effect_class <> 'pure' AND s.undoes IS NULL
) OR EXISTS (
    SELECT 1 FROM effect e WHERE e.run_id = %(run_id)s AND e.step_key = %(step_key)s
    AND e.state IN ('intended', 'unknown') AND e.undoes IS NULL
)"""

BRANCH: LiteralString = f"""
WITH {_HELD}, found AS ({EFFECTS} AS effects), made AS (
    INSERT INTO call_reset (run_id, step_key, kind, token, reason)
    SELECT %(run_id)s, %(step_key)s, 'branch', %(token)s, %(reason)s FROM held, found
    WHERE NOT found.effects
    ON CONFLICT DO NOTHING RETURNING 1
), told AS (
    INSERT INTO event (run_id, step_key, token, kind, detail)
    SELECT %(run_id)s, %(step_key)s, %(token)s, 'calls_branched', %(reason)s FROM made
)
SELECT found.effects, (SELECT count(*) FROM made) + (
    SELECT count(*) FROM call_reset
    WHERE run_id = %(run_id)s AND step_key = %(step_key)s AND kind = 'branch')
FROM held, found"""

#: Claims of this step up to now are forgiven what was rejected under them.
PARDON: LiteralString = """
WITH made AS (
    INSERT INTO call_reset (run_id, step_key, kind, token, reason, actor)
    SELECT l.run_id, l.step_key, 'pardon', l.token, %(reason)s, %(actor)s FROM live l
    WHERE l.run_id = %(run_id)s AND l.step_key = %(step_key)s
    ON CONFLICT DO NOTHING RETURNING run_id, step_key, token
)
INSERT INTO event (run_id, step_key, token, kind, detail, actor)
SELECT run_id, step_key, token, 'answers_pardoned', %(reason)s, %(actor)s FROM made"""

#: A claim that is over, whose owner comes back with an answer: what he says is kept, and changes nothing.
LATE: LiteralString = """
INSERT INTO attempt (run_id, step_key, token, outcome, attempt, branch, owner, worker, error_type, error, started_at)
SELECT run_id, step_key, token, 'superseded', attempt, branch, owner, worker, 'late_answer', %(said)s, started_at
FROM attempt WHERE run_id = %(run_id)s AND step_key = %(step_key)s AND token = %(token)s AND owner = %(owner)s
    AND outcome <> 'superseded'
ON CONFLICT DO NOTHING"""

#: Texts that stand in the journal as they are; those in the artifact store are verified there.
CHANGED: LiteralString = """
SELECT c.step_key, c.generation, c.scope, c.position, c.answer_digest FROM recorded_call c
WHERE c.run_id = %(run_id)s AND NOT starts_with(c.answer, '{"$onward-')
  AND c.answer_digest <> 'sha256:' || encode(sha256(convert_to(c.answer, 'UTF8')), 'hex')
ORDER BY 1, 2, 3, 4"""

OF_RUN: LiteralString = f"""
SELECT c.step_key, c.generation, c.scope, c.position, c.kind, c.method, c.url, c.endpoint, c.dialect, c.model,
       c.model_answered, c.status, c.state, v.verdict, v.reason, c.tokens_in, c.tokens_out, c.cost, c.token,
       c.attempt, c.worker, c.started_at, c.answered_at, c.generation = (
           SELECT count(*) FROM call_reset b
           WHERE b.run_id = %(run_id)s AND b.step_key = c.step_key AND b.kind = 'branch')
FROM recorded_call c{_VERDICT}
WHERE c.run_id = %(run_id)s ORDER BY c.answered_at, c.step_key, c.generation, c.scope, c.position"""

_NAMED: LiteralString = """coalesce(c.model, c.url) || ' ('
    || CASE c.scope WHEN '' THEN '' ELSE c.scope || ' ' END || '#' || c.position || ')'"""

#: The lines of a run's calls in its history, as ``stories.LINES`` has those of its effects.
LINES: LiteralString = f"""
    SELECT c.answered_at, 1.31, 'call_answered', c.step_key, c.attempt, c.token, c.worker,
           {_NAMED} || ': ' || c.state
               || CASE WHEN c.tokens_in IS NULL THEN '' ELSE
                  ', ' || c.tokens_in || ' + ' || coalesce(c.tokens_out, 0) || ' tokens' END
               || coalesce(', ' || trim_scale(c.cost) || ' USD', ''), c.worker, NULL
    FROM recorded_call c WHERE c.run_id = %(run_id)s
    UNION ALL
    SELECT v.at, 1.32, 'call_' || v.verdict, c.step_key, NULL, v.token, NULL,
           {_NAMED} || coalesce(': ' || v.reason, ''), 'onward', NULL
    FROM call_verdict v JOIN recorded_call c ON c.run_id = %(run_id)s AND c.step_key = v.step_key
        AND c.generation = v.generation AND c.scope = v.scope AND c.position = v.position
    WHERE v.run_id = %(run_id)s"""
