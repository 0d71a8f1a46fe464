"""The registry of conclusions: the outside world of this example, with its own durable store.

``POST /filings`` files ``{"run", "document", "digest", "conclusion"}``. A filing sent with an
``Idempotency-Key`` is bound to that key and to the document's digest:

* the same key and document again, whatever the wording of the conclusion: the first filing stands
  and is answered (200). A repeated LLM call words its conclusion differently, and a second filing
  would be a duplicate all the same, so the key is the identity and not the body;
* the same key for another document: 409. Keys derived from run and step cannot do that by accident;
* no key: always a new filing, as with any service that leaves duplicates to its callers.

``GET /filings``, ``GET /filings/<id>``, ``GET /stats``. A filing is committed to disk before it is
answered. ``--ignore-keys`` makes every request a filing, for comparisons.
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

from examples.contract_review.http_service import Refusal, Reply, Request, Routes, parser, serve

KEY_LIMIT = 255  #: bytes of an idempotency key
PAGE = 1_000  #: filings in one answer of GET /filings

_SCHEMA = """
CREATE TABLE IF NOT EXISTS filing (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    sent_key TEXT,
    identity TEXT UNIQUE,  -- the key while keys are honoured, else NULL, which never collides
    run TEXT NOT NULL,
    document TEXT NOT NULL,
    digest TEXT NOT NULL,
    conclusion TEXT NOT NULL,
    conclusion_digest TEXT NOT NULL,
    filed_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);
CREATE TABLE IF NOT EXISTS counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
"""
_COUNTERS = ("requests", "duplicates_refused", "conflicts")


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

    def __init__(self, path: Path, *, ignore_keys: bool = False) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._ignore_keys = ignore_keys
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=10)
        self._db.row_factory = sqlite3.Row
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.executescript(_SCHEMA)

    def file(self, filing: Filing, *, key: str | None) -> Reply:
        """File, or answer the filing that the key already has."""
        identity = None if self._ignore_keys else key
        with self._transaction():
            self._count("requests")
            known = identity and self._one("SELECT * FROM filing WHERE identity = ?", identity)
            if not known:
                return Reply(_summary(self._insert(filing, key, identity)), 201)
            if known["digest"] == filing.digest and known["document"] == filing.document:
                self._count("duplicates_refused")
                return Reply(_summary(known), 200, {"Idempotent-Replay": "true"})
            self._count("conflicts")
        raise Refusal(409, f"key {key} is bound to {known['document']}, not to {filing.document}")

    def page(self, after: int, run: str | None) -> list[dict[str, Any]]:
        """Filings in the order in which they were made."""
        where = "id > ? AND (? IS NULL OR run = ?)"
        sql = f"SELECT * FROM filing WHERE {where} ORDER BY id LIMIT {PAGE}"  # noqa: S608  # constants
        with self._lock:
            return [_summary(row) for row in self._db.execute(sql, (after, run, run))]

    def one(self, number: int) -> dict[str, Any] | None:
        """A filing with its conclusion."""
        with self._lock:
            row = self._one("SELECT * FROM filing WHERE id = ?", number)
        return (
            None if row is None else {**_summary(row), "conclusion": json.loads(row["conclusion"])}
        )

    def stats(self) -> dict[str, int]:
        """What was filed and what was refused, since the store began."""
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

    def _insert(self, filing: Filing, key: str | None, identity: str | None) -> sqlite3.Row:
        text = json.dumps(filing.conclusion, sort_keys=True)
        digest = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
        row = self._one(
            "INSERT INTO filing (sent_key, identity, run, document, digest, conclusion,"
            " conclusion_digest) VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING *",
            *(key, identity, filing.run, filing.document, filing.digest, text, digest),
        )
        assert row is not None  # noqa: S101  # RETURNING after an INSERT gives the row
        return row

    def _count(self, name: str) -> None:
        sql = "INSERT INTO counter VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET value = value + 1"
        self._db.execute(sql, (name,))

    def _one(self, sql: str, *values: object) -> sqlite3.Row | None:
        row: sqlite3.Row | None = self._db.execute(sql, values).fetchone()
        return row


def routes(store: Store) -> Routes:
    """The registry's interface over a store."""

    def file(request: Request) -> Reply:
        key = request.headers.get("idempotency-key")
        if key is not None and not 0 < len(key) <= KEY_LIMIT:
            raise Refusal(400, f"an Idempotency-Key has 1 to {KEY_LIMIT} characters")
        try:
            filing = Filing.model_validate(request.json_object())
        except ValidationError as error:
            places = "; ".join(
                f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:5]
            )
            raise Refusal(400, f"the filing is not complete: {places}") from None
        return store.file(filing, key=key)

    def page(request: Request) -> Reply:
        after = _number(request.query.get("after", ["0"])[0])
        return Reply({"filings": store.page(after, next(iter(request.query.get("run", [])), None))})

    def one(request: Request) -> Reply:
        name = request.path.rpartition("/")[2]
        filing = store.one(_number(name.removeprefix("F-")))
        if filing is None:
            raise Refusal(404, f"there is no filing {name}")
        return Reply(filing)

    return {
        ("POST", "/filings"): file,
        ("GET", "/filings"): page,
        ("GET", "/filings/"): one,
        ("GET", "/stats"): lambda _request: Reply(store.stats()),
    }


def main() -> None:
    """Run the service."""
    options = _options()
    store = Store(options.store, ignore_keys=options.ignore_keys)
    serve(routes(store), options, name="registry")


def _options() -> argparse.Namespace:
    options = parser("registry", "A durable registry of filed conclusions.")
    options.add_argument("--store", type=Path, required=True, help="SQLite file, made when missing")
    options.add_argument("--ignore-keys", action="store_true", help="every request is a new filing")
    return options.parse_args()


def _summary(row: Mapping[str, Any] | sqlite3.Row) -> dict[str, Any]:
    names = ("run", "document", "digest", "conclusion_digest", "filed_at")
    return {
        "id": f"F-{row['id']:06d}",
        "key": row["sent_key"],
        **{name: row[name] for name in names},
    }


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > 15:
        raise Refusal(400, f"{text!r} is not a number")
    return int(text)


if __name__ == "__main__":
    main()
