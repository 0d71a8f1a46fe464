"""``ctx.session``: a step's own rows and its completion are committed together, or neither is."""

import json
from collections.abc import Callable
from typing import Any, cast

import psycopg
import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import IntegrityError, InternalError, InvalidRequestError
from sqlalchemy.orm import Session

from models.journal import failing
from models.journal.errors import LeaseLost
from models.journal.values import Completed
from tasks import group
from tasks.errors import CallRefused
from tasks.outcomes import Failed
from tasks.recording import Recording
from tasks.step import BoundStep
from tasks.sticky import Budget
from tests.support.bookings import Body, Booking, book, booked, create_table
from tests.support.intents import again, at_work
from tests.support.journal import Journal, Worker, at, submit_run


@pytest.fixture(autouse=True)
def booking(journal: Journal) -> None:
    create_table(journal)


def test_rows_and_completion_are_seen_together(journal: Journal) -> None:
    body = Body(at_work())
    seen: list[object] = []

    def write() -> Completed:
        done = body.write()
        seen.extend((booked(journal), journal.states(body.claimed.run_id)["a"]))
        return done

    body.run(book)
    (wakeup,) = body.complete(write).wakeups
    assert seen == [[], "running"]
    assert booked(journal) == ["one"]
    assert journal.states(body.claimed.run_id) == {"a": "completed", "b": "pending"}
    assert wakeup.step_key == "b"
    assert not body.transaction.is_open


def test_a_body_that_fails_leaves_nothing(journal: Journal) -> None:
    body = Body(at_work())

    def fail(session: Session) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        body.run(book, fail)
    body.transaction.discard()
    assert booked(journal) == []
    assert journal.states(body.claimed.run_id)["a"] == "running"
    Worker().retry(body.claimed)


def test_whatever_leaves_the_block_undone_is_undone(journal: Journal) -> None:
    body = Body(at_work())

    def interrupt(session: Session) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), body.transaction:
        body.run(book, interrupt)
    assert booked(journal) == []
    assert not body.transaction.is_open


def test_a_displaced_owner_loses_its_rows_with_its_step(journal: Journal) -> None:
    journal.freeze()
    body = Body(at_work())
    body.run(book)
    again(journal, body.claimed)
    with pytest.raises(LeaseLost):
        body.complete()
    assert booked(journal) == []
    assert journal.states(body.claimed.run_id)["a"] == "running"


def test_a_session_that_is_never_asked_for_costs_nothing(journal: Journal) -> None:
    body = Body(at_work())
    with body.transaction:
        assert body.transaction.run(lambda: "done") == "done"
    assert not body.transaction.is_open
    assert body.barred == []
    with body.transaction, pytest.raises(CallRefused, match="ends with the body"):
        body.transaction.session()


def test_calls_are_refused_from_the_first_use_on(journal: Journal) -> None:
    body = Body(at_work())
    body.run(lambda _: None, lambda _: None)
    (why,) = body.barred
    assert "ctx.session" in why
    assert "before the session is first used" in why
    body.transaction.discard()


def test_nobody_uses_it_after_the_body(journal: Journal) -> None:
    body = Body(at_work())
    kept: list[Session] = []
    body.run(book, kept.append)
    with pytest.raises(CallRefused, match="ends with the body"):
        body.transaction.session()
    with pytest.raises(InvalidRequestError, match="closed"):
        kept[0].execute(select(Booking))
    body.complete()
    with pytest.raises(InvalidRequestError, match="closed"):
        kept[0].execute(select(Booking))
    assert booked(journal) == ["one"]


def test_a_session_of_a_failed_body_is_over_too(journal: Journal) -> None:
    body = Body(at_work())
    kept: list[Session] = []
    body.run(kept.append)
    body.transaction.discard()
    with pytest.raises(InvalidRequestError, match="closed"):
        kept[0].execute(select(Booking))


def test_commit_and_rollback_of_the_body_end_savepoints(journal: Journal) -> None:
    body = Body(at_work())

    def several(session: Session) -> None:
        book(session, "kept")
        session.commit()
        book(session, "undone")
        session.rollback()
        with session.begin():
            book(session, "in a block")
        with session:
            book(session, "in another")
        with pytest.raises(IntegrityError), session.begin_nested():
            book(session, "kept")
        assert booked(journal) == []

    body.run(several)
    assert booked(journal) == []
    body.complete()
    assert booked(journal) == ["in a block", "in another", "kept"]


@pytest.mark.parametrize(
    "end",
    [
        lambda session: session.execute(text("COMMIT")),
        lambda session: session.execute(text("ROLLBACK")),
        lambda session: session.connection().commit(),
    ],
    ids=["commit", "rollback", "connection"],
)
@pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning")
def test_a_body_that_ends_the_transaction_itself_is_refused(
    journal: Journal, end: Callable[[Session], object]
) -> None:
    body = Body(at_work())
    with body.transaction, pytest.raises(Exception, match=r"(?i)itself|savepoint"):
        body.run(book, end)
    assert journal.states(body.claimed.run_id)["a"] == "running"


def test_objects_in_memory_are_written_at_the_end_of_the_body(journal: Journal) -> None:
    body = Body(at_work())
    body.run(lambda session: session.add(Booking(name="object", amount=2)))
    body.complete()
    assert booked(journal) == ["object"]


def test_what_cannot_be_written_is_an_error_of_the_body(journal: Journal) -> None:
    body = Body(at_work())
    with body.transaction, pytest.raises(IntegrityError):
        body.run(book, lambda session: session.add(Booking(name="one", amount=2)))
    assert booked(journal) == []


def test_an_error_that_the_body_swallowed_is_not_built_upon(journal: Journal) -> None:
    body = Body(at_work())

    def careless(session: Session) -> None:
        with pytest.raises(IntegrityError):
            book(session)

    with body.transaction, pytest.raises(InternalError, match="aborted"):
        body.run(book, careless)


def test_what_only_fails_at_commit_leaves_nothing(journal: Journal) -> None:
    body = Body(at_work())
    body.run(
        lambda session: session.execute(text("INSERT INTO booking VALUES ('one', 1, 'nobody')"))
    )
    with pytest.raises(psycopg.IntegrityError, match="nobody"):
        body.complete()
    assert booked(journal) == []
    assert journal.states(body.claimed.run_id)["a"] == "running"
    assert not body.transaction.is_open


def test_the_next_step_is_claimed_in_the_same_transaction(journal: Journal) -> None:
    body = Body(at_work())
    body.run(book)
    completed = body.complete(lambda: Worker().complete_and_claim(body.claimed, '"done"'))
    assert completed.claimed is not None
    assert completed.claimed.step_key == "b"
    assert booked(journal) == ["one"]


def test_steps_that_it_asks_for_come_with_it(journal: Journal) -> None:
    body = Body(at_work())
    body.run(book)
    body.complete(lambda: Worker().then(body.claimed, at("x")))
    assert booked(journal) == ["one"]
    assert set(journal.states(body.claimed.run_id)) == {"a", "x", "b"}


def test_steps_that_cannot_be_added_take_it_along(journal: Journal) -> None:
    body = Body(at_work())
    body.run(book)

    def endless() -> Completed:
        Worker().then(body.claimed, at("x"))
        raise ValueError("the plan has no end")

    with pytest.raises(ValueError, match="no end"):
        body.complete(endless)
    assert booked(journal) == []
    assert set(journal.states(body.claimed.run_id)) == {"a", "b"}


def test_members_of_a_group_complete_with_rows_of_their_own(journal: Journal) -> None:
    run_id = submit_run(at("a") | group(at("m0"), at("m1")) | at("join"))
    fork = Body(Worker().take(run_id, "a"))
    fork.run(lambda session: book(session, "fork"))
    assert len(fork.complete().wakeups) == 2
    members = [Body(Worker().take(run_id, f"m{n}", f"0/1.{n}")) for n in range(2)]
    for number, member in enumerate(members):
        member.run(lambda session, name=f"m{number}": book(session, name))  # type: ignore[misc]
    assert [len(member.complete().wakeups) for member in members] == [0, 1]
    assert booked(journal) == ["fork", "m0", "m1"]
    finish = Body(Worker().take(run_id, "join"))
    finish.run(lambda session: book(session, "join"))
    assert finish.complete().finished


def test_its_result_is_the_one_recorded(journal: Journal) -> None:
    body = Body(at_work())
    found: dict[str, Any] = {}

    def read(session: Session) -> None:
        found["row"] = session.scalars(select(Booking)).one()

    body.run(book, read)
    assert json.dumps({"amount": found["row"].amount}) == '{"amount": 1}'
    body.complete()


def test_a_failure_is_recorded_after_everything_was_undone(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = Body(at_work())
    body.run(book)
    was_open: list[bool] = []
    monkeypatch.setattr(failing, "fail", lambda *_, **__: was_open.append(body.transaction.is_open))
    recording = Recording(
        bound=cast("BoundStep", None), claimed=body.claimed, carrier=Worker().carrier(),
        budget=cast("Budget", None), transaction=body.transaction,
    )  # fmt: skip
    recording.record(Failed("ValueError", "no", None))
    assert was_open == [False], "its locks would outlive the step's"
