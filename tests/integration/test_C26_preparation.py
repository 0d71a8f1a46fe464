"""C26: how much is read to go on near the end of a run of five thousand steps."""

import pytest

from models import database
from models.journal import publish
from tasks.canvas import chain
from tests.support.journal import Journal, Worker, submit_run, work

LENGTH, KILLED_AT = 5_000, 4_321
ROWS = 20  #: that one verb may read; its own row, its run, its node, what follows, its input


@pytest.fixture
def run_id(journal: Journal) -> str:
    """A run whose first 4,320 steps are done, each with a result of a kilobyte."""
    run_id = submit_run(chain(work.s() for _ in range(LENGTH)))
    journal.look.execute(
        """
        INSERT INTO step (run_id, step_key, branch, state, output, output_digest, attempt, token)
        SELECT run_id, step_key, branch, 'completed', %s, 'sha256:', 1, position + 1
        FROM plan WHERE run_id = %s AND position < %s""",
        (f'"{"x" * 1022}"', run_id, KILLED_AT - 1),
    )
    journal.make(
        run_id, step_key=f"work#{KILLED_AT}", prev_key=f"work#{KILLED_AT - 1}", token=KILLED_AT - 1,
        publish_at="now", publications=0,
    )  # fmt: skip
    return run_id


def _rows_read() -> int:
    """By this session, what it has not reported yet included."""
    query = """
        SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))
        FROM pg_stat_xact_user_tables"""
    return int(database.fetch(query, {})[0][0])


def test_C26_going_on_at_step_4321_reads_a_handful_of_rows(journal: Journal, run_id: str) -> None:
    database.close()  # as after a kill: a new process, whose plans are made on tables that are full
    key = f"work#{KILLED_AT}"
    with (
        database.transaction() as link
    ):  # one transaction, so that the counts add up in this session
        link.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        before = _rows_read()
        assert [wakeup.step_key for wakeup in publish.take_due(limit=10)] == [key]
        handed_out = _rows_read()
        claimed = Worker("worker-2", "start-2").take(run_id, key)
        taken = _rows_read()
        assert claimed.piped is not None
        assert len(claimed.piped) == 1024
        Worker("worker-2", "start-2").complete(claimed)
        done = _rows_read()
    assert 0 < handed_out - before <= ROWS
    assert 0 < taken - handed_out <= ROWS
    assert 0 < done - taken <= ROWS
