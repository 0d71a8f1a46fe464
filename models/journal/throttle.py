"""Rate limits over the whole cluster: one row a limit, which hands out evenly spaced places."""

from models import database


def take_place(name: str, *, per_second: float, at_most: float) -> float:
    """Seconds until the place that was taken. More than ``at_most``: that long is the queue, none was taken.

    A place is never taken by somebody who will not wait for it, so none is lost while others queue.
    """
    row = database.fetch_one(
        """
        WITH place AS (
            INSERT INTO throttle AS t (name, next_at)
            VALUES (%(name)s, onward_now() + make_interval(secs => %(interval)s))
            ON CONFLICT (name) DO UPDATE
            SET next_at = greatest(t.next_at, onward_now()) + make_interval(secs => %(interval)s)
            WHERE t.next_at <= onward_now() + make_interval(secs => %(at_most)s)
            RETURNING next_at - make_interval(secs => %(interval)s) AS at
        )
        SELECT extract(epoch FROM (SELECT at FROM place) - onward_now()),
               extract(epoch FROM (SELECT next_at FROM throttle WHERE name = %(name)s) - onward_now())""",
        {"name": name, "interval": 1.0 / per_second, "at_most": at_most},
    )
    taken, queue = row if row else (None, None)
    if taken is not None:
        return max(0.0, min(float(taken), at_most))
    return max(float(queue or 0.0), at_most + 1.0)
