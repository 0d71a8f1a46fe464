"""What the database itself refuses: changing what is finished, and rows that mean nothing."""

import psycopg
import pytest
from psycopg import errors as pg
from psycopg import sql

from tests.support.journal import Journal, Worker, row_of, submit_run

FINISHED = ("plan", "step", "attempt", "event")


@pytest.fixture
def run_id(journal: Journal) -> str:
    """A run with a row in every table that is insert-only."""
    run_id = submit_run(row_of("a", "b"))
    worker = Worker()
    worker.do(run_id, "a")
    worker.fail(worker.take(run_id, "b"))
    return run_id


@pytest.mark.parametrize("table", FINISHED)
@pytest.mark.parametrize(
    "statement",
    ["UPDATE {} SET run_id = run_id", "DELETE FROM {}", "TRUNCATE {}"],
    ids=["update", "delete", "truncate"],
)
def test_what_is_finished_never_changes(
    journal: Journal, run_id: str, table: str, statement: str
) -> None:
    before = journal.image()
    assert before[table]
    for retention in ("", "on") if statement.startswith("U") else ("",):
        journal.look.execute("SELECT set_config('onward.retention', %s, false)", (retention,))
        with pytest.raises(
            pg.RestrictViolation, match=f"table {table} of the journal is insert-only"
        ):
            journal.look.execute(sql.SQL(statement).format(sql.Identifier(table)))
    assert journal.image() == before


@pytest.mark.parametrize("table", FINISHED)
def test_retention_deletes_in_a_transaction_that_says_so(
    journal: Journal, run_id: str, table: str
) -> None:
    with journal.connect() as other, other.transaction():
        other.execute("SET LOCAL onward.retention = 'on'")
        other.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(table)))
    assert journal.image()[table] == []


@pytest.mark.parametrize(
    ("statement", "constraint"),
    [
        ("UPDATE live SET state = 'completed'", "ck_live_state"),
        ("UPDATE live SET state = 'cancelled'", "ck_live_state"),
        ("UPDATE live SET state = 'running'", "ck_live_lease"),
        ("UPDATE live SET owner = 'x', lease_expires_at = now()", "ck_live_lease"),
        ("UPDATE live SET state = 'running', owner = 'x'", "ck_live_lease"),
        ("UPDATE live SET state = 'running', lease_expires_at = now()", "ck_live_lease"),
        ("UPDATE live SET missing = -1", "ck_live_missing"),
        ("UPDATE live SET block_reason = 'bad_mood'", "ck_live_block_reason"),
        ("UPDATE run SET state = 'lost'", "ck_run_state"),
        ("UPDATE run SET hold = 'pause'", "ck_run_hold"),
        ("UPDATE run SET state = 'completed'", "ck_run_result"),
        ("UPDATE run SET result_key = 'a'", "ck_run_result"),
        ("INSERT INTO step VALUES ('r', 'k', '0', 'pending', NULL, 'i', 'o', 'd')", "ck_step_state"),
        ("INSERT INTO step VALUES ('r', 'k', '0', 'completed')", "ck_step_output"),
        ("INSERT INTO step VALUES ('r', 'k', '0', 'failed', NULL, 'i', 'o', NULL)", "ck_step_output"),
        ("INSERT INTO step VALUES ('r', 'k', '0', 'cancelled', NULL, 'i', 'o', 'd')", "ck_step_output"),
        ("INSERT INTO attempt VALUES ('r', 'k', 1, 'lost', 1, '0')", "ck_attempt_outcome"),
    ],
)  # fmt: skip
def test_rows_that_mean_nothing_are_refused(
    journal: Journal, run_id: str, statement: str, constraint: str
) -> None:
    journal.look.execute("ALTER TABLE step ALTER attempt SET DEFAULT 1, ALTER token SET DEFAULT 1")
    with pytest.raises(psycopg.errors.CheckViolation, match=constraint):
        journal.look.execute(statement)


def test_a_step_has_one_outcome_and_a_key_one_run(journal: Journal, run_id: str) -> None:
    copy = "INSERT INTO step SELECT * FROM step"
    with pytest.raises(pg.UniqueViolation, match="pk_step"):
        journal.look.execute(copy)
    submit_run(row_of("a"), submission_key="key-1")
    with pytest.raises(pg.UniqueViolation, match="uq_run_submission_key"):
        journal.look.execute("UPDATE run SET submission_key = 'key-1'")
    with pytest.raises(pg.ForeignKeyViolation, match="fk_run_batch_id"):
        journal.look.execute("UPDATE run SET batch_id = 'none'")


def test_the_journals_clock_can_be_stopped_for_a_session(journal: Journal) -> None:
    with journal.connect() as other:
        other.execute("SET onward.now = '2030-01-01T00:00:00Z'")
        (frozen,) = other.execute("SELECT onward_now() = '2030-01-01T00:00:00Z' AS f").fetchall()
        assert frozen["f"]
    with journal.look.transaction():
        first = journal.one("SELECT onward_now()")
        assert journal.one("SELECT onward_now()") > first  # moves on within a transaction
