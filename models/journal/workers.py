"""Who is alive: one row per start of a worker, and one per periodic job."""

from collections.abc import Sequence
from dataclasses import dataclass

from models import database


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStart:
    """One start of a worker process."""

    start_id: str
    name: str
    host: str
    pid: int
    pid_started: int
    pid_space: str
    queues: Sequence[str]
    concurrency: int


def register(start: WorkerStart) -> None:
    """Announce a start, or say again that it is alive."""
    database.fetch(
        """
        INSERT INTO worker (start_id, name, host, pid, pid_started, pid_space, queues, concurrency)
        VALUES (%(start_id)s, %(name)s, %(host)s, %(pid)s, %(pid_started)s, %(pid_space)s, %(queues)s,
                %(concurrency)s)
        ON CONFLICT (start_id) DO UPDATE SET seen_at = onward_now(), stopped_at = NULL""",
        {
            "start_id": start.start_id, "name": start.name, "host": start.host, "pid": start.pid,
            "pid_started": start.pid_started, "pid_space": start.pid_space,
            "queues": list(start.queues), "concurrency": start.concurrency,
        },
    )  # fmt: skip


def seen(start_id: str) -> None:
    """The worker is alive."""
    database.fetch(
        "UPDATE worker SET seen_at = onward_now() WHERE start_id = %(id)s", {"id": start_id}
    )


def stopped(start_id: str) -> None:
    """The worker said goodbye, or was found gone."""
    database.fetch(
        "UPDATE worker SET stopped_at = onward_now() WHERE start_id = %(id)s AND stopped_at IS NULL",
        {"id": start_id},
    )


def holds_steps(start_id: str) -> bool:
    """Whether some process of this start has a step."""
    row = database.fetch_one(
        "SELECT EXISTS (SELECT 1 FROM live WHERE starts_with(owner, %(id)s || '.'))",
        {"id": start_id},
    )
    return bool(row and row[0])


def earlier_starts(name: str, *, start_id: str, pid_space: str) -> list[tuple[str, int, int]]:
    """(start id, pid, pid start time) of earlier starts of this name whose pids mean something here."""
    rows = database.fetch(
        "SELECT start_id, pid, pid_started FROM worker WHERE name = %(name)s AND start_id <> %(start_id)s"
        " AND pid_space = %(pid_space)s AND stopped_at IS NULL",
        {"name": name, "start_id": start_id, "pid_space": pid_space},
    )
    return [(row[0], row[1], row[2]) for row in rows]


def begin_pass(name: str) -> None:
    """A periodic job starts."""
    database.fetch(
        "INSERT INTO pass (name, started_at) VALUES (%(name)s, onward_now())"
        " ON CONFLICT (name) DO UPDATE SET started_at = onward_now()",
        {"name": name},
    )


def end_pass(name: str, *, seconds: float, detail: str) -> None:
    """A periodic job is complete: its age counts from here."""
    database.fetch(
        "UPDATE pass SET completed_at = onward_now(), seconds = %(seconds)s, detail = %(detail)s"
        " WHERE name = %(name)s",
        {"name": name, "seconds": seconds, "detail": detail},
    )


def alone(lock: int) -> bool:
    """Whether this connection now holds the job's advisory lock; it ends with the connection."""
    row = database.fetch_one("SELECT pg_try_advisory_lock(%(lock)s)", {"lock": lock})
    return bool(row and row[0])


def release(lock: int) -> None:
    """Let the next pass run."""
    database.fetch("SELECT pg_advisory_unlock(%(lock)s)", {"lock": lock})
