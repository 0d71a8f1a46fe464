"""``ctx.session``: SQL of a step's own that commits together with its completion, or not at all.

    ctx.session  ->  the body's statements  ->  completion, COMMIT

The completion runs on the session's own connection, in the transaction that the body's statements are in.
Whatever keeps it from being committed (an error, a time limit, a lost lease, a kill) undoes them as well, and
a COMMIT that was not answered is read back. It is never written without them: a transaction that is gone is
made again by another attempt. Steps that do not open a session pay nothing, not even SQLAlchemy's import.
"""

import hashlib
import os
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self, TypeVar

import psycopg
from billiard.exceptions import SoftTimeLimitExceeded
from psycopg import errors as pg

from models import database
from models.journal.errors import CommitUnknown, RolledBack
from models.journal.values import Claimed, Completed
from models.messages import describe
from models.settings import settings
from tasks import patience
from tasks.errors import CallRefused

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine
    from sqlalchemy.orm import Session

_BARRED = (
    "its session (ctx.session) is open, and what is done there commits with the step, which a call cannot; "
    "make calls before the session is first used, or in a step of their own"
)

#: Errors of a statement by which the whole transaction is gone, through no fault of the step.
_UNDOING = (pg.SerializationFailure, pg.DeadlockDetected, pg.IdleInTransactionSessionTimeout)

#: Sessions of earlier attempts of the step may hold locks that this one needs, and will not complete any more.
_DISPLACE = """
SELECT set_config('application_name', %(mark)s, false), (
    SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE %(again)s AND application_name = %(mark)s AND datname = current_database()
      AND pid <> pg_backend_pid())"""


T = TypeVar("T")


class Transaction:
    """The transaction in which one attempt completes, if its body opens it. Undone unless ``complete`` ends it."""

    def __init__(self, claimed: Claimed, *, bar: Callable[[str], None]) -> None:
        self._claimed, self._bar = claimed, bar
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._session: Session | None = None
        self._is_over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    def session(self) -> "Session":
        """The body's session, opened when it is first asked for. Calls of tools are refused from then on."""
        with self._lock:
            if self._is_over:
                raise CallRefused(
                    f"The session of step {self._claimed.step_key!r} in run {self._claimed.run_id} is over: "
                    "it ends with the body."
                )
            if self._session is None:
                self._session = self._open()
            return self._session

    def run(self, body: Callable[[], T]) -> T:
        """The body's value. What its session still has in memory is written at the end, as part of it.

        Raises ``RolledBack`` for an error of Postgres by which the whole transaction is gone.
        """
        try:
            value = body()
            self._end_body()
        except Exception as error:
            if self.is_open and _is_undone(error):
                raise RolledBack(self._gone(error)) from error
            raise
        return value

    def discard(self) -> None:
        """Undo everything, if it was not committed."""
        with self._lock:
            self._is_over = True
            if self._session is not None:
                self._session.invalidate()
            if self._connection is not None:
                self._connection.invalidate()
                self._connection.close()
            self._session = self._connection = None

    def complete(
        self, write: Callable[[], Completed], *, confirmed: Callable[[], Completed | None]
    ) -> Completed:
        """Write the completion in this transaction and commit both.

        ``confirmed`` reads back what an unanswered COMMIT led to. Raises ``RolledBack`` when nothing of it
        was committed: the body has to run again, which is another attempt's business.
        """
        assert self._connection is not None  # noqa: S101 - asked only while it is open
        try:
            with database.joining(_raw(self._connection)):
                return write()
        except (CommitUnknown, SoftTimeLimitExceeded) as error:
            self.discard()
            found = patience.recorded(confirmed, confirmed=lambda: None)
            if found is None:
                raise RolledBack(self._gone(error)) from error
            return found
        finally:
            self.discard()

    def _open(self) -> "Session":
        from sqlalchemy.exc import OperationalError  # noqa: PLC0415 - most steps need no SQLAlchemy

        self._bar(_BARRED)
        try:
            self._connection = _engine(os.getpid(), settings().database_url).connect()
            self._connection.begin()
            mark = hashlib.sha256(f"{self._claimed.run_id}:{self._claimed.step_key}".encode())
            again = self._claimed.attempt > 1
            _raw(self._connection).execute(
                _DISPLACE, {"mark": f"onward-step {mark.hexdigest()[:32]}", "again": again}
            )
        except OperationalError as error:
            raise CommitUnknown(f"The step's session could not be opened: {error.orig}") from error
        return _session(self._connection)

    def _end_body(self) -> None:
        with self._lock:
            self._is_over = True
            if self._session is not None and self._connection is not None:
                self._check(self._connection)
                self._session.commit()
                _close(self._session)

    def _gone(self, error: BaseException) -> str:
        return (
            f"The transaction of step {self._claimed.step_key!r} in run {self._claimed.run_id} was undone by the "
            f"database, and nothing of it happened: {describe(getattr(error, 'orig', None) or error)}"
        )

    def _check(self, connection: "Connection") -> None:
        """Whether the body swallowed the loss of its connection, or has ended the transaction on its own."""
        if connection.invalidated:
            raise RolledBack(self._gone(ConnectionError("its connection broke")))
        status = _raw(connection).info.transaction_status
        if status == psycopg.pq.TransactionStatus.IDLE or not connection.in_transaction():
            raise CallRefused(
                f"Step {self._claimed.step_key!r} of run {self._claimed.run_id} ended the transaction of its session "
                "itself: what it wrote until then stands whatever becomes of the step. Leave COMMIT and ROLLBACK to "
                "the step's completion; session.begin_nested() undoes a part."
            )


@lru_cache(maxsize=2)
def _engine(_pid: int, url: str) -> "Engine":
    """Of this process: it pools nothing, and nothing of it is carried over a fork."""
    from sqlalchemy import NullPool, create_engine  # noqa: PLC0415 - most steps need no SQLAlchemy

    return create_engine(
        url, poolclass=NullPool, creator=lambda: database.connect(autocommit=False)
    )


def _session(connection: "Connection") -> "Session":
    from sqlalchemy.orm import Session  # noqa: PLC0415 - most steps need no SQLAlchemy

    class StepSession(Session):
        """What the body commits or rolls back is a savepoint; the transaction is the step's."""

        def close(self) -> None:
            """Does nothing, so that ``with ctx.session as session`` is fine: the body's end closes it."""

    return StepSession(
        connection,
        join_transaction_mode="create_savepoint",
        close_resets_only=False,
        expire_on_commit=False,
    )


def _is_undone(error: Exception) -> bool:
    from sqlalchemy.exc import DBAPIError  # noqa: PLC0415 - it is imported by now

    if not isinstance(error, DBAPIError):
        return False
    return error.connection_invalidated or isinstance(error.orig, _UNDOING)


def _close(session: "Session") -> None:
    from sqlalchemy.orm import Session  # noqa: PLC0415 - it is imported by now

    Session.close(session)


def _raw(connection: "Connection") -> "psycopg.Connection[tuple[Any, ...]]":
    raw = connection.connection.driver_connection
    assert isinstance(raw, psycopg.Connection)  # noqa: S101 - the only driver there is
    return raw
