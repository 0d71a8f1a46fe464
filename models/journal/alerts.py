"""Which blocks have not been told to anyone yet. The place of the last one told is kept in ``pass``."""

from dataclasses import dataclass
from datetime import datetime

from models import database

_NAME = "alerts"
SETTLING = 3.0  #: seconds


@dataclass(frozen=True, slots=True)
class BlockedRun:
    """A run that stopped until a person acts."""

    event_id: int
    run_id: str
    workflow: str
    step_key: str | None
    detail: str
    at: datetime


def begin() -> None:
    """From now on: what was blocked before anyone listened is history, not news."""
    database.fetch(
        "INSERT INTO pass (name, started_at, completed_at, detail)"
        " SELECT %(name)s, onward_now(), onward_now(), coalesce(max(event_id), 0)::text FROM event"
        " ON CONFLICT DO NOTHING",
        {"name": _NAME},
    )


def untold(*, limit: int) -> list[BlockedRun]:
    """Blocks newer than the last one told, oldest first.

    Ids are drawn before the commit, so a younger event may be visible before an older one. A block's
    transaction takes milliseconds: what is ``SETTLING`` seconds old has no elder still to come.
    """
    rows = database.fetch(
        "SELECT e.event_id, e.run_id, r.workflow, e.step_key, e.detail, e.at FROM event e"
        " JOIN run r ON r.run_id = e.run_id"
        " WHERE e.kind = 'run_blocked'"
        " AND e.event_id > (SELECT detail::bigint FROM pass WHERE name = %(name)s)"
        " AND e.at <= onward_now() - make_interval(secs => %(settling)s)"
        " ORDER BY e.event_id LIMIT %(limit)s",
        {"name": _NAME, "limit": limit, "settling": SETTLING},
    )
    return [BlockedRun(*row) for row in rows]


def told(event_id: int) -> None:
    """Everything up to this event was delivered."""
    database.fetch(
        "UPDATE pass SET detail = %(event_id)s, completed_at = onward_now()"
        " WHERE name = %(name)s AND detail::bigint < %(event_id)s::bigint",
        {"name": _NAME, "event_id": str(event_id)},
    )
