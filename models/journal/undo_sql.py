"""The statements about compensation: of those who ask for it, and of the one who does it.

``c`` is the compensation, ``s`` the settlement of an effect of its run, ``e`` an open effect of its run. Locks are
taken in the order effect, compensation, run: a first CTE takes those that the rest would take too late.
"""

from typing import LiteralString

from models.journal import effect_sql

_LONGEST = 2000  #: characters of what a blocked run shows

#: What is to be undone: effects that happened, change something outside, and are no undoing themselves.
IN_SCOPE: LiteralString = (
    "s.outcome = 'settled' AND s.effect_class <> 'pure' AND s.undoes IS NULL"
    " AND (c.only_keys IS NULL OR s.key = ANY(c.only_keys))"
)

NOT_UNDONE: LiteralString = (
    "NOT EXISTS (SELECT 1 FROM effect_settlement d WHERE d.run_id = s.run_id AND d.undoes = s.key)"
)

#: Open effects that this compensation has to do with: undos, and originals that may have happened.
CONCERNED: LiteralString = (
    "(e.undoes IS NOT NULL OR e.state IN ('intended', 'unknown'))"
    " AND (c.only_keys IS NULL OR coalesce(e.undoes, e.key) = ANY(c.only_keys))"
)

#: Opens the compensation that a CTE ``opening`` asks for, or opens a closed one again. What was counted
#: against it until now is pardoned. Keys asked for one after another add up; all of a run includes each.
OPENED: LiteralString = """
opened AS (
    INSERT INTO compensation AS c (run_id, state, only_keys, requested_by, reason, queue, run_state,
                                   run_reason, run_detail)
    SELECT o.run_id, 'undoing', o.only_keys, o.requested_by, o.why, coalesce(
               (SELECT s.queue FROM effect_settlement s
                WHERE s.run_id = o.run_id AND s.effect_class <> 'pure' AND s.undoes IS NULL
                ORDER BY s.position DESC LIMIT 1),
               (SELECT p.queue FROM plan p WHERE p.run_id = o.run_id ORDER BY p.position LIMIT 1)),
           o.state, o.reason, o.detail
    FROM opening o
    ON CONFLICT (run_id) DO UPDATE SET state = 'undoing',
        only_keys = CASE WHEN excluded.only_keys IS NOT NULL
                    THEN ARRAY(SELECT DISTINCT unnest(c.only_keys || excluded.only_keys)) END,
        requested_by = excluded.requested_by, reason = excluded.reason, run_state = excluded.run_state,
        run_reason = excluded.run_reason, run_detail = excluded.run_detail,
        pardoned_failures = c.failures, due_at = onward_now(), requested_at = onward_now(), error = NULL,
        finished_at = NULL, revision = c.revision + 1
    WHERE c.only_keys IS NOT NULL OR excluded.only_keys IS NULL
    RETURNING c.run_id
), asked AS (
    INSERT INTO event (run_id, kind, detail, actor)
    SELECT o.run_id, 'compensation_requested',
           CASE WHEN o.only_keys IS NULL THEN 'of all it did' ELSE 'of ' || array_to_string(o.only_keys, ', ') END
               || ': ' || o.why, o.requested_by
    FROM opening o
)"""

#: The doer's guard. A whole run is undone only while its hold keeps everything else away.
_MINE: LiteralString = """c.run_id = %(run_id)s AND c.state = 'undoing' AND c.doer = %(owner)s
    AND c.doer_until > onward_now()"""

MINE: LiteralString = f"""
WITH mine AS MATERIALIZED (
    SELECT c.* FROM compensation c JOIN run r ON r.run_id = %(run_id)s
    WHERE {_MINE} AND (c.only_keys IS NOT NULL OR r.hold = 'compensate')
)"""

#: The same for one undo: who may send it. No row is locked: of two that believe they may, the effect's own
#: row lets the first through, and the second finds it in doubt.
HELD: LiteralString = f"""{MINE}, held AS MATERIALIZED (
    SELECT s.queue, NULL::text AS hold, false AS withheld, {effect_sql.SUSPECT}
    FROM mine c JOIN run r ON r.run_id = %(run_id)s JOIN effect_settlement s ON s.key = %(undoes)s
    {effect_sql.REWOUND_SINCE}
    WHERE s.run_id = %(run_id)s AND {IN_SCOPE}
)"""

BEGIN: LiteralString = """
WITH first AS MATERIALIZED (
    SELECT 1 FROM effect WHERE run_id = %(run_id)s AND undoes IS NOT NULL AND state = 'intended'
    ORDER BY key FOR NO KEY UPDATE
), mine AS (
    UPDATE compensation c SET doer = %(owner)s, doer_until = onward_now() + make_interval(secs => %(ttl)s),
        failures = c.failures + 1, revision = c.revision + 1
    FROM run r, (SELECT count(*) FROM first) locked
    WHERE c.run_id = %(run_id)s AND r.run_id = %(run_id)s AND c.state = 'undoing'
      AND coalesce(c.doer_until <= onward_now(), true)
      AND (c.only_keys IS NOT NULL OR r.hold = 'compensate')
    RETURNING c.run_id, c.doer, c.revision, c.failures, c.failures - c.pardoned_failures, c.queue
), lost AS (
    UPDATE effect e SET state = 'unknown', doubted_at = onward_now(), due_at = onward_now(),
        error = %(lost)s, revision = e.revision + 1
    FROM mine WHERE e.run_id = %(run_id)s AND e.undoes IS NOT NULL AND e.state = 'intended'
    RETURNING e.run_id, e.step_key, e.token, e.key
), told AS (
    INSERT INTO event (run_id, step_key, token, kind, detail)
    SELECT run_id, step_key, token, 'effect_unknown', key || ': ' || %(lost)s FROM lost
)
SELECT * FROM mine"""

STANDSTILL: LiteralString = f"""{MINE}
SELECT EXISTS (SELECT 1 FROM live l WHERE l.run_id = %(run_id)s AND l.state = 'running' AND c.only_keys IS NULL),
       o.in_doubt, o.for_person
FROM mine c, LATERAL (
    SELECT count(*) FILTER (WHERE e.person IS NULL) AS in_doubt, count(e.person) AS for_person
    FROM effect e WHERE e.run_id = %(run_id)s AND e.undoes IS NULL AND {CONCERNED}) o"""

TO_UNDO: LiteralString = f"""{MINE}
SELECT s.key, s.step_key, s.branch, s.tool, s.queue, u.state, coalesce(u.sends, 0), u.person
FROM mine c JOIN effect_settlement s ON s.run_id = %(run_id)s
LEFT JOIN effect u ON u.run_id = %(run_id)s AND u.undoes = s.key
WHERE {IN_SCOPE} AND {NOT_UNDONE} ORDER BY s.position DESC"""

INTEND: LiteralString = f"{HELD}, {effect_sql.INTENT}"

#: Nothing was sent, or nothing came of it, and somebody else has undone it.
FOUND: LiteralString = f"""{HELD}, tried AS (
    DELETE FROM effect e USING held WHERE e.key = %(key)s AND e.state IN ('refused', 'absent')
    RETURNING e.sends, e.created_at, e.first_sent_at
)
INSERT INTO effect_settlement ({effect_sql.KEPT}, outcome, result, result_digest, source, reason)
SELECT %(key)s, s.run_id, s.step_key, s.branch, s.queue, s.tool, %(tool_version)s, s.effect_class, s.key,
       s.request, s.request_digest, %(token)s, %(attempt)s, coalesce(t.sends, 0), %(worker)s,
       coalesce(t.created_at, onward_now()), coalesce(t.first_sent_at, s.first_sent_at), 'settled',
       %(result)s, %(result_digest)s, 'lookup', %(reason)s
FROM held JOIN effect_settlement s ON s.key = %(undoes)s LEFT JOIN tried t ON true
WHERE NOT EXISTS (SELECT 1 FROM effect e WHERE e.key = %(key)s AND e.state IN ('intended', 'unknown'))
ON CONFLICT DO NOTHING"""

#: Also of an undo that was never sent: its row is what a person finds and resolves.
GIVE_UP: LiteralString = f"""{HELD}, known AS (
    UPDATE effect e SET person = %(reason)s, error = %(reason)s, revision = e.revision + 1
    FROM held WHERE e.key = %(key)s AND e.state IN ('refused', 'absent') RETURNING e.key
), made AS (
    INSERT INTO effect (key, run_id, step_key, branch, queue, tool, tool_version, effect_class, undoes,
        request, request_digest, state, token, attempt, sends, start_id, worker, pid, pid_started, pid_space,
        call_over, first_sent_at, sent_at, send_by, person, error)
    SELECT %(key)s, s.run_id, s.step_key, s.branch, s.queue, s.tool, s.tool_version, s.effect_class, s.key,
        s.request, s.request_digest, 'refused', %(token)s, %(attempt)s, 0, '', %(worker)s, 0, 0, '',
        true, s.first_sent_at, s.first_sent_at, s.first_sent_at, %(reason)s, %(reason)s
    FROM held JOIN effect_settlement s ON s.key = %(undoes)s
    ON CONFLICT DO NOTHING RETURNING key
)
INSERT INTO event (run_id, step_key, token, kind, detail)
SELECT %(run_id)s, %(step_key)s, %(token)s, 'effect_needs_person', key || ': ' || %(reason)s
FROM (SELECT key FROM known UNION ALL SELECT key FROM made) told"""

NOTE_UNDONE: LiteralString = f"""{MINE}
INSERT INTO event (run_id, step_key, token, kind, detail)
SELECT d.run_id, d.step_key, d.token, 'effect_undone', d.undoes || ': undone as ' || d.key
FROM mine JOIN effect_settlement d ON d.run_id = %(run_id)s
WHERE d.undoes IS NOT NULL AND d.outcome = 'settled' AND NOT EXISTS (
    SELECT 1 FROM event v WHERE v.run_id = %(run_id)s AND v.kind = 'effect_undone'
    AND v.detail = d.undoes || ': undone as ' || d.key)
ORDER BY d.position"""

RENEW: LiteralString = """
UPDATE compensation SET doer_until = onward_now() + make_interval(secs => %(ttl)s),
    pardoned_failures = CASE WHEN %(progress)s THEN failures ELSE pardoned_failures END,
    revision = revision + 1
WHERE run_id = %(run_id)s AND doer = %(owner)s RETURNING 1"""

DEFER: LiteralString = """
UPDATE compensation SET doer = NULL, doer_until = NULL, queue = %(queue)s, error = %(why)s,
    due_at = onward_now() + make_interval(secs => %(after)s),
    pardoned_failures = CASE WHEN %(counts)s THEN pardoned_failures
                             ELSE least(failures, pardoned_failures + 1) END,
    revision = revision + 1
WHERE run_id = %(run_id)s AND doer = %(owner)s"""

BLOCK: LiteralString = f"""{MINE}, blocked AS (
    UPDATE compensation b SET state = 'blocked', doer = NULL, doer_until = NULL, error = o.detail,
        revision = b.revision + 1
    FROM mine c, LATERAL (
        SELECT left(string_agg(e.key || ': ' || e.person, '; ' ORDER BY e.created_at, e.key), {_LONGEST}) AS detail
        FROM effect e WHERE e.run_id = %(run_id)s AND e.person IS NOT NULL AND {CONCERNED}) o
    WHERE b.run_id = %(run_id)s AND b.revision = c.revision AND o.detail IS NOT NULL RETURNING b.*
), shown AS (
    UPDATE run r SET state = 'blocked', reason = 'compensation_failed', detail = b.error,
        revision = r.revision + 1
    FROM blocked b WHERE r.run_id = %(run_id)s AND b.only_keys IS NULL
), told AS (
    INSERT INTO event (run_id, kind, detail) SELECT run_id, 'compensation_blocked', error FROM blocked
)
SELECT error FROM blocked"""

FINISH: LiteralString = f"""{MINE}, done AS (
    UPDATE compensation b SET state = 'done', doer = NULL, doer_until = NULL, error = NULL,
        finished_at = onward_now(), revision = b.revision + 1
    FROM mine c
    WHERE b.run_id = %(run_id)s AND b.revision = c.revision
      AND NOT EXISTS (SELECT 1 FROM effect_settlement s
                      WHERE s.run_id = %(run_id)s AND {IN_SCOPE} AND {NOT_UNDONE})
      AND NOT EXISTS (SELECT 1 FROM effect e WHERE e.run_id = %(run_id)s AND {CONCERNED})
      AND (c.only_keys IS NOT NULL OR NOT EXISTS (SELECT 1 FROM live l WHERE l.run_id = %(run_id)s))
    RETURNING b.*
), shown AS (
    UPDATE run r SET state = 'compensated', finished_at = onward_now(), revision = r.revision + 1
    FROM done d WHERE r.run_id = %(run_id)s AND d.only_keys IS NULL
), told AS (
    INSERT INTO event (run_id, kind, detail)
    SELECT d.run_id, 'compensation_done', n.undone || ' undone, ' || n.given_up || ' given up'
    FROM done d, LATERAL (
        SELECT count(*) FILTER (WHERE u.outcome = 'settled') AS undone,
               count(*) FILTER (WHERE u.outcome = 'abandoned') AS given_up
        FROM effect_settlement u WHERE u.run_id = %(run_id)s AND u.undoes IS NOT NULL) n
)
SELECT 1 FROM done"""
