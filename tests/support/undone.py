"""A journal with a stopped clock, the shelf, and a worker that undoes what is due, in this process."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from celery import Celery

from models.journal import compensations, rescue
from recovery.compensate import compensate
from recovery.reconcile import reconcile
from tests.support.journal import Journal
from tests.support.shelf import SHELF

_lookers = count(1)


class Scene:
    """What a test of compensation acts on."""

    def __init__(self, journal: Journal, app: Celery) -> None:
        self.journal, self.app = journal, app

    def go(self, run_id: str, *, after: float = 1.0) -> str:
        """Everything that is due ``after`` seconds from now; the run's state then."""
        self.journal.advance(after)
        rescue.cancel_branches(rescue.cancellable(limit=100))
        compensations.reopen_resolved()
        self.undo_due()
        return str(self.journal.run(run_id)["state"])

    def undo_due(self) -> None:
        for run_id, _ in compensations.take_due(limit=10):
            compensate(self.app, run_id)

    def look(self, run_id: str, key: str) -> None:
        """One look-up of an effect in doubt."""
        reconcile(self.app, run_id, key, looker=f"looker.{next(_lookers)}")

    def compensation(self, run_id: str) -> dict[str, Any]:
        (row,) = self.journal.rows("SELECT * FROM compensation WHERE run_id = %s", run_id)
        return row

    def undos(self, run_id: str) -> dict[str, tuple[str, str | None]]:
        """(state, source) of every undo, by the request of what it undoes."""
        found = self.journal.rows(
            "SELECT e.state, e.source, o.request FROM effects e"
            " JOIN effect_settlement o ON o.key = e.undoes WHERE e.run_id = %s ORDER BY e.position",
            run_id,
        )
        return {row["request"].strip('"'): (row["state"], row["source"]) for row in found}


@contextmanager
def a_scene(journal: Journal, broker_url: str) -> Iterator[Scene]:
    SHELF.clear()
    journal.freeze()
    with Celery("onward-tests", broker=broker_url) as app:
        yield Scene(journal, app)
    SHELF.clear()
