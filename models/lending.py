"""Connections that the threads of one process borrow, so that a hundred that wait for a model hold none.

A thread keeps what it borrowed for one statement or one transaction. What needs a connection whoever else
waits, the heartbeat for one, keeps its own (``database.keep_own``).
"""

import threading
from dataclasses import dataclass, field
from typing import Any

import psycopg

from models.prepared import Prepared

WAIT_LIMIT = 30.0  #: seconds; statements take milliseconds, so that nobody waits this long for long


@dataclass(slots=True)
class Lent:
    """A connection with what was prepared on it."""

    connection: psycopg.Connection[tuple[Any, ...]] | None = None
    prepared: dict[str, Prepared] = field(default_factory=dict)


class Lender:
    """At most so many connections, those used last first."""

    def __init__(self, size: int) -> None:
        self._free = threading.BoundedSemaphore(size)
        self._lock = threading.Lock()
        self._idle: list[Lent] = []

    def borrow(self) -> Lent | None:
        """One of them, or an empty one to be opened; None: all of them were taken for too long."""
        if not self._free.acquire(timeout=WAIT_LIMIT):
            return None
        with self._lock:
            return self._idle.pop() if self._idle else Lent()

    def give_back(self, lent: Lent) -> None:
        """A connection that broke took the idle ones with it, as a restarted server does."""
        idle = psycopg.pq.TransactionStatus.IDLE
        connection = lent.connection
        with self._lock:
            if connection is None or connection.closed:
                broken, self._idle = self._idle, []
            else:
                broken = []
                if connection.info.transaction_status == idle:
                    self._idle.append(lent)
                else:
                    broken = [lent]
        self._free.release()
        for one in broken:
            if one.connection is not None:
                one.connection.close()
