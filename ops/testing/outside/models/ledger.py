"""What reached the models and what was billed, in SQLite with a full sync: it survives the service's own death."""

import json
import sqlite3
import threading
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

_NOW = "((julianday('now') - 2440587.5) * 86400.0)"  #: seconds; one clock for all that is compared

_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS call (
    id INTEGER PRIMARY KEY, kind TEXT NOT NULL, model TEXT NOT NULL, digest TEXT NOT NULL,
    text TEXT NOT NULL,          -- what the caller said, for the rules and for the test's eyes
    request TEXT NOT NULL, headers TEXT NOT NULL, stream INTEGER NOT NULL,
    at REAL NOT NULL DEFAULT ({_NOW}),
    outcome TEXT NOT NULL DEFAULT 'arrived', status INTEGER,
    not_before REAL,             -- the instant that a Retry-After named
    tokens_in INTEGER, tokens_out INTEGER, cost TEXT -- NULL until an answer was produced
);
CREATE TABLE IF NOT EXISTS background (
    id TEXT PRIMARY KEY, response TEXT NOT NULL, polls_left INTEGER NOT NULL, forgotten INTEGER NOT NULL
);
"""
_SHOWN = (
    "id, kind, model, digest, text, request, headers, stream, at, outcome, status, not_before,"
    " tokens_in, tokens_out, cost"
)


class Ledger:
    """One connection behind a lock: a commit is a flush, and this service is never the bottleneck."""

    def __init__(self, store: Path) -> None:
        store.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._db = sqlite3.connect(
            store / "models.sqlite", check_same_thread=False, isolation_level=None
        )
        self._db.row_factory = sqlite3.Row
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.executescript(_SCHEMA)

    def now(self) -> float:
        with self._lock:
            return float(self._db.execute(f"SELECT {_NOW}").fetchone()[0])

    def note(
        self, kind: str, *, model: str, digest: str, text: str, request: str,
        headers: Mapping[str, str], stream: bool,
    ) -> int:  # fmt: skip
        """Write down that a request came, before anything comes of it."""
        sql = (
            "INSERT INTO call (kind, model, digest, text, request, headers, stream)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)"
        )
        values = (kind, model, digest, text, request, json.dumps(dict(headers)), stream)
        with self._lock:
            return int(self._db.execute(sql, values).lastrowid or 0)

    def bill(
        self, call: int, *, tokens_in: int, tokens_out: int, cost: Decimal, lost: bool
    ) -> None:
        """An answer was produced: it is to be paid, whoever gets it.

        Written before anything is sent, so that a caller who has the answer finds it counted.
        """
        what = "outcome = ?, status = 200, tokens_in = ?, tokens_out = ?, cost = ?"
        self._set(call, what, "lost" if lost else "answered", tokens_in, tokens_out, str(cost))

    def end(
        self, call: int, outcome: str, *, status: int | None, not_before: float | None = None
    ) -> None:
        """How the request ended: answered, lost, rejected, limited or failed."""
        self._set(
            call, "outcome = ?, status = ?, not_before = ?", outcome, status, not_before
        )  # fmt: skip

    def keep(self, response_id: str, response: object, *, polls: int, forgotten: bool) -> None:
        """A background response that is to be looked at."""
        sql = "INSERT INTO background VALUES (?, ?, ?, ?)"
        with self._lock:
            self._db.execute(sql, (response_id, json.dumps(response), polls, forgotten))

    def look(self, response_id: str) -> tuple[dict[str, Any], bool] | None:
        """(the response as it will be, whether it is there by now), one look nearer; None: unknown."""
        with self._lock:
            self._db.execute(
                "UPDATE background SET polls_left = polls_left - 1 WHERE id = ?", (response_id,)
            )
            row = self._db.execute(
                "SELECT response, polls_left < 0 AS there FROM background"
                " WHERE id = ? AND NOT forgotten",
                (response_id,),
            ).fetchone()
        return (json.loads(row["response"]), bool(row["there"])) if row else None

    def calls(self, match: str, kind: str | None) -> list[dict[str, Any]]:
        """Every request whose text contains this, in order."""
        sql = (
            f"SELECT {_SHOWN} FROM call WHERE instr(text, ?) > 0"  # noqa: S608
            " AND (? IS NULL OR kind = ?) ORDER BY id"
        )
        with self._lock:
            rows = self._db.execute(sql, (match, kind, kind)).fetchall()
        return [dict(row) for row in rows]

    def billed(self, match: str) -> dict[str, Any]:
        """What was billed for requests whose text contains this."""
        sql = "SELECT tokens_in, tokens_out, cost FROM call WHERE instr(text, ?) > 0 AND cost IS NOT NULL"
        with self._lock:
            rows = self._db.execute(sql, (match,)).fetchall()
        return {
            "calls": len(rows),
            "tokens_in": sum(row["tokens_in"] for row in rows),
            "tokens_out": sum(row["tokens_out"] for row in rows),
            "cost": str(sum((Decimal(row["cost"]) for row in rows), Decimal(0))),
        }

    def _set(self, call: int, what: str, *values: object) -> None:
        with self._lock:
            self._db.execute(f"UPDATE call SET {what} WHERE id = ?", (*values, call))  # noqa: S608
