"""What a stretch of work costs the database, in counts that do not depend on the machine."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from models import database
from tests.support.journal import Journal


@dataclass
class Spent:
    """``statements``: transactions of this thread's connection, in autocommit one per statement.

    ``durable``: transactions that got an id, which is every one that wrote, of the whole server.
    """

    statements: int = 0
    durable: int = 0


@contextmanager
def meter(journal: Journal) -> Iterator[Spent]:
    """Count what happens inside the block; complete when it has ended."""
    spent = Spent()
    before = _committed(journal), _assigned(journal)
    yield spent
    after = _committed(journal), _assigned(journal)
    own = 3  # the flushes and the look at the counters themselves
    spent.statements = after[0] - before[0] - own
    spent.durable = after[1] - before[1]


def _committed(journal: Journal) -> int:
    # A backend reports its counts when it is idle for a while, or when it is told to.
    for connection in (database.connection(), journal.look):
        connection.execute("SELECT pg_stat_force_next_flush()")
    found = journal.one(
        "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
    )
    return int(found)


def _assigned(journal: Journal) -> int:
    return int(journal.one("SELECT pg_snapshot_xmax(pg_current_snapshot())::text"))
