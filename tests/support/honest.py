"""Workers that record what the engine would, and journals that were tampered with."""

from typing import LiteralString

from models.journal import steps
from models.journal.values import Claimed, Completed, Output
from tasks.inputs import digests
from tests.support.journal import Journal
from tests.support.toys import Worker


class HonestWorker(Worker):
    """Records the digests that the engine would."""

    def complete(self, claimed: Claimed, text: str = "null") -> Completed:
        output = Output(text, *digests(claimed, text))
        return steps.complete(claimed, output, worker=self.name, successor=claimed.successor)


def tamper(journal: Journal, statement: LiteralString, *params: object) -> None:
    """Change what the database itself refuses to change."""
    with journal.connect() as link:
        link.execute("SET session_replication_role = replica")
        assert link.execute(statement, params).rowcount == 1
