"""The hot statements. Each is one transaction, found by primary key, guarded by token and owner.

No guard is a literal ``state = 'running'``: where an index has that predicate, Postgres would walk the
index's dead entries under an old snapshot instead of using the key (3,300 -> 300 steps/s, measured).
Every table is joined by the parameter, never by another table's run_id: on a young journal, whose tables
look small, a generic plan made of the latter reads all of `plan` and `run` at each claim, for as long as
the connection lives.
"""

from typing import LiteralString

#: The holder's guard. Whoever lacks one of the five does not own the step.
HELD: LiteralString = (
    "l.run_id = %(run_id)s AND l.branch = %(branch)s AND l.step_key = %(step_key)s"
    " AND l.token = %(token)s AND l.owner = %(owner)s"
)

NO_LEASE: LiteralString = (
    "owner = NULL, carrier = NULL, pid = NULL, pid_started = NULL, lease_expires_at = NULL"
)

#: A branch that moves on starts its next step with clean counters; the token only ever rises.
NEXT_STEP: LiteralString = (
    "step_key = %(next_key)s, prev_key = %(step_key)s, queue = %(next_queue)s,"
    " untracked = %(next_untracked)s, failures = 0, crashes = 0, lost = 0,"
    " pardoned_failures = 0, pardoned_crashes = 0, pardoned_lost = 0,"
    " slot_at = NULL, block_reason = NULL, error_type = NULL, error = NULL,"
    " progress_done = NULL, progress_total = NULL, progress_note = NULL,"
    " due_at = onward_now(), revision = l.revision + 1"
)

RECORD: LiteralString = """
    INSERT INTO step (run_id, step_key, branch, state, prev_key, input_digest, output, output_digest,
                      joins, join_index, attempt, token, worker, started_at)
    SELECT %(run_id)s, %(step_key)s, %(branch)s, 'completed', %(prev_key)s, %(input_digest)s, %(output)s,
           %(output_digest)s, %(joins)s, %(join_index)s::bigint, %(attempt)s::bigint, %(token)s::bigint,
           %(worker)s, %(claimed_at)s::timestamptz
    FROM done"""

CLAIMED: LiteralString = """
    c.run_id, c.branch, c.step_key, c.prev_key, c.token, c.owner, c.attempt, c.failures,
    c.crashes + c.lost, c.pardoned_failures, c.batch_id, c.claimed_at, p.step_name, p.arguments, p.input, p.next_key,
    p.fork, p.joins, p.join_index, p.untracked, p.queue, c.wallet_id"""

#: Whose limits hold for a run: its own wallet's, and its batch's where it has none yet. A batch may get its first
#: limit while a run is being submitted to it that does not see that, and that is not seen.
PAYER: LiteralString = """
    coalesce(r.wallet_id, (SELECT w.wallet_id FROM wallet w WHERE w.wallet_id = r.batch_id)) AS wallet_id"""

PLANNED: LiteralString = """
    JOIN plan p ON p.run_id = %(run_id)s AND p.step_key = c.step_key
    LEFT JOIN plan n ON n.run_id = %(run_id)s AND n.step_key = coalesce(p.next_key, p.joins)"""

INPUT: LiteralString = "LEFT JOIN step i ON i.run_id = %(run_id)s AND i.step_key = c.prev_key"

#: What follows, as `Planned`: known beforehand, so that completing and claiming it looks nothing up but
#: what follows *that*.
AFTER: LiteralString = """
    n.step_key, n.step_name, n.arguments, n.input, n.next_key, n.fork, n.joins, n.join_index, n.untracked,
    n.queue, n.rate_limit"""

CLAIM: LiteralString = f"""
WITH c AS (
    UPDATE live l SET state = 'running', attempt = l.attempt + 1, token = l.token + 1,
        owner = %(new_owner)s, worker = %(worker)s, carrier = %(task_id)s, pid = %(pid)s,
        pid_started = %(pid_started)s, claimed_at = onward_now(),
        lease_expires_at = onward_now() + make_interval(secs => %(ttl)s),
        slot_at = NULL, block_reason = NULL, revision = l.revision + 1
    FROM run r
    WHERE l.run_id = %(run_id)s AND l.branch = %(branch)s AND l.step_key = %(step_key)s
      AND l.state = 'pending' AND l.missing = 0 AND l.due_at <= onward_now()
      AND r.run_id = %(run_id)s AND r.hold IS NULL
      AND (%(workflow)s::text IS NULL OR r.workflow = %(workflow)s AND r.version = ANY(%(versions)s))
    RETURNING l.*, {PAYER}
), started AS (
    UPDATE run SET state = 'running', started_at = onward_now(), revision = run.revision + 1
    FROM c WHERE run.run_id = %(run_id)s AND run.state = 'pending'
)
SELECT {CLAIMED}, i.output, {AFTER}
FROM c {PLANNED} {INPUT}"""

#: What became of a claim whose COMMIT was not answered: the nonce in the owner is ours alone.
CLAIMED_BY: LiteralString = f"""
SELECT {CLAIMED}, i.output, {AFTER}
FROM (SELECT l.*, {PAYER} FROM live l JOIN run r ON r.run_id = %(run_id)s
      WHERE l.run_id = %(run_id)s AND l.branch = %(branch)s AND l.owner = %(new_owner)s) c
{PLANNED} {INPUT}"""

ADVANCE: LiteralString = f"""
WITH done AS (
    UPDATE live l SET {NEXT_STEP}, {NO_LEASE}, state = 'pending', attempt = 0,
        worker = NULL, claimed_at = NULL,
        publish_at = onward_now() + make_interval(secs => %(grace)s), publications = 1
    WHERE {HELD} RETURNING 1
), recorded AS ({RECORD})
SELECT 1 FROM done"""

#: Complete N and claim N+1 in one commit. A held run gets its result recorded and goes no further.
ADVANCE_AND_CLAIM: LiteralString = f"""
WITH done AS (
    UPDATE live l SET {NEXT_STEP},
        state = CASE WHEN r.hold IS NULL THEN 'running' ELSE 'pending' END,
        attempt = CASE WHEN r.hold IS NULL THEN 1 ELSE 0 END,
        token = l.token + CASE WHEN r.hold IS NULL THEN 1 ELSE 0 END,
        owner = CASE WHEN r.hold IS NULL THEN %(new_owner)s END,
        lease_expires_at =
            CASE WHEN r.hold IS NULL THEN onward_now() + make_interval(secs => %(ttl)s) END,
        claimed_at = onward_now(), publish_at = onward_now(), publications = 0
    FROM run r
    WHERE r.run_id = %(run_id)s AND {HELD} RETURNING l.owner, l.claimed_at, {PAYER}
), recorded AS ({RECORD})
SELECT c.owner, c.claimed_at, c.wallet_id, {AFTER}
FROM done c LEFT JOIN plan n ON n.run_id = %(run_id)s AND n.step_key = %(after_key)s"""

#: The first members get their message from the completing worker; `wake` tops up the rest.
FORK: LiteralString = f"""
WITH done AS (
    UPDATE live l SET {NEXT_STEP}, {NO_LEASE}, state = 'pending', attempt = 0,
        worker = NULL, claimed_at = NULL, missing = %(members)s, publications = 0
    WHERE {HELD} RETURNING l.priority, l.batch_id
), heads AS (
    SELECT p.*, f.place FROM unnest(%(fork)s::text[]) WITH ORDINALITY f(step_key, place)
    JOIN plan p ON p.run_id = %(run_id)s AND p.step_key = f.step_key
), started AS (
    INSERT INTO live (run_id, branch, step_key, prev_key, queue, untracked, priority, batch_id,
                      publish_at, publications)
    SELECT h.run_id, h.branch, h.step_key, %(step_key)s, h.queue, h.untracked, d.priority, d.batch_id,
           onward_now() + make_interval(secs => CASE WHEN h.place <= %(at_once)s THEN %(grace)s ELSE 0 END),
           CASE WHEN h.place <= %(at_once)s THEN 1 ELSE 0 END
    FROM heads h, done d
), recorded AS ({RECORD})
SELECT h.branch, h.step_key, h.step_name, h.queue FROM heads h, done WHERE h.place <= %(at_once)s
ORDER BY h.place"""

#: The end of a group member. The join's count goes down in the fenced statement, never by counting rows.
REPORT: LiteralString = f"""
WITH done AS (
    DELETE FROM live l WHERE {HELD} RETURNING 1
), parent AS (
    UPDATE live l SET missing = l.missing - 1, due_at = onward_now(),
        publish_at = onward_now() + make_interval(secs => %(grace)s),
        publications = CASE WHEN l.missing = 1 THEN 1 ELSE 0 END, revision = l.revision + 1
    FROM done
    WHERE l.run_id = %(run_id)s AND l.branch = %(parent)s AND l.step_key = %(joins)s
    RETURNING l.missing
), recorded AS ({RECORD})
SELECT (SELECT missing FROM parent) FROM done"""

FINISH: LiteralString = f"""
WITH done AS (
    DELETE FROM live l WHERE {HELD} RETURNING 1
), over AS (
    UPDATE run SET
        state = CASE hold WHEN 'cancel' THEN 'cancelled' WHEN 'compensate' THEN state ELSE 'completed' END,
        result_key = CASE WHEN hold IN ('cancel', 'compensate') THEN NULL ELSE %(step_key)s END,
        reason = CASE hold WHEN 'compensate' THEN reason END,
        detail = CASE hold WHEN 'compensate' THEN detail END,
        finished_at = CASE hold WHEN 'compensate' THEN finished_at ELSE onward_now() END,
        revision = revision + 1
    FROM done WHERE run.run_id = %(run_id)s RETURNING run.run_id, run.state
), told AS (
    INSERT INTO event (run_id, kind) SELECT run_id, 'run_cancelled' FROM over WHERE state = 'cancelled'
), recorded AS ({RECORD})
SELECT 1 FROM done"""

RENEW: LiteralString = """
UPDATE live l SET lease_expires_at = onward_now() + make_interval(secs => %(ttl)s),
    revision = l.revision + 1
FROM unnest(%(run_ids)s::text[], %(branches)s::text[], %(tokens)s::bigint[], %(owners)s::text[])
    AS held(run_id, branch, token, owner)
WHERE l.run_id = held.run_id AND l.branch = held.branch AND l.token = held.token AND l.owner = held.owner
RETURNING l.run_id, l.branch, l.token"""
