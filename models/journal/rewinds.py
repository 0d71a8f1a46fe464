"""The journal went back in time: a restore, or a fail-over that lost commits.

What it says did not happen may have happened in the time that is lost. A rewind is declared once, by a
person or by the watch, and from then on every run that is older than its declaration looks before it
sends for the first time (``effects.intend``).

It is noticed by a pulse: a count that the journal keeps and its broker remembers. A journal behind what the
broker remembers has lost commits; one on another server or timeline may have.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString

import psycopg

from models import database
from models.ids import check_identifier, new_nonce
from models.journal.errors import Refused
from models.journal.runs import MAX_PROSE
from models.messages import printable, shorten

_log = logging.getLogger("onward.rewind")
_PULSE_LOCK = 0x5055_4C53  #: any fixed number of ours


@dataclass(frozen=True, slots=True)
class Rewind:
    """A moment to which the journal went back, and how many unfinished runs are older than this."""

    rewind_id: int
    rewound_to: datetime
    declared_at: datetime
    actor: str
    reason: str
    runs: int


@dataclass(frozen=True, slots=True)
class Server:
    """The database server behind the journal. Empty where it does not say who it is."""

    system_id: str = ""
    timeline: int = 0


@dataclass(frozen=True, slots=True)
class Pulse:
    """The journal's own last beat: everything that was committed before it is there."""

    beat: int
    server: Server
    at: datetime


#: Later than every run there is, though the clock of the server that made it may have been ahead: none of
#: them may count as younger than the declaration.
_DECLARE: LiteralString = """
WITH made AS (
    INSERT INTO rewind (rewound_to, declared_at, actor, reason)
    SELECT %(rewound_to)s, greatest(onward_now(), (
               SELECT max(created_at) + interval '1 microsecond' FROM run
               WHERE created_at < onward_now() + interval '1 hour')),
           %(actor)s, %(reason)s
    WHERE %(rewound_to)s::timestamptz <= onward_now()
    RETURNING *
), alive AS (
    SELECT r.run_id FROM run r, made WHERE r.state NOT IN ('completed', 'cancelled', 'compensated')
), told AS (
    INSERT INTO event (run_id, kind, detail, actor)
    SELECT alive.run_id, 'journal_rewound', 'the journal went back to ' || made.rewound_to || ': '
           || made.reason || '; what may have been sent since is asked for before it is sent', made.actor
    FROM alive, made
)
SELECT rewind_id, rewound_to, declared_at, actor, reason, (SELECT count(*) FROM alive) FROM made"""

_LAST: LiteralString = (
    "SELECT name, beat, system_id, timeline, at FROM pulse ORDER BY at DESC LIMIT 1"
)


def declare(rewound_to: datetime, *, actor: str, reason: str) -> Rewind:
    """Note that the journal went back to this moment. Raises ``Refused`` when it lies in the future."""
    if rewound_to.tzinfo is None:
        raise Refused(
            f"{rewound_to.isoformat()} has no time zone, so it could be any of 26 hours: nothing was declared. "
            "Add one, such as Z or +02:00."
        )
    params = {
        "rewound_to": rewound_to, "actor": check_identifier("by", actor),
        "reason": shorten(printable(reason), limit=MAX_PROSE),
    }  # fmt: skip
    row = database.fetch_one(_DECLARE, params)
    if row is None:
        raise Refused(
            f"{rewound_to.isoformat()} is in the future by the journal's clock: nothing was declared. A "
            "rewind is declared with the moment of the backup that was restored."
        )
    return Rewind(*row)


def declare_seen(rewound_to: datetime, *, reason: str) -> Rewind | None:
    """The same for a rewind that showed itself; a server whose clock is behind is no ground to refuse."""
    row = database.fetch_one("SELECT least(%(at)s::timestamptz, onward_now())", {"at": rewound_to})
    return declare(row[0], actor="onward", reason=reason) if row else None


def list_rewinds() -> list[Rewind]:
    """Every rewind, newest first, with the unfinished runs that are older."""
    rows = database.fetch(
        """
        SELECT w.rewind_id, w.rewound_to, w.declared_at, w.actor, w.reason,
               (SELECT count(*) FROM run r WHERE r.created_at < w.declared_at
                AND r.state NOT IN ('completed', 'cancelled', 'compensated'))
        FROM rewind w ORDER BY w.rewind_id DESC""",
        {},
    )
    return [Rewind(*row) for row in rows]


def unseen_since(run_id: str, step_key: str) -> datetime | None:
    """The moment since when a step may have run without a trace; None when it cannot have.

    A person who has sent it back since the rewind was declared has looked.
    """
    row = database.fetch_one(
        """
        SELECT min(w.rewound_to) FROM rewind w JOIN run r ON r.run_id = %(run_id)s
        WHERE w.declared_at > r.created_at AND NOT EXISTS (
            SELECT 1 FROM event v WHERE v.run_id = %(run_id)s AND v.kind = 'step_sent_back'
            AND v.step_key = %(step_key)s AND v.at > w.declared_at)""",
        {"run_id": run_id, "step_key": step_key},
    )
    return row[0] if row else None


def server() -> Server:
    """Who answers. A promoted standby writes on its new timeline at once, and its control file lags."""
    try:
        row = database.fetch_one(
            "SELECT system_identifier::text,"
            " ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint"
            " FROM pg_control_system()",
            {},
        )
    except (psycopg.ProgrammingError, psycopg.NotSupportedError) as error:
        _log.info("The database server does not say who it is: %s", error)
        return Server()
    return Server(row[0], row[1]) if row else Server()


def journal_name() -> str | None:
    """The name by which the broker remembers this journal; None before its first beat."""
    row = database.fetch_one(_LAST, {})
    return row[0] if row else None


@contextmanager
def pulse_held() -> Iterator[Pulse | None]:
    """The journal's last beat, in a transaction that nobody else beats in. None: there has been none."""
    with database.transaction() as link:
        link.execute("SELECT pg_advisory_xact_lock(%(lock)s)", {"lock": _PULSE_LOCK})
        row = database.fetch_one(_LAST, {})
        yield Pulse(row[1], Server(row[2], row[3]), row[4]) if row else None


def raise_pulse(now: Server, *, above: int = 0) -> tuple[str, int]:
    """Beat once, in the transaction of ``pulse_held``; returns the journal's name and the beat."""
    row = database.fetch_one(_LAST, {})
    name, last = (row[0], row[1]) if row else (f"journal-{new_nonce()}", 0)
    beat = max(last, above) + 1
    database.fetch(
        "INSERT INTO pulse (name, beat, system_id, timeline)"
        " VALUES (%(name)s, %(beat)s, %(system_id)s, %(timeline)s) ON CONFLICT (name) DO UPDATE"
        " SET beat = excluded.beat, system_id = excluded.system_id, timeline = excluded.timeline,"
        " at = onward_now()",
        {"name": name, "beat": beat, "system_id": now.system_id, "timeline": now.timeline},
    )
    return name, beat
