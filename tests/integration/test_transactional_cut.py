"""Transactions of steps that are cut off, meet others or get stuck: undone as a whole, or read back."""

from collections.abc import Callable, Iterator

import pytest
from billiard.exceptions import SoftTimeLimitExceeded
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from models import database
from models.journal.errors import RolledBack
from models.journal.values import Completed
from models.settings import settings
from tests.support.bookings import Body, book, booked, create_table
from tests.support.intents import again, at_work
from tests.support.journal import Journal, Worker, row_of, submit_run
from tests.support.proxy import Cut, wire_to
from tests.support.waiting import wait_until


@pytest.fixture(autouse=True)
def booking(journal: Journal) -> None:
    create_table(journal)


def end_backend(session: Session) -> None:
    pid = session.execute(text("SELECT pg_backend_pid()")).scalar()
    database.fetch("SELECT pg_terminate_backend(%(pid)s, 5000)", {"pid": pid})


def test_a_connection_that_breaks_in_the_body_undoes_it(journal: Journal) -> None:
    body = Body(at_work())
    with body.transaction, pytest.raises(RolledBack, match="nothing of it happened"):
        body.run(book, end_backend, book)
    assert booked(journal) == []


def test_a_broken_connection_that_the_body_swallowed_undoes_it_too(journal: Journal) -> None:
    body = Body(at_work())

    def careless(session: Session) -> None:
        end_backend(session)
        with pytest.raises(OperationalError):
            book(session)

    with body.transaction, pytest.raises(RolledBack, match="nothing of it happened"):
        body.run(careless)
    assert booked(journal) == []


def test_a_connection_that_broke_before_the_completion_takes_it_along(journal: Journal) -> None:
    body = Body(at_work())
    body.run(book)
    with database.transaction() as link:
        (count,) = link.execute(
            "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity"
            " WHERE application_name LIKE 'onward-step %'"
        ).fetchall()[0]
    assert count == 1
    with pytest.raises(RolledBack, match="nothing of it happened"):
        body.complete()
    assert booked(journal) == []
    assert journal.states(body.claimed.run_id)["a"] == "running"


@pytest.mark.parametrize("code", ["40001", "40P01"])
def test_a_conflict_in_the_body_is_the_databases_affair(journal: Journal, code: str) -> None:
    body = Body(at_work())
    raising = text(f"DO $$ BEGIN RAISE EXCEPTION 'met another' USING ERRCODE = '{code}'; END $$")
    with body.transaction, pytest.raises(RolledBack, match="met another"):
        body.run(book, lambda session: session.execute(raising))
    assert booked(journal) == []


def test_a_conflict_at_the_completion_is_not_repeated_without_the_rows(journal: Journal) -> None:
    body = Body(at_work())
    journal.look.execute(
        """
        CREATE SEQUENCE tries;
        CREATE FUNCTION refuse_once() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF nextval('tries') = 1 THEN
                RAISE EXCEPTION 'could not serialize' USING ERRCODE = '40001';
            END IF;
            RETURN NEW;
        END $$;
        CREATE TRIGGER refuse_once BEFORE INSERT ON step FOR EACH ROW EXECUTE FUNCTION refuse_once()"""
    )
    body.run(book)
    with pytest.raises(RolledBack):
        body.complete()
    assert booked(journal) == []
    assert journal.states(body.claimed.run_id)["a"] == "running"


@pytest.fixture
def cut(
    journal: Journal, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Cut], None]]:
    """Cut the wire at the next COMMIT."""
    with wire_to(database_url) as (wire, url):
        monkeypatch.setenv("ONWARD_DATABASE_URL", url)
        settings.cache_clear()
        yield lambda where: wire.cut_next(where, at=b"COMMIT")
        assert wire.cuts == 1
        database.close()


def test_a_commit_that_was_not_answered_is_read_back(
    journal: Journal, cut: Callable[[Cut], None]
) -> None:
    body = Body(at_work())
    body.run(book)
    cut(Cut.ANSWER)
    assert body.complete() == Completed()  # its messages are left to the sweep
    assert booked(journal) == ["one"]
    assert journal.states(body.claimed.run_id)["a"] == "completed"


def test_a_commit_that_never_arrived_leaves_nothing(
    journal: Journal, cut: Callable[[Cut], None]
) -> None:
    body = Body(at_work())
    body.run(book)
    cut(Cut.REQUEST)
    with pytest.raises(RolledBack):
        body.complete()
    assert booked(journal) == []
    assert journal.states(body.claimed.run_id)["a"] == "running"


def test_nothing_is_written_beside_a_transaction_whose_connection_is_gone(journal: Journal) -> None:
    body = Body(at_work())
    body.run(book)

    def write() -> Completed:
        database.close()
        return body.write()

    with pytest.raises(RolledBack):
        body.complete(write)
    assert booked(journal) == []
    assert journal.states(body.claimed.run_id)["a"] == "running"


def test_a_time_limit_that_strikes_before_the_commit_undoes_all(journal: Journal) -> None:
    body = Body(at_work())
    body.run(book)

    def struck() -> Completed:
        body.write()
        raise SoftTimeLimitExceeded

    with pytest.raises(RolledBack):
        body.complete(struck)
    assert booked(journal) == []
    assert journal.states(body.claimed.run_id)["a"] == "running"


def test_the_next_attempt_does_not_wait_for_the_locks_of_a_stuck_one(journal: Journal) -> None:
    journal.freeze()
    stuck = Body(at_work())
    stuck.run(book)
    following = Body(again(journal, stuck.claimed))
    following.run(lambda session: session.execute(text("SET LOCAL lock_timeout = '5s'")), book)
    following.complete()
    with pytest.raises(RolledBack):
        stuck.complete()
    assert booked(journal) == ["one"]


def test_sessions_of_other_steps_are_left_alone(journal: Journal) -> None:
    journal.freeze()
    other = Body(at_work())
    session = other.transaction.session()
    book(session)
    following = Body(again(journal, at_work()))
    following.run(lambda own: book(own, "two"))
    following.complete()
    assert session.execute(text("SELECT count(*) FROM booking")).scalar() == 2
    other.transaction.discard()


def test_a_process_that_stops_before_its_commit_does_not_lock_the_step(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_COMMIT_PAUSE", 1)
    body = Body(Worker().take(submit_run(row_of("a")), "a"))
    body.run(book)

    def paused() -> Completed:
        done = body.write()
        free = "SELECT 1 FROM live WHERE run_id = %s FOR UPDATE SKIP LOCKED"
        assert journal.rows(free, body.claimed.run_id) == []
        wait_until(lambda: journal.rows(free, body.claimed.run_id), what="the server ended it")
        return done

    with pytest.raises(RolledBack):
        body.complete(paused)
    assert booked(journal) == []
    assert journal.states(body.claimed.run_id) == {"a": "running"}
