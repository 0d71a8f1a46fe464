"""The least that a journal of steps needs, in SQL: one table, and an index that a sweep would need.

No plan, no history, no fencing, no types, digests or budgets. pgbench sends it (the floor), and a Celery task
does (the bare loop).
"""

from typing import Final, LiteralString

import psycopg

from benchmarks.stand import Stand

DATABASE: Final = "floor"
_SCHEMA: LiteralString = """
DROP TABLE IF EXISTS step;
DROP SEQUENCE IF EXISTS run;
CREATE SEQUENCE run;
CREATE TABLE step (
    run_id bigint, seq int, name text NOT NULL DEFAULT 'noop', state text NOT NULL,
    attempt int NOT NULL DEFAULT 0, owner text, lease_expires_at timestamptz, result jsonb,
    created_at timestamptz NOT NULL DEFAULT now(), started_at timestamptz, finished_at timestamptz,
    PRIMARY KEY (run_id, seq));
CREATE INDEX ix_step_lease ON step (lease_expires_at) WHERE state = 'running'"""

#: Each with fields for how its sender writes the run, the step and the result.
WAITING: LiteralString = "INSERT INTO step (run_id, seq, state) SELECT {run}, {seq}, 'pending'"
CLAIM: LiteralString = (
    "UPDATE step SET state = 'running', attempt = attempt + 1, owner = 'w', started_at = now(),"
    " lease_expires_at = now() + interval '60 s'"
    " WHERE run_id = {run} AND seq = {seq} AND state = 'pending'"
)
TAKEN: LiteralString = (
    "INSERT INTO step (run_id, seq, state, attempt, owner, started_at, lease_expires_at)"
    " SELECT {run}, {seq}, 'running', 1, 'w', now(), now() + interval '60 s'"
)
COMPLETE: LiteralString = (
    "UPDATE step SET state = 'completed', result = {result}, finished_at = now(),"
    " lease_expires_at = NULL WHERE run_id = {run} AND seq = {seq} AND state = 'running'"
)
#: Complete a step and, in the same commit, make the next one: waiting, or taken at once.
_THEN: LiteralString = "WITH done AS (" + COMPLETE + " RETURNING 1) "
THEN_WAITING: LiteralString = _THEN + WAITING.replace("{seq}", "{next}") + " FROM done"
THEN_TAKEN: LiteralString = _THEN + TAKEN.replace("{seq}", "{next}") + " FROM done"


def prepare_database(stand: Stand) -> None:
    """An empty table in a database of its own."""
    with psycopg.connect(stand.libpq_url("postgres"), autocommit=True) as server:
        known = server.execute("SELECT 1 FROM pg_database WHERE datname = 'floor'").fetchone()
        if known is None:
            server.execute("CREATE DATABASE floor")
    with psycopg.connect(stand.libpq_url(DATABASE), autocommit=True) as server:
        server.execute(_SCHEMA)
