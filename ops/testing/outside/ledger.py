"""What was asked and what exists, in SQLite with a full sync: it survives the service's own death."""

import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CREATING = ("idempotent", "plain", "llm")  #: the kinds of call that count as asking for something

_NOW = "((julianday('now') - 2440587.5) * 86400.0)"  #: seconds; one clock for all that is compared

_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS call (
    id INTEGER PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL, key TEXT, digest TEXT,
    at REAL NOT NULL DEFAULT ({_NOW})
);
CREATE INDEX IF NOT EXISTS call_name ON call (name);
CREATE INDEX IF NOT EXISTS call_key ON call (key);
CREATE TABLE IF NOT EXISTS resource (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    intent TEXT NOT NULL,       -- what the test counts by
    name TEXT NOT NULL,         -- what it is called now
    key TEXT,                   -- the key it was made with, as look-ups see it
    identity TEXT UNIQUE,       -- the key that keeps a second one away; NULL never collides
    digest TEXT,
    body TEXT,                  -- a JSON object, or NULL
    made_at REAL NOT NULL DEFAULT ({_NOW}),
    visible_at REAL NOT NULL,   -- look-ups miss it until then
    ready_at REAL NOT NULL,     -- it is provisioning until then
    cancelled_at REAL,
    gone_at REAL
);
CREATE INDEX IF NOT EXISTS resource_intent ON resource (intent);
"""
_SHOWN = f"""id, intent, name, key, digest, body, made_at, CASE WHEN cancelled_at IS NOT NULL THEN 'cancelled'
    WHEN ready_at > {_NOW} THEN 'provisioning' ELSE 'ready' END AS status"""
_THERE = f"gone_at IS NULL AND visible_at <= {_NOW}"

Shown = dict[str, Any]  #: a resource as an answer shows it


class Ledger:
    """One connection behind a lock: a commit is a flush, and this service is never the bottleneck."""

    def __init__(self, store: Path) -> None:
        self._lock = threading.Lock()
        self._db = sqlite3.connect(store, check_same_thread=False, isolation_level=None)
        self._db.row_factory = sqlite3.Row
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.executescript(_SCHEMA)

    def note_call(
        self, kind: str, name: str, *, key: str | None = None, digest: str | None = None
    ) -> int:
        """Write down that something was asked, before anything comes of it."""
        sql = "INSERT INTO call (kind, name, key, digest) VALUES (?, ?, ?, ?)"
        with self._lock:
            return int(self._db.execute(sql, (kind, name, key, digest)).lastrowid or 0)

    def apply(
        self, name: str, *, key: str | None, honoured: bool, digest: str, body: bytes = b"",
        retention: float | None = None, hidden: float = 0.0, provisioning: float = 0.0,
    ) -> tuple[Shown, bool]:  # fmt: skip
        """The resource of this request, made unless the key has one, and whether the request fits it."""
        identity = key if honoured else None
        with self._writing():
            if retention is not None:
                self._db.execute(
                    f"UPDATE resource SET identity = NULL WHERE identity = ? AND made_at + ? <= {_NOW}",  # noqa: S608
                    (identity, retention),
                )
            self._db.execute(
                "INSERT INTO resource (intent, name, key, identity, digest, body, visible_at, ready_at)"  # noqa: S608
                f" VALUES (?, ?, ?, ?, ?, ?, {_NOW} + ?, {_NOW} + ?) ON CONFLICT DO NOTHING",
                (name, name, key, identity, digest, _object(body), hidden, provisioning),
            )
            which = "id = last_insert_rowid()" if identity is None else "identity = ?"
            row = self._rows(which, () if identity is None else (identity,))[0]
        return row, row["digest"] == digest

    def find(
        self, wanted: Mapping[str, str], *, after: int = 0, skip: int = 0, limit: int
    ) -> list[Shown]:
        """What is there and matches, oldest first. Words other than key and name are fields of the body."""
        conditions = [_THERE, "id > ?"]
        values: list[object] = [after]
        for field, value in wanted.items():
            if field in ("key", "name"):
                conditions.append(f"{field} = ?")
            else:
                conditions.append("CAST(json_extract(body, ?) AS TEXT) = ?")
                values.append('$."{}"'.format(field.replace('"', "")))
            values.append(value)
        where = " AND ".join(conditions)
        with self._lock:
            return self._rows(f"{where} ORDER BY id LIMIT ? OFFSET ?", (*values, limit, skip))

    def get(self, number: int) -> Shown | None:
        """One resource as a look-up sees it."""
        with self._lock:
            return next(iter(self._rows(f"{_THERE} AND id = ?", (number,))), None)

    def remove(self, number: int) -> bool:
        """Whether it was there to be removed."""
        return self._change(f"gone_at = {_NOW}", "id = ? AND gone_at IS NULL", number) == 1

    def cancel(self, number: int) -> bool:
        """Whether it was there to be cancelled; it stays visible."""
        undone = "id = ? AND gone_at IS NULL AND cancelled_at IS NULL"
        return self._change(f"cancelled_at = {_NOW}", undone, number) == 1

    def rename(self, number: int, name: str) -> bool:
        """Give it another name; what it is counted by stays."""
        return self._change("name = ?", "id = ?", name, number) == 1

    def forget_keys(self, intent: str, *, in_lookups: bool) -> int:
        """Honour the keys of this name no longer; look-ups may go on knowing them."""
        what = "identity = NULL, key = NULL" if in_lookups else "identity = NULL"
        return self._change(what, "intent = ?", intent)

    def intent_of(self, *, number: int | None = None, key: str | None = None) -> str:
        """Which name a look-up is about, from the resource or the key it asks for."""
        query, value = "SELECT name FROM call WHERE key = ? AND kind <> 'lookup'", str(key)
        if number is not None:
            query, value = "SELECT intent FROM resource WHERE id = ?", str(number)
        with self._lock:
            row = self._db.execute(f"{query} LIMIT 1", (value,)).fetchone()
        return str(row[0]) if row else ""

    def resources(self, prefix: str) -> list[Shown]:
        """Everything ever made under names that begin so, for the test's eyes."""
        with self._lock:
            return self._rows("intent LIKE ? ESCAPE '\\' ORDER BY id", (_like(prefix),))

    def calls(self, prefix: str) -> list[Shown]:
        """Every request about names that begin so, in order."""
        sql = "SELECT id, kind, name, key, digest, at FROM call WHERE name LIKE ? ESCAPE '\\' ORDER BY id"
        with self._lock:
            return [dict(row) for row in self._db.execute(sql, (_like(prefix),))]

    def counts(self, prefix: str) -> dict[str, Any]:
        """Calls and resources by name, and the keys that were used, of all names that begin so."""
        kinds: dict[str, dict[str, int]] = {}
        with self._lock:
            for name, kind, count in self._by_name(prefix, "call", "name, kind"):
                kinds.setdefault(kind, {})[name] = count
            existing = self._by_name(prefix, "effect", "intent")
            made = self._by_name(prefix, "made", "intent")
            keys = self._db.execute(
                "SELECT DISTINCT key FROM call WHERE name LIKE ? ESCAPE '\\' AND key IS NOT NULL"
                " AND kind NOT IN ('lookup', 'delete')",
                (_like(prefix),),
            ).fetchall()
        return {
            "calls": _sum(kinds[kind] for kind in CREATING if kind in kinds),
            "kinds": kinds,
            "effects": dict(existing),
            "made": dict(made),
            "lookups": kinds.get("lookup", {}),
            "deletes": kinds.get("delete", {}),
            "keys": [row[0] for row in keys],
        }

    def _by_name(self, prefix: str, what: str, group: str) -> list[tuple[Any, ...]]:
        source, also = {
            "call": ("call WHERE name", ""),
            "made": ("resource WHERE intent", ""),
            "effect": ("resource WHERE intent", " AND gone_at IS NULL AND cancelled_at IS NULL"),
        }[what]
        sql = f"SELECT {group}, count(*) FROM {source} LIKE ? ESCAPE '\\'{also} GROUP BY {group}"  # noqa: S608
        return [tuple(row) for row in self._db.execute(sql, (_like(prefix),))]

    def _rows(self, where: str, values: tuple[object, ...]) -> list[Shown]:
        rows = self._db.execute(f"SELECT {_SHOWN} FROM resource WHERE {where}", values)  # noqa: S608
        return [_shown(row) for row in rows]

    def _change(self, what: str, where: str, *values: object) -> int:
        with self._lock:
            return self._db.execute(f"UPDATE resource SET {what} WHERE {where}", values).rowcount  # noqa: S608

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")


def _shown(row: sqlite3.Row) -> Shown:
    shown = dict(row)
    body = shown.pop("body")
    label = f"res-{shown['id']}"
    return {
        **shown,
        "id": label,
        "resource_id": label,
        "request": json.loads(body) if body else None,
    }


def _object(body: bytes) -> str | None:
    """The body as a JSON object whose fields can be looked up; SQLite refuses text that is none."""
    try:
        value = json.loads(body)
    except ValueError:
        return None
    return json.dumps(value) if isinstance(value, dict) else None


def _like(prefix: str) -> str:
    for special in "\\_%":
        prefix = prefix.replace(special, f"\\{special}")
    return prefix + "%"


def _sum(counts: Iterator[dict[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for by_name in counts:
        for name, count in by_name.items():
            total[name] = total.get(name, 0) + count
    return total
