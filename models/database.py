"""Connections to Postgres: one per thread and process, and the one place where SQLSTATEs become errors.

The hot path is psycopg in autocommit: one prepared statement, one transaction, one round trip (0.4 ms of
client CPU a step, against 4 ms through the ORM). A connection is never carried over a fork: it is keyed
by pid, since two processes on one socket read each other's rows.
"""

import os
import random  # noqa: TID251 - jitter between repeats; nothing is identified by it
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg import errors as pg

from models.failpoints import armed_commit, kill_after_sending
from models.journal.errors import CommitUnknown, JournalUnavailable, RolledBack
from models.lending import Lender, Lent
from models.prepared import Prepared
from models.redaction import redact_params
from models.settings import settings

Row = tuple[Any, ...]
Params = Mapping[str, object]
T = TypeVar("T")

#: Deadlocks and serialization failures: Postgres rolled everything back, so the statement may be repeated.
_REPEATABLE = (pg.SerializationFailure, pg.DeadlockDetected)
_REPEATS = 8
_IDLE = psycopg.pq.TransactionStatus.IDLE  #: no transaction is open
CONNECT_TIMEOUT = 5  #: seconds
#: Seconds until a peer that acknowledges nothing is given up: keep-alives stay silent while data is on its way,
#: and the kernel alone would try for a quarter of an hour.
SILENCE_TIMEOUT = 20


#: Seconds that a completed but uncommitted step may lock its row: whoever stops in between is ended by the server.
_COMMIT_PAUSE = 10


class _Link(threading.local):
    pid: int = 0
    connection: psycopg.Connection[Row] | None = None
    joined = False  #: the connection is somebody else's, with a transaction open on it
    keeps = False  #: borrows nothing: it has a connection already, or must not wait for one

    def __init__(self) -> None:
        #: By statement, what is prepared on this thread's own connection.
        self.prepared: dict[str, Prepared] = {}


_link = _Link()
_lender: Lender | None = None  #: None: each thread has a connection of its own


def lend(size: int) -> None:
    """Let the threads of this process share so many connections, each held for a statement or a transaction."""
    global _lender  # noqa: PLW0603 - set once, before the process has threads
    _lender = Lender(size)


def keep_own() -> None:
    """This thread waits for no connection of others."""
    _link.keeps = True


@contextmanager
def _borrowed(lender: Lender) -> Iterator[None]:
    link = _link
    if link.keeps or link.joined:
        yield
        return
    if (lent := lender.borrow()) is None:
        raise JournalUnavailable("Every connection of this process was taken for too long.")
    link.connection, link.prepared, link.pid, link.keeps = (
        lent.connection,
        lent.prepared,
        os.getpid(),
        True,
    )
    try:
        yield
    finally:
        lender.give_back(Lent(link.connection, link.prepared))
        link.connection, link.prepared, link.keeps = None, {}, False


def conninfo() -> str:
    """The database URL as libpq reads it."""
    return settings().database_url.replace("postgresql+psycopg://", "postgresql://", 1)


def connection() -> psycopg.Connection[Row]:
    """This thread's connection, opened when first used and again when it broke."""
    link = _link
    if link.connection is not None and link.pid == os.getpid():
        if not link.connection.closed:
            return link.connection
    elif link.connection is not None:
        link.connection = None  # the parent's socket: drop it without a goodbye on the wire
    if link.joined:
        raise CommitUnknown("The connection whose transaction was joined is gone.")
    link.prepared = {}
    link.connection = connect(autocommit=True)
    link.pid = os.getpid()
    return link.connection


def connect(*, autocommit: bool) -> psycopg.Connection[Row]:
    """A connection of the caller's own. Raises ``JournalUnavailable``."""
    try:
        return psycopg.connect(
            conninfo(), autocommit=autocommit, prepare_threshold=0, connect_timeout=CONNECT_TIMEOUT,
            application_name="onward", keepalives_idle=15, keepalives_interval=5, keepalives_count=3,
            tcp_user_timeout=SILENCE_TIMEOUT * 1000,
        )  # fmt: skip
    except psycopg.OperationalError as error:
        raise JournalUnavailable(
            f"The journal's database does not answer: {_first_line(error)}"
        ) from error


def close() -> None:
    """Close this thread's connection; the next statement opens a new one."""
    link = _link
    if link.connection is not None and link.pid == os.getpid():
        link.connection.close()
    link.connection = None
    link.prepared = {}


def fetch(statement: LiteralString, params: Params) -> list[Row]:
    """Run one statement in its own transaction and return its rows.

    Deadlocks and serialization failures repeat the statement. A connection that breaks raises
    ``CommitUnknown``: the caller reads back what became of it, since a COMMIT may have gone through.
    """
    return _run(_rows, statement, params)


def fetch_one(statement: LiteralString, params: Params) -> Row | None:
    """The first row of a statement, or None. Like ``fetch`` otherwise."""
    return _run(_first_row, statement, params)


_Execute = Callable[[psycopg.Connection[Row], LiteralString, Params], T]


def _rows(link: psycopg.Connection[Row], statement: LiteralString, params: Params) -> list[Row]:
    cursor = link.execute(statement, params)
    # `cursor.description` would say the same, at 40 us for the 27 columns of a claim
    return cursor.fetchall() if cursor.pgresult and cursor.pgresult.nfields else []


def _first_row(
    link: psycopg.Connection[Row], statement: LiteralString, params: Params
) -> Row | None:
    if link.pgconn.transaction_status != _IDLE:
        rows = _rows(link, statement, params)
        return rows[0] if rows else None
    prepared = _link.prepared.get(statement)
    if prepared is None:
        prepared = _link.prepared[statement] = Prepared(link, statement)
    return prepared.first(params)


def _run(execute: _Execute[T], statement: LiteralString, params: Params) -> T:
    params = redact_params(params)
    if _lender is None:
        return _repeated(execute, statement, params)
    with _borrowed(_lender):
        return _repeated(execute, statement, params)


def _repeated(execute: _Execute[T], statement: LiteralString, params: Params) -> T:
    for attempt in range(_REPEATS):
        link = connection()
        try:
            if armed_commit():
                kill_after_sending(link, statement, params)
            return execute(link, statement, params)
        except _REPEATABLE as error:
            _give_up_or_go_on(link, attempt, error)
            time.sleep(random.uniform(0, 0.01 * 2**attempt))  # noqa: S311 - jitter only
        except psycopg.OperationalError as error:
            close()
            raise _translate(error) from error
        except psycopg.Error:
            raise
        except BaseException:
            close()  # a time limit or a shutdown cut in: what the server answers next is not ours to read
            raise
    raise AssertionError("unreachable")


@contextmanager
def transaction() -> Iterator[psycopg.Connection[Row]]:
    """Several statements that hold together. Rows are locked in the order live (children first), run."""
    with _borrowed(_lender) if _lender else nullcontext(), _transaction() as link:
        yield link


@contextmanager
def _transaction() -> Iterator[psycopg.Connection[Row]]:
    link = connection()
    try:
        with link.transaction():
            yield link
    except _REPEATABLE as error:
        raise _rolled_back(error) from error
    except psycopg.OperationalError as error:
        close()
        raise _translate(error) from error


@contextmanager
def joining(other: psycopg.Connection[Row]) -> Iterator[None]:
    """This thread's statements become part of the transaction open on ``other``, which is committed at the end.

    An exception leaves it uncommitted. ``RolledBack``: Postgres undid all of it. ``CommitUnknown``: the
    connection broke, at the COMMIT or before it.
    """
    kept = _link.connection, _link.pid
    _link.connection, _link.pid, _link.joined = other, os.getpid(), True
    try:
        other.execute(f"SET LOCAL idle_in_transaction_session_timeout = '{_COMMIT_PAUSE}s'")
        yield
        other.commit()
    except (*_REPEATABLE, pg.IdleInTransactionSessionTimeout) as error:
        raise _rolled_back(error) from error
    except psycopg.OperationalError as error:
        raise _translate(error) from error
    finally:
        (_link.connection, _link.pid), _link.joined = kept, False


def _give_up_or_go_on(
    link: psycopg.Connection[Row], attempt: int, error: psycopg.OperationalError
) -> None:
    # A deadlock aborts the whole transaction: one statement of it cannot be repeated alone.
    if link.info.transaction_status != _IDLE:
        raise error
    if attempt == _REPEATS - 1:
        raise _rolled_back(error) from error


def _rolled_back(error: psycopg.Error) -> RolledBack:
    return RolledBack(f"The journal rolled back, to be tried again: {_first_line(error)}")


def _translate(error: psycopg.OperationalError) -> JournalUnavailable:
    """What became of the statement: unknown when the connection was open, nothing when there was none."""
    return CommitUnknown(f"The connection to the journal broke: {_first_line(error)}")


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
