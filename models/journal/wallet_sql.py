"""The statements about money. Each is one transaction that finds its rows by primary key.

Locks are taken in the order live, then wallets from the run's upwards (of several chains: the deepest first,
then by id), then holds. A wallet's parent never changes, so the chain may be read before it is locked; what it
holds is judged only under the lock.
"""

from typing import LiteralString

from models.journal import sql

#: Attempts that only gave way to a rate limit, to an endpoint that does not answer, or to a limit of the wallet:
#: whoever resumes in vain before raising it has not used it up.
POSTPONED: LiteralString = "('throttled', 'call_postponed', 'budget_exceeded')"

_OF_PLACE: LiteralString = "run_id, step_key, generation, scope, position"
OURS: LiteralString = (
    "h.run_id = %(run_id)s AND h.step_key = %(step_key)s AND h.generation = %(hold_generation)s"
    " AND h.scope = %(hold_scope)s AND h.position = %(hold_position)s AND h.token = %(made_by)s AND h.send = %(send)s"
)

_CHAIN: LiteralString = """
chain(wallet_id, parent_id, distance) AS (
    SELECT w.wallet_id, w.parent_id, 0 FROM owed
    CROSS JOIN LATERAL (SELECT * FROM wallet WHERE wallet_id = owed.wallet_id OFFSET 0) w
    UNION ALL
    SELECT w.wallet_id, w.parent_id, c.distance + 1 FROM chain c
    CROSS JOIN LATERAL (SELECT * FROM wallet WHERE wallet_id = c.parent_id OFFSET 0) w
)"""

#: Follows a CTE ``owed`` of one wallet id. Each wallet is looked up, and locked, one after the other.
LOCKED: LiteralString = f"""{_CHAIN}, locked AS MATERIALIZED (
    SELECT w.*, c.distance, 1 AS each FROM (SELECT * FROM chain ORDER BY distance) c
    CROSS JOIN LATERAL (SELECT * FROM wallet WHERE wallet_id = c.wallet_id FOR NO KEY UPDATE) w
)"""

#: Every wallet of the chain. The first half says nothing but that chains are short: the planner would expect a
#: hundred wallets, and read all there are.
_IN_CHAIN: LiteralString = "k.each = 1 AND w.wallet_id = k.wallet_id"

_HELD: LiteralString = f"""
WITH RECURSIVE held AS MATERIALIZED (
    SELECT r.wallet_id, r.batch_id, CASE WHEN r.hold <> 'failed' THEN r.hold END AS withheld
    FROM live l JOIN run r ON r.run_id = %(run_id)s
    WHERE {sql.HELD} AND l.lease_expires_at > onward_now() FOR NO KEY UPDATE OF l
)"""

#: What a wallet has used of its limits on time and on attempts; computed only where there is such a limit.
_USED: LiteralString = f"""
LATERAL (SELECT
    CASE WHEN k.limit_seconds IS NOT NULL THEN extract(epoch FROM onward_now() - coalesce(
        CASE k.kind WHEN 'run' THEN (SELECT r.started_at FROM run r WHERE r.run_id = k.wallet_id)
                    ELSE k.started_at END, onward_now())) END AS seconds,
    CASE WHEN k.limit_attempts IS NOT NULL THEN (
        SELECT count(*) FROM attempt a
        WHERE a.run_id = %(run_id)s AND a.step_key = %(step_key)s
          AND a.outcome <> 'superseded' AND coalesce(a.error_type NOT IN {POSTPONED}, true)) END AS attempts
) u"""

#: A limit may be reached exactly, and not passed. Time alone passes without being asked for.
_EXCEEDED: LiteralString = f"""
exceeded AS (
    SELECT k.wallet_id, v.what, v.cap, v.spent, v.held, v.asked
    FROM locked k, {_USED}, LATERAL (VALUES
        (0, 'attempts', k.limit_attempts::numeric, u.attempts::numeric, 0::numeric, 1::numeric),
        (1, 'seconds', k.limit_seconds::numeric, u.seconds::numeric, 0, 0),
        (2, 'calls', k.limit_calls, k.spent_calls, k.held_calls, 1),
        (3, 'tokens', k.limit_tokens, k.spent_tokens, k.held_tokens, %(asked_tokens)s::bigint),
        (4, 'cost', k.limit_cost, k.spent_cost, k.held_cost, %(asked_cost)s::numeric)
    ) v(place, what, cap, spent, held, asked)
    WHERE v.place < %(judged)s AND v.cap IS NOT NULL
      AND coalesce(v.spent + v.held + v.asked > v.cap, true)
    ORDER BY k.distance, v.place LIMIT 1
)"""

_BEGUN: LiteralString = "started_at = coalesce(w.started_at, onward_now())"

RESERVE: LiteralString = f"""{_HELD}, owed AS (SELECT wallet_id FROM held), {LOCKED}, {_EXCEEDED}, known AS (
    SELECT 1 FROM hold h WHERE {OURS}
), made AS (
    INSERT INTO hold ({_OF_PLACE}, token, send, wallet_id, model, tokens, cost)
    SELECT %(run_id)s, %(step_key)s, %(hold_generation)s, %(hold_scope)s, %(hold_position)s, %(token)s, %(send)s,
           held.wallet_id, %(model)s, %(tokens)s::bigint, %(cost)s::numeric
    FROM held WHERE held.withheld IS NULL AND EXISTS (SELECT 1 FROM locked)
      AND NOT EXISTS (SELECT 1 FROM exceeded)
    ON CONFLICT DO NOTHING RETURNING tokens, coalesce(cost, 0) AS cost
), paid AS (
    UPDATE wallet w SET held_tokens = w.held_tokens + made.tokens, held_cost = w.held_cost + made.cost,
        held_calls = w.held_calls + 1, {_BEGUN}, revision = w.revision + 1
    FROM made, locked k WHERE {_IN_CHAIN}
)
SELECT EXISTS (SELECT 1 FROM locked), held.withheld,
       EXISTS (SELECT 1 FROM known) OR EXISTS (SELECT 1 FROM made), x.wallet_id, x.what, x.cap, x.spent, x.held,
       x.asked
FROM held LEFT JOIN exceeded x ON true"""

#: Before a body runs: the limits that do not wait for a request. What is read without a lock is time and attempts,
#: which no other process spends.
CHECK: LiteralString = f"""{_HELD}, owed AS (
    SELECT coalesce(wallet_id, batch_id) AS wallet_id FROM held
), {_CHAIN}, locked AS (
    SELECT w.*, c.distance, 1 AS each FROM chain c
    CROSS JOIN LATERAL (SELECT * FROM wallet WHERE wallet_id = c.wallet_id OFFSET 0) w
), {_EXCEEDED}, begun AS (
    UPDATE wallet w SET {_BEGUN}, revision = w.revision + 1
    FROM locked k WHERE {_IN_CHAIN} AND k.started_at IS NULL AND k.limit_seconds IS NOT NULL
)
SELECT x.wallet_id, x.what, x.cap, x.spent, x.held, x.asked
FROM held LEFT JOIN exceeded x ON true"""

#: A run's wallet is made when it is first needed, and its batch's with it, so that no wallet ever gets a parent
#: later.
OPEN_LATE: LiteralString = """
WITH batch AS (
    INSERT INTO wallet (wallet_id, kind)
    SELECT batch_id, 'batch' FROM run WHERE run_id = %(run_id)s AND batch_id IS NOT NULL
    ON CONFLICT DO NOTHING
), made AS (
    INSERT INTO wallet (wallet_id, kind, parent_id)
    SELECT run_id, 'run', batch_id FROM run WHERE run_id = %(run_id)s AND wallet_id IS NULL
    ON CONFLICT DO NOTHING
)
UPDATE run SET wallet_id = run_id, revision = revision + 1
WHERE run_id = %(run_id)s AND wallet_id IS NULL"""

#: A limit that a batch gets later holds for those of its runs too that have not needed a wallet yet.
OPEN_BATCH: LiteralString = """
WITH batch AS (
    INSERT INTO wallet (wallet_id, kind) VALUES (%(batch_id)s, 'batch') ON CONFLICT DO NOTHING
), made AS (
    INSERT INTO wallet (wallet_id, kind, parent_id)
    SELECT run_id, 'run', batch_id FROM run WHERE batch_id = %(batch_id)s AND wallet_id IS NULL
    ON CONFLICT DO NOTHING
)
UPDATE run SET wallet_id = run_id, revision = revision + 1
WHERE batch_id = %(batch_id)s AND wallet_id IS NULL"""

OPEN: LiteralString = """
WITH new AS (
    SELECT * FROM unnest(%(ids)s::text[], %(kinds)s::text[], %(parents)s::text[], %(tokens)s::bigint[],
        %(costs)s::numeric[], %(calls)s::bigint[], %(seconds)s::float8[], %(attempts)s::bigint[])
        AS n(wallet_id, kind, parent_id, tokens, cost, calls, seconds, attempts)
), made AS (
    INSERT INTO wallet (wallet_id, kind, parent_id, limit_tokens, limit_cost, limit_calls, limit_seconds,
                        limit_attempts)
    SELECT n.wallet_id, n.kind, coalesce(n.parent_id, r.batch_id), n.tokens, n.cost, n.calls, n.seconds,
           n.attempts
    FROM new n LEFT JOIN run r ON n.kind = 'run' AND r.run_id = n.wallet_id
    ON CONFLICT DO NOTHING
), batches AS (
    INSERT INTO wallet (wallet_id, kind)
    SELECT DISTINCT r.batch_id, 'batch' FROM new n JOIN run r ON r.run_id = n.wallet_id
    WHERE n.kind = 'run' AND r.batch_id IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM new b WHERE b.wallet_id = r.batch_id)
    ON CONFLICT DO NOTHING
)
UPDATE run SET wallet_id = n.wallet_id FROM new n
WHERE n.kind = 'run' AND run.run_id = n.wallet_id AND run.wallet_id IS NULL"""

#: Follows ``LOCKED``: one hold ends, with a charge or without. Whoever deletes it is the one who charges.
SETTLED: LiteralString = f"""
gone AS (
    DELETE FROM hold h USING (SELECT count(*) FROM locked HAVING count(*) > 0) wallets_first WHERE {OURS} RETURNING h.*
), charged AS (
    SELECT g.*, %(charged)s::boolean AS charged, coalesce(%(spent_tokens)s::bigint, 0) AS spent_tokens,
           coalesce(%(spent_cost)s::numeric, 0) AS spent_cost FROM gone g
), spent AS (
    INSERT INTO spend ({_OF_PLACE}, token, send, wallet_id, model, tokens, cost, recovery, seconds)
    SELECT {_OF_PLACE}, token, send, wallet_id, model, spent_tokens, %(spent_cost)s::numeric, %(recovery)s,
           %(seconds)s::float8
    FROM charged WHERE charged
), paid AS (
    UPDATE wallet w SET held_tokens = w.held_tokens - c.tokens,
        held_cost = w.held_cost - coalesce(c.cost, 0), held_calls = w.held_calls - 1,
        spent_tokens = w.spent_tokens + CASE WHEN c.charged THEN c.spent_tokens ELSE 0 END,
        spent_cost = w.spent_cost + CASE WHEN c.charged THEN c.spent_cost ELSE 0 END,
        spent_calls = w.spent_calls + CASE WHEN c.charged THEN 1 ELSE 0 END,
        recovery_tokens = w.recovery_tokens
            + CASE WHEN c.charged AND %(recovery)s THEN c.spent_tokens ELSE 0 END,
        recovery_cost = w.recovery_cost + CASE WHEN c.charged AND %(recovery)s THEN c.spent_cost ELSE 0 END,
        revision = w.revision + 1
    FROM charged c, locked k WHERE {_IN_CHAIN}
)"""

SETTLE: LiteralString = f"""
WITH RECURSIVE owed AS (SELECT h.wallet_id FROM hold h WHERE {OURS}), {LOCKED}, {SETTLED}
SELECT 1 FROM gone"""

#: Holds of claims that are over, charged in full: their answers are lost, and may have been billed. A late owner
#: that still settles its own finds it gone. The seconds are those until the loss was noticed.
_CHARGE_LOST: LiteralString = """
, up(leaf, wallet_id, parent_id, distance) AS (
    SELECT w.wallet_id, w.wallet_id, w.parent_id, 0
    FROM (SELECT DISTINCT wallet_id FROM lost) one
    CROSS JOIN LATERAL (SELECT * FROM wallet WHERE wallet_id = one.wallet_id OFFSET 0) w
    UNION ALL
    SELECT u.leaf, w.wallet_id, w.parent_id, u.distance + 1 FROM up u
    CROSS JOIN LATERAL (SELECT * FROM wallet WHERE wallet_id = u.parent_id OFFSET 0) w
), deep AS (
    SELECT leaf, wallet_id, max(distance) OVER (PARTITION BY leaf) - distance AS depth FROM up
), locked AS MATERIALIZED (
    SELECT w.wallet_id FROM (SELECT DISTINCT depth, wallet_id FROM deep ORDER BY depth DESC, wallet_id) d
    CROSS JOIN LATERAL (SELECT wallet_id FROM wallet WHERE wallet_id = d.wallet_id FOR NO KEY UPDATE) w
), gone AS (
    DELETE FROM hold h USING (SELECT count(*) FROM locked HAVING count(*) > 0) wallets_first, lost
    WHERE h.run_id = lost.run_id AND h.step_key = lost.step_key AND h.generation = lost.generation
      AND h.scope = lost.scope AND h.position = lost.position AND h.token = lost.token AND h.send = lost.send
    RETURNING h.*
), spent AS (
    INSERT INTO spend (run_id, step_key, generation, scope, position, token, send, wallet_id, model, tokens,
                       cost, recovery, seconds)
    SELECT g.run_id, g.step_key, g.generation, g.scope, g.position, g.token, g.send, g.wallet_id, g.model,
           g.tokens, g.cost, true, greatest(0, extract(epoch FROM coalesce((
               SELECT min(a.ended_at) FROM attempt a
               WHERE a.run_id = g.run_id AND a.step_key = g.step_key AND a.token = g.token
           ), onward_now()) - g.made_at))
    FROM gone g
), total AS (
    SELECT d.wallet_id, sum(g.tokens)::bigint AS tokens, sum(coalesce(g.cost, 0)) AS cost, count(*) AS calls
    FROM gone g JOIN deep d ON d.leaf = g.wallet_id GROUP BY d.wallet_id
), paid AS (
    UPDATE wallet w SET held_tokens = w.held_tokens - t.tokens, held_cost = w.held_cost - t.cost,
        held_calls = w.held_calls - t.calls, spent_tokens = w.spent_tokens + t.tokens,
        spent_cost = w.spent_cost + t.cost, spent_calls = w.spent_calls + t.calls,
        recovery_tokens = w.recovery_tokens + t.tokens, recovery_cost = w.recovery_cost + t.cost,
        revision = w.revision + 1
    FROM total t WHERE w.wallet_id = t.wallet_id
)
SELECT count(*) FROM gone"""

#: The provider still works on it, and a later attempt asks for what it comes to.
_PENDING: LiteralString = """EXISTS (
    SELECT 1 FROM recorded_call c WHERE c.run_id = h.run_id AND c.step_key = h.step_key
    AND c.generation = h.generation AND c.scope = h.scope AND c.position = h.position AND c.state = 'pending')"""

CHARGE_EARLIER: LiteralString = f"""
WITH RECURSIVE lost AS (
    SELECT h.* FROM hold h
    WHERE h.run_id = %(run_id)s AND h.step_key = %(step_key)s AND h.token < %(token)s AND NOT {_PENDING}
){_CHARGE_LOST}"""

#: A claim that does not run its step now never runs it again: tokens only rise.
_STRAY: LiteralString = f"""NOT EXISTS (
    SELECT 1 FROM live l WHERE l.run_id = h.run_id AND l.step_key = h.step_key
    AND (l.token = h.token AND l.owner IS NOT NULL OR {_PENDING}))"""

STRAYS: LiteralString = f"""
SELECT DISTINCT h.run_id, h.step_key FROM hold h
WHERE (h.run_id, h.step_key) > (%(after_run)s, %(after_step)s) AND {_STRAY} ORDER BY 1, 2 LIMIT %(limit)s"""

CHARGE_STRAYS: LiteralString = f"""
WITH RECURSIVE lost AS (
    SELECT h.* FROM unnest(%(run_ids)s::text[], %(step_keys)s::text[]) AS d(run_id, step_key)
    JOIN hold h ON h.run_id = d.run_id AND h.step_key = d.step_key WHERE {_STRAY}
){_CHARGE_LOST}"""

STANDING: LiteralString = """
SELECT w.wallet_id, w.kind, w.parent_id, w.limit_tokens, w.limit_cost, w.limit_calls, w.limit_seconds,
       w.limit_attempts, w.spent_tokens, w.spent_cost, w.spent_calls,
       extract(epoch FROM CASE w.kind WHEN 'run' THEN (
               SELECT coalesce(finished_at, onward_now()) - started_at FROM run WHERE run_id = w.wallet_id)
           ELSE onward_now() - w.started_at END)::float8,
       w.held_tokens, w.held_cost, w.held_calls, w.recovery_tokens, w.recovery_cost
FROM wallet w WHERE w.wallet_id = %(wallet_id)s"""

#: What lost attempts had worked. A place that was given up to wait for an endpoint is no loss.
LOST_SECONDS: LiteralString = f"""
SELECT coalesce(sum(extract(epoch FROM a.ended_at - a.started_at)), 0)::float8
FROM run r JOIN attempt a ON a.run_id = r.run_id
WHERE (r.run_id = %(wallet_id)s OR r.batch_id = %(wallet_id)s)
  AND a.outcome IN ('expired', 'died', 'interrupted') AND a.started_at IS NOT NULL
  AND coalesce(a.error_type NOT IN {POSTPONED}, true)"""

RAISES: LiteralString = """
SELECT at, actor, detail FROM event WHERE run_id = %(owner_id)s AND kind = 'budget_raised' ORDER BY event_id"""

#: The event goes to every run that the raise may help, and to its owner's own history: a batch may have no run
#: yet, and one that is over is given more as well.
RAISE: LiteralString = """
WITH raised AS (
    UPDATE wallet SET limit_tokens = coalesce(%(tokens)s::bigint, limit_tokens),
        limit_cost = coalesce(%(cost)s::numeric, limit_cost), limit_calls = coalesce(%(calls)s::bigint, limit_calls),
        limit_seconds = coalesce(%(seconds)s::float8, limit_seconds),
        limit_attempts = coalesce(%(attempts)s::bigint, limit_attempts), revision = revision + 1
    WHERE wallet_id = %(wallet_id)s RETURNING wallet_id
), told AS (
    INSERT INTO event (run_id, kind, detail, actor)
    SELECT o.run_id, 'budget_raised', %(detail)s, %(by)s FROM (
        SELECT wallet_id AS run_id FROM raised UNION SELECT %(owner_id)s FROM raised
        UNION SELECT r.run_id FROM raised JOIN run r ON r.batch_id = raised.wallet_id
        WHERE r.state NOT IN ('completed', 'cancelled', 'compensated')) o
)
SELECT 1 FROM raised"""
