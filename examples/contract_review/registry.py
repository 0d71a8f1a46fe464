"""The registry of conclusions: the outside world of this example, with its own durable store.

``POST /filings`` files ``{"run", "document", "digest", "conclusion"}``, and files it again when it is asked
again: like most services it knows no idempotency keys, so that a repeated request is a second filing. What it
can be asked is whether something was filed: ``GET /filings?run=R&document=D``.

``GET /filings/<id>``, ``DELETE /filings/<id>`` (withdraws it), ``GET /stats``. A filing is committed to disk
before it is answered. ``POST /faults {"drop_responses": N}`` makes it cut the connection instead of answering
the next N filings, after they are filed, for demonstrations of what their callers do then; ``GET /faults``
lists those filings.
"""

import argparse
import hashlib
import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from examples.contract_review.http_service import (
    Cut,
    Refusal,
    Reply,
    Request,
    Routes,
    parser,
    serve,
)

PAGE = 1_000  #: filings in one answer of GET /filings

_SCHEMA = """
CREATE TABLE IF NOT EXISTS filing (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    run TEXT NOT NULL,
    document TEXT NOT NULL,
    digest TEXT NOT NULL,
    conclusion TEXT NOT NULL,
    conclusion_digest TEXT NOT NULL,
    filed_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);
CREATE INDEX IF NOT EXISTS filing_run ON filing (run, document);
CREATE TABLE IF NOT EXISTS counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
"""
_COUNTERS = ("requests", "look_ups", "responses_dropped", "withdrawn")


class Filing(BaseModel):
    """The body of a filing."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: str = Field(min_length=1, max_length=200)
    document: str = Field(min_length=1, max_length=2_000)
    digest: str = Field(min_length=1, max_length=200)
    conclusion: dict[str, Any]


class Store:
    """Filings and counters in one SQLite file.

    One connection behind a lock: filings take microseconds each, and a commit is a flush to disk
    (``synchronous=FULL``), so what was answered survives a power cut.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._to_drop = 0
        self._dropped: list[dict[str, Any]] = []
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=10)
        self._db.row_factory = sqlite3.Row
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.executescript(_SCHEMA)

    def file(self, filing: Filing) -> Reply:
        """File it. Raises ``Cut`` when this answer is to be lost."""
        with self._transaction():
            self._count("requests")
            row = self._insert(filing)
            dropped = self._to_drop > 0
            if dropped:
                self._to_drop -= 1
                self._dropped.append(_summary(row))
                self._count("responses_dropped")
        if dropped:
            raise Cut
        return Reply(_summary(row), 201)

    def drop_responses(self, count: int) -> None:
        """Lose the answers of the next so many filings."""
        with self._lock:
            self._to_drop = count

    def dropped(self) -> list[dict[str, Any]]:
        """Filings whose answers were lost on purpose, since this process began."""
        with self._lock:
            return list(self._dropped)

    def withdraw(self, number: int) -> bool:
        """Take a filing back. False: there is none, or not any more."""
        with self._transaction():
            gone = self._one("DELETE FROM filing WHERE id = ? RETURNING id", number)
            if gone is not None:
                self._count("withdrawn")
        return gone is not None

    def page(self, after: int, *, run: str | None, document: str | None) -> list[dict[str, Any]]:
        """Filings in the order in which they were made."""
        where = "id > ? AND (? IS NULL OR run = ?) AND (? IS NULL OR document = ?)"
        sql = f"SELECT * FROM filing WHERE {where} ORDER BY id LIMIT {PAGE}"  # noqa: S608  # constants
        with self._transaction():
            if document is not None:
                self._count("look_ups")
            found = self._db.execute(sql, (after, run, run, document, document)).fetchall()
        return [_summary(row) for row in found]

    def one(self, number: int) -> dict[str, Any] | None:
        """A filing with its conclusion."""
        with self._lock:
            row = self._one("SELECT * FROM filing WHERE id = ?", number)
        return (
            None if row is None else {**_summary(row), "conclusion": json.loads(row["conclusion"])}
        )

    def stats(self) -> dict[str, int]:
        """What was filed and asked, since the store began."""
        with self._lock:
            counts = dict(self._db.execute("SELECT name, value FROM counter").fetchall())
            row = self._db.execute(
                "SELECT count(*), count(DISTINCT document),"
                " count(DISTINCT run || char(0) || document) FROM filing"
            ).fetchone()
        filings, documents, intents = row
        return {
            "filings": filings,
            "distinct_documents": documents,
            "duplicate_filings": filings - intents,
            **{name: counts.get(name, 0) for name in _COUNTERS},
        }

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def _insert(self, filing: Filing) -> sqlite3.Row:
        text = json.dumps(filing.conclusion, sort_keys=True)
        digest = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
        row = self._one(
            "INSERT INTO filing (run, document, digest, conclusion, conclusion_digest)"
            " VALUES (?, ?, ?, ?, ?) RETURNING *",
            *(filing.run, filing.document, filing.digest, text, digest),
        )
        assert row is not None  # noqa: S101  # RETURNING after an INSERT gives the row
        return row

    def _count(self, name: str) -> None:
        sql = "INSERT INTO counter VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET value = value + 1"
        self._db.execute(sql, (name,))

    def _one(self, sql: str, *values: object) -> sqlite3.Row | None:
        row: sqlite3.Row | None = self._db.execute(sql, values).fetchone()
        return row


class _Interface:
    """The registry's routes over a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def file(self, request: Request) -> Reply:
        try:
            filing = Filing.model_validate(request.json_object())
        except ValidationError as error:
            places = "; ".join(
                f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:5]
            )
            raise Refusal(400, f"the filing is not complete: {places}") from None
        return self._store.file(filing)

    def page(self, request: Request) -> Reply:
        after = _number(request.query.get("after", ["0"])[0])
        run, document = (
            next(iter(request.query.get(name, [])), None) for name in ("run", "document")
        )
        return Reply({"filings": self._store.page(after, run=run, document=document)})

    def one(self, request: Request) -> Reply:
        name, number = _filing(request)
        filing = self._store.one(number)
        if filing is None:
            raise Refusal(404, f"there is no filing {name}")
        return Reply(filing)

    def withdraw(self, request: Request) -> Reply:
        name, number = _filing(request)
        if not self._store.withdraw(number):
            raise Refusal(404, f"there is no filing {name}")
        return Reply({"withdrawn": name})

    def faults(self, request: Request) -> Reply:
        count = request.json_object().get("drop_responses")
        if type(count) is not int or count < 0:
            raise Refusal(400, "drop_responses takes a number of answers")
        self._store.drop_responses(count)
        return Reply({"drop_responses": count})

    def dropped(self, _request: Request) -> Reply:
        return Reply({"dropped": self._store.dropped()})

    def stats(self, _request: Request) -> Reply:
        return Reply(self._store.stats())


def routes(store: Store) -> Routes:
    """The registry's interface over a store."""
    interface = _Interface(store)
    return {
        ("POST", "/filings"): interface.file,
        ("GET", "/filings"): interface.page,
        ("GET", "/filings/"): interface.one,
        ("DELETE", "/filings/"): interface.withdraw,
        ("POST", "/faults"): interface.faults,
        ("GET", "/faults"): interface.dropped,
        ("GET", "/stats"): interface.stats,
    }


def main() -> None:
    """Run the service."""
    options = _options()
    serve(routes(Store(options.store)), options, name="registry")


def _options() -> argparse.Namespace:
    options = parser("registry", "A durable registry of filed conclusions.")
    options.add_argument("--store", type=Path, required=True, help="SQLite file, made when missing")
    return options.parse_args()


def _summary(row: Mapping[str, Any] | sqlite3.Row) -> dict[str, Any]:
    names = ("run", "document", "digest", "conclusion_digest", "filed_at")
    return {"id": f"F-{row['id']:06d}", **{name: row[name] for name in names}}


def _filing(request: Request) -> tuple[str, int]:
    name = request.path.rpartition("/")[2]
    return name, _number(name.removeprefix("F-"))


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > 15:
        raise Refusal(400, f"{text!r} is not a number")
    return int(text)


if __name__ == "__main__":
    main()
