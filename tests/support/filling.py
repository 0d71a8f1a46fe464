"""A journal of some age: runs and effects in motion and finished, and somebody who holds on to the past."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tests.support.journal import Journal


@contextmanager
def an_old_snapshot(journal: Journal) -> Iterator[None]:
    """A dump, a forgotten session, a replica: somebody for whom no dead row may be removed."""
    with psycopg.connect(journal.conninfo) as other:
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT count(*) FROM live")
        yield
        other.rollback()


def fill(journal: Journal, count: int) -> None:
    """Runs in motion, each in the middle of its plan, a tenth of them at work."""
    journal.look.execute(
        """
        WITH made AS (
            INSERT INTO run (run_id, input, input_digest, workflow, version, interface_digest, code_digest,
                             state, step_count)
            SELECT 'run-' || lpad(n::text, 5, '0'), '{}', 'd', 'toy', '1', 'd', 'd', 'running', 10
            FROM generate_series(1, %(count)s) n RETURNING run_id
        ), planned AS (
            INSERT INTO plan (run_id, step_key, position, step_name, queue, kind, branch, input, arguments,
                              next_key)
            SELECT run_id, 's' || n, n, 'toy.work', 'q', 'step', '0', 'none', '{}', 's' || n + 1
            FROM made, generate_series(0, 9) n
        ), finished AS (
            INSERT INTO step (run_id, step_key, branch, state, output, output_digest, attempt, token)
            SELECT run_id, 's' || n, '0', 'completed', repeat('x', 200), 'd', 1, 1
            FROM made, generate_series(0, 4) n
        )
        INSERT INTO live (run_id, branch, step_key, prev_key, queue) SELECT run_id, '0', 's5', 's4', 'q'
        FROM made""",
        {"count": count},
    )
    journal.look.execute(
        """
        WITH made AS (
            INSERT INTO effect (key, run_id, step_key, branch, queue, tool, tool_version, effect_class, request,
                                request_digest, state, token, attempt, start_id, worker, pid, pid_started,
                                pid_space, first_sent_at, sent_at, send_by)
            SELECT run_id || ':s5:t:1', run_id, 's5', '0', 'q', 't', '1', 'queryable', '{}', 'd', 'intended', 1, 1,
                   'start-1', 'w', 1, 1, 'p', onward_now(), onward_now(), onward_now() FROM live
        )
        INSERT INTO effect_settlement (key, run_id, step_key, branch, queue, tool, tool_version, effect_class,
                                       request, request_digest, outcome, result, result_digest, source, token,
                                       attempt, sends, worker, created_at, first_sent_at)
        SELECT run_id || ':s' || n || ':t:1', run_id, 's' || n, '0', 'q', 't', '1', 'queryable', '{}', 'd',
               'settled', 'null', 'd', 'answer', 1, 1, 1, 'w', onward_now(), onward_now()
        FROM live, generate_series(0, 4) n"""
    )
    journal.look.execute(
        "UPDATE live SET state = 'running', owner = 'start-1.x', token = 1,"
        " lease_expires_at = onward_now() + interval '1 hour' WHERE run_id LIKE '%7'"
    )
