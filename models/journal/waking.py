"""Letting a step go on once an effect of it is resolved: by a look-up, a late answer or a person.

Both parts run in the transaction that resolves the effect:

    with waking.step_locked(run_id, branch):
        ...                                  # the guarded statement about the effect
        waking.go_on(run_id, branch, step_key)

The lock comes first and the statements after it see what others committed meanwhile. In one statement, two
effects of a step that are resolved at the same moment would each see the other in doubt, and nobody would
wake the step. Rows are locked in the order live, effect, compensation, run, as everywhere.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import LiteralString

from models import database


@contextmanager
def step_locked(run_id: str, branch: str) -> Iterator[None]:
    """A transaction in which nobody claims, expires or resolves anything of this branch."""
    with database.transaction() as link:
        link.execute(
            "SELECT 1 FROM live WHERE run_id = %(run_id)s AND branch = %(branch)s FOR NO KEY UPDATE",
            {"run_id": run_id, "branch": branch},
        )
        yield


def go_on(run_id: str, branch: str, step_key: str) -> None:
    """Let the step be decided again now, and unblock it when none of its effects needs a person.

    What is still in doubt of it is asked by that decision: a step is woken once too often rather than
    never. The run goes on when no other branch of it is blocked, and shows that branch's reason otherwise.
    A compensation that waits for what is resolved now is due as well; ``compensations.reopen_resolved``
    opens one that was stopped by it.
    """
    params = {"run_id": run_id, "branch": branch, "step_key": step_key}
    database.fetch(_WAKE, params)
    tell_doer(run_id)
    database.fetch("SELECT 1 FROM run WHERE run_id = %(run_id)s FOR NO KEY UPDATE", params)
    database.fetch(_UNBLOCK, params)


def tell_doer(run_id: str) -> None:
    """What is being undone waits for what is resolved now, or is stopped by it. Before the run is locked."""
    database.fetch(
        "UPDATE compensation SET due_at = onward_now(), revision = revision + 1"
        " WHERE run_id = %(run_id)s AND state = 'undoing'",
        {"run_id": run_id},
    )


#: A step that has failed, or will not run any more, keeps its state and loses the block.
_WAKE: LiteralString = """
UPDATE live l SET due_at = onward_now(), block_reason = CASE WHEN EXISTS (
        SELECT 1 FROM effect e WHERE e.run_id = l.run_id AND e.step_key = l.step_key
          AND e.undoes IS NULL AND e.state = 'unknown' AND e.person IS NOT NULL)
        THEN l.block_reason END,
    revision = l.revision + 1
WHERE l.run_id = %(run_id)s AND l.branch = %(branch)s AND l.step_key = %(step_key)s
  AND (l.state = 'unknown' AND l.block_reason IS NULL
       OR l.state <> 'running' AND l.block_reason IN ('unknown_effect', 'journal_rewound'))"""

#: After the run is locked: of two branches that go on at once, the later sees the earlier.
_UNBLOCK: LiteralString = """
UPDATE run r SET reason = stopped.block_reason, detail = stopped.error,
    state = CASE WHEN stopped.block_reason IS NOT NULL THEN 'blocked'
                 WHEN r.hold = 'compensate' THEN 'compensating'
                 WHEN r.started_at IS NULL THEN 'pending' ELSE 'running' END,
    revision = r.revision + 1
FROM (VALUES (1)) one LEFT JOIN LATERAL (
    SELECT l.block_reason, l.error FROM live l
    WHERE l.run_id = %(run_id)s AND l.block_reason IS NOT NULL ORDER BY l.branch LIMIT 1
) stopped ON true
WHERE r.run_id = %(run_id)s AND r.state = 'blocked' AND r.reason IN (
    'unknown_effect', 'journal_rewound', 'idempotency_conflict', 'unserialisable_output')"""
