"""Statements prepared on a connection: values both ways, and what becomes of errors and of joined transactions."""

from contextlib import suppress
from datetime import UTC, datetime

import psycopg
import pytest
from psycopg import errors

from models import database
from tests.support.journal import Journal

pytestmark = pytest.mark.usefixtures("journal")

WHEN = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)


def test_values_come_back_as_they_went() -> None:
    given = {
        "text": "Vertrag §1 合同 %s",
        "when": WHEN,
        "flag": True,
        "none": None,
        "many": ["a", "b"],
    }

    row = database.fetch_one(
        "SELECT %(text)s::text, %(when)s::timestamptz, %(flag)s::bool, %(none)s::text, %(many)s::text[]",
        given,
    )

    assert row == tuple(given.values())


@pytest.mark.parametrize("value", [7, 70_000, 2**40, None])
def test_numbers_of_any_size_are_taken_by_one_statement(value: int | None) -> None:
    assert database.fetch_one("SELECT %(value)s::bigint, %(value)s::bigint", {"value": value}) == (
        value,
        value,
    )


def test_the_type_of_a_parameter_may_change_between_executions() -> None:
    statement = "SELECT %(value)s::text"

    rows = [database.fetch_one(statement, {"value": value}) for value in (7, 2**40, "seven", None)]

    assert rows == [("7",), (str(2**40),), ("seven",), (None,)]
    assert (
        prepared_by("SELECT $1::text") == 3
    )  # small and large numbers, texts: None is sent as those are


def test_a_statement_is_prepared_once() -> None:
    for _ in range(3):
        database.fetch_one("SELECT 'once', %(value)s::text", {"value": "a"})

    assert prepared_by("SELECT 'once', $1::text") == 1


def test_a_doubled_percent_sign_is_one() -> None:
    assert database.fetch_one("SELECT %(text)s::text LIKE 'a%%'", {"text": "abc"}) == (True,)


def test_what_returns_nothing_gives_no_row(journal: Journal) -> None:
    assert journal is not None
    assert database.fetch_one("SELECT 1 WHERE %(is)s::bool", {"is": False}) is None
    assert database.fetch_one("SET LOCAL statement_timeout = 0", {}) is None


def test_a_statement_that_fails_is_named_and_can_be_repeated() -> None:
    statement = "SELECT 1 / %(divisor)s::int"

    with pytest.raises(errors.DivisionByZero, match="division by zero"):
        database.fetch_one(statement, {"divisor": 0})

    assert database.fetch_one(statement, {"divisor": 1}) == (1,)


def test_a_statement_that_cannot_be_prepared_is_refused_each_time() -> None:
    for _ in range(2):
        with pytest.raises(errors.UndefinedTable):
            database.fetch_one("SELECT %(value)s::int FROM nowhere", {"value": 1})


def test_a_new_connection_prepares_anew() -> None:
    statement = "SELECT 'anew', %(value)s::text"
    database.fetch_one(statement, {"value": "a"})

    database.close()

    assert database.fetch_one(statement, {"value": "b"}) == ("anew", "b")


def test_in_a_joined_transaction_it_is_part_of_it() -> None:
    statement = "SELECT pg_current_xact_id()::text, %(value)s::text"
    own = database.fetch_one(statement, {"value": "own"})

    with (
        psycopg.connect(database.conninfo(), autocommit=False) as other,
        database.joining(other),
    ):
        first = database.fetch_one(statement, {"value": "joined"})
        second = database.fetch_one(statement, {"value": "joined"})

    assert first == second
    assert first is not None
    assert own is not None
    assert first[0] != own[0]


def test_after_a_rollback_which_deallocates_it_it_is_prepared_again() -> None:
    statement = "SELECT 'again', %(value)s::text"
    database.fetch_one(statement, {"value": "a"})
    roll_back()
    assert prepared_by("SELECT 'again', $1::text") == 0

    assert database.fetch_one(statement, {"value": "b"}) == ("again", "b")
    assert prepared_by("SELECT 'again', $1::text") == 1


def test_after_a_rollback_a_transaction_is_not_aborted_by_what_was_deallocated() -> None:
    statement = "SELECT 'within', %(value)s::text"
    database.fetch_one(statement, {"value": "a"})
    roll_back()

    with database.transaction() as link:
        link.execute("SELECT 1")
        assert database.fetch_one(statement, {"value": "b"}) == ("within", "b")
        assert link.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS


def roll_back() -> None:
    """A transaction of this thread's connection that comes to nothing, and psycopg's clearing up after it."""
    with suppress(RuntimeError), database.transaction() as link:
        link.execute("SELECT 1")
        raise RuntimeError
    database.fetch("SELECT 1", {})


def prepared_by(text: str) -> int:
    """How often this thread's connection has prepared it."""
    row = database.fetch_one(
        "SELECT count(*) FROM pg_prepared_statements WHERE statement = %(text)s", {"text": text}
    )
    assert row is not None
    return int(row[0])
