"""Which pending steps need a message now. Handing a row out stamps it, so two publishers never share one.

A message may be lost, so a row whose message nobody claimed within its grace is handed out again, with
back-off. A queue gets at most a window of unclaimed messages: the rest waits here, where priority and
fairness between batches still count, instead of in the broker's order of arrival.
"""

from collections.abc import Sequence

from models import database
from models.journal.values import Wakeup
from models.settings import settings

#: Per queue: how many messages may be out, less how many are. Then the best-placed rows up to that. Within
#: a batch, runs that have begun go before those that have not: a rescued step would otherwise wait behind
#: the first steps of a whole backlog, which have been due for longer. And the longest due goes first: by
#: ``publish_at`` a row whose message was lost would go behind all that were never published.
_DUE = """
WITH open_queues AS (
    SELECT queue, %(window)s - count(*) FILTER (WHERE publications > 0 AND publish_at > onward_now()) AS room
    FROM live WHERE state = 'pending' AND missing = 0 GROUP BY queue
), candidates AS (
    SELECT l.run_id, l.branch, l.revision, l.queue,
           row_number() OVER (PARTITION BY l.queue ORDER BY l.priority DESC, l.turn, l.due_at) AS place
    FROM (
        SELECT w.*, row_number() OVER (
            PARTITION BY w.queue, w.priority, w.batch_id
            ORDER BY w.prev_key IS NULL AND w.attempt = 0, w.due_at) AS turn
        FROM live w JOIN run r ON r.run_id = w.run_id AND r.hold IS NULL
        WHERE w.state = 'pending' AND w.missing = 0 AND w.due_at <= onward_now()
          AND w.publish_at <= onward_now()
          AND (%(run_id)s::text IS NULL OR w.run_id = %(run_id)s)
    ) l
), chosen AS (
    SELECT c.run_id, c.branch, c.place FROM candidates c JOIN open_queues o USING (queue)
    JOIN live l ON l.run_id = c.run_id AND l.branch = c.branch AND l.revision = c.revision
    WHERE c.place <= o.room ORDER BY c.place LIMIT %(limit)s FOR UPDATE OF l SKIP LOCKED
), handed AS (
    UPDATE live l SET publications = l.publications + 1, revision = l.revision + 1,
        publish_at = onward_now()
            + make_interval(secs => least(%(grace)s * 2 ^ least(l.publications, 20), %(longest)s))
    FROM chosen c
    WHERE l.run_id = c.run_id AND l.branch = c.branch
    RETURNING l.run_id, l.branch, l.step_key, l.queue, l.attempt, c.place
)
SELECT h.run_id, h.branch, h.step_key, p.step_name, h.queue, h.attempt + 1
FROM handed h JOIN plan p ON p.run_id = h.run_id AND p.step_key = h.step_key
ORDER BY h.place"""


def take_due(*, limit: int, run_id: str | None = None) -> list[Wakeup]:
    """Hand out due, unpublished steps in the order they should be sent."""
    rows = database.fetch(
        _DUE,
        {
            "limit": limit, "run_id": run_id, "window": settings().publish_window,
            "grace": settings().publish_grace, "longest": settings().publish_backoff_max,
        },
    )  # fmt: skip
    return [Wakeup(*row) for row in rows]


def give_back(wakeups: Sequence[Wakeup], *, after: float) -> None:
    """These could not be sent: they are due again ``after`` seconds from now, not after their back-off."""
    database.fetch(
        """
        UPDATE live l SET publications = greatest(0, l.publications - 1), revision = l.revision + 1,
            publish_at = onward_now() + make_interval(secs => %(after)s)
        FROM unnest(%(run_ids)s::text[], %(branches)s::text[], %(step_keys)s::text[])
            AS unsent(run_id, branch, step_key)
        WHERE l.run_id = unsent.run_id AND l.branch = unsent.branch AND l.step_key = unsent.step_key
          AND l.state = 'pending'""",
        {
            "run_ids": [wakeup.run_id for wakeup in wakeups],
            "branches": [wakeup.branch for wakeup in wakeups],
            "step_keys": [wakeup.step_key for wakeup in wakeups],
            "after": after,
        },
    )


def count_duplicate(run_id: str) -> None:
    """A message came for work already claimed or done, and was dropped."""
    database.fetch(
        "UPDATE run SET duplicates = duplicates + 1 WHERE run_id = %(run_id)s", {"run_id": run_id}
    )
