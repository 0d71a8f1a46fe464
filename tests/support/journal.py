"""The journal as a test looks at it from outside, over a connection of its own."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from models import database
from models.journal import losing
from models.journal.values import BranchRef
from models.plan import ROOT_BRANCH
from tests.support.toys import (
    FAILURE,
    Worker,
    at,
    blind,
    output,
    paced,
    row_of,
    submit,
    submit_run,
    work,
)
from tests.support.waiting import wait_until

__all__ = [
    "FAILURE", "TABLES", "Blocker", "Journal", "Worker", "at", "blind", "output", "paced", "row_of",
    "submit", "submit_run", "work", "wrong_refs",
]  # fmt: skip

TABLES = (
    "run", "live", "plan", "step", "attempt", "event", "throttle", "effect", "effect_settlement",
    "effect_evidence", "compensation", "recorded_call", "call_verdict", "call_reset", "wallet", "hold", "spend",
    "endpoint", "artifact", "artifact_use",
)  # fmt: skip


class Journal:
    """One test's database, looked at over a connection of the test's own."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.conninfo = url.replace("+psycopg", "", 1)
        self.look = self.connect()

    def connect(self) -> "psycopg.Connection[dict[str, Any]]":
        """Another session, in autocommit."""
        return psycopg.connect(self.conninfo, autocommit=True, row_factory=dict_row)

    def rows(self, statement: LiteralString, *params: object) -> list[dict[str, Any]]:
        return self.look.execute(statement, params).fetchall()

    def one(self, statement: LiteralString, *params: object) -> Any:
        """The first column of the first row."""
        (row,) = self.rows(statement, *params)
        return next(iter(row.values()))

    def live(self, run_id: str, branch: str = ROOT_BRANCH) -> dict[str, Any]:
        (row,) = self.rows("SELECT * FROM live WHERE run_id = %s AND branch = %s", run_id, branch)
        return row

    def branches(self, run_id: str) -> set[str]:
        found = self.rows("SELECT branch FROM live WHERE run_id = %s", run_id)
        return {row["branch"] for row in found}

    def run(self, run_id: str) -> dict[str, Any]:
        (row,) = self.rows("SELECT * FROM run WHERE run_id = %s", run_id)
        return row

    def step(self, run_id: str, step_key: str) -> dict[str, Any] | None:
        found = self.rows(
            "SELECT * FROM step WHERE run_id = %s AND step_key = %s", run_id, step_key
        )
        return found[0] if found else None

    def states(self, run_id: str) -> dict[str, str]:
        found = self.rows("SELECT step_key, state FROM steps WHERE run_id = %s", run_id)
        return {row["step_key"]: row["state"] for row in found}

    def events(self, run_id: str) -> list[str]:
        found = self.rows("SELECT kind FROM event WHERE run_id = %s ORDER BY event_id", run_id)
        return [row["kind"] for row in found]

    def attempts(self, run_id: str) -> list[tuple[str, int, str]]:
        found = self.rows(
            "SELECT step_key, token, outcome FROM attempt WHERE run_id = %s ORDER BY ended_at, token",
            run_id,
        )
        return [(row["step_key"], row["token"], row["outcome"]) for row in found]

    def ref(self, run_id: str, branch: str = ROOT_BRANCH) -> BranchRef:
        return BranchRef(run_id, branch, self.live(run_id, branch)["revision"])

    def image(self) -> dict[str, list[str]]:
        """Every row there is, to show that something wrote nothing."""
        return {
            table: sorted(
                row["row"]
                for row in self.look.execute(
                    sql.SQL("SELECT t::text AS row FROM {} t").format(sql.Identifier(table))
                )
            )
            for table in TABLES
        }

    def make(self, run_id: str, branch: str = ROOT_BRANCH, **values: Any) -> None:
        """Put a live row into a state that would take a test long to reach."""
        names = sql.SQL(", ").join(
            sql.SQL("{} = {}").format(sql.Identifier(name), sql.Literal(value))
            for name, value in values.items()
        )
        self.look.execute(
            sql.SQL(
                "UPDATE live SET {}, revision = revision + 1 WHERE run_id = {} AND branch = {}"
            ).format(names, sql.Literal(run_id), sql.Literal(branch))
        )

    def freeze(self) -> None:
        """Stop the journal's clock, for every connection opened from here on."""
        self._set_clock(self.one("SELECT clock_timestamp()::text"))

    def advance(self, seconds: float) -> None:
        """Move a stopped clock on."""
        self._set_clock(
            self.one("SELECT (onward_now() + make_interval(secs => %s))::text", seconds)
        )

    def _set_clock(self, at: str) -> None:
        name = sql.Identifier(self.look.info.dbname)
        self.look.execute(
            sql.SQL("ALTER DATABASE {} SET onward.now = {}").format(name, sql.Literal(at))
        )
        self.look.execute("SELECT set_config('onward.now', %s, false)", (at,))
        database.close()

    def lose(self, *, after: float = 31.0) -> int:
        """Let every lease run out, and have it noticed."""
        self.advance(after)
        return losing.expire(losing.expired(limit=1000))

    @contextmanager
    def holding(self, statement: LiteralString, *params: object) -> Iterator["Blocker"]:
        """A transaction that has executed this and does nothing more until it is released."""
        with psycopg.connect(self.conninfo) as other:
            other.execute(statement, params)
            yield Blocker(self, other)
            other.rollback()

    def deadlocks(self) -> int:
        """Deadlocks of this database, which backends report at the latest when they end."""
        database.close()
        wait_until(
            lambda: (
                not self.one(
                    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'onward'"
                    " AND datname = current_database()"
                )
            ),
            what="the backends of the verbs have ended",
        )
        return int(
            self.one("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        )


def wrong_refs(ref: BranchRef) -> list[BranchRef]:
    """What differs from a reference in one field."""
    return [
        replace(ref, run_id="run-none"),
        replace(ref, branch="0/1.0"),
        replace(ref, revision=ref.revision - 1),
        replace(ref, revision=ref.revision + 1),
    ]


class Blocker:
    """An open transaction that others run into."""

    def __init__(self, journal: Journal, connection: "psycopg.Connection[Any]") -> None:
        self._journal = journal
        self._connection = connection
        self.pid = connection.info.backend_pid

    @property
    def blocked(self) -> list[int]:
        """Backends that wait for a lock of this one."""
        found = self._journal.rows(
            "SELECT pid FROM pg_stat_activity WHERE %s = ANY(pg_blocking_pids(pid))", self.pid
        )
        return [row["pid"] for row in found]

    def wait_for(self, backends: int) -> None:
        """Wait until that many backends wait for a lock of this one."""
        wait_until(
            lambda: len(self.blocked) >= backends, what=f"{backends} backends wait for {self.pid}"
        )

    def release(self) -> None:
        self._connection.rollback()
