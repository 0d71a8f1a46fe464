"""The outside world of fault tests: a payment-like service and a language model, as one HTTP process.

``POST /idempotent/NAME``  makes an effect, at most one per ``Idempotency-Key``
``POST /plain/NAME``       makes an effect each time it is asked
``POST /llm/NAME``         answers, with other words each time, or with a scripted answer

Every request is written down before anything else, every effect before it is answered, in SQLite with
a full sync: what it counts survives its own death. A request can be held before its effect (P2) or
after it (P3), which is where a test kills the caller.
"""

import argparse
import hashlib
import json
import sqlite3
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

HOLD_LIMIT = 60.0  #: seconds after which a forgotten hold lets go

SCHEMA = """
CREATE TABLE IF NOT EXISTS call (id INTEGER PRIMARY KEY, kind TEXT, name TEXT, key TEXT, digest TEXT);
CREATE TABLE IF NOT EXISTS effect (id INTEGER PRIMARY KEY, name TEXT, key TEXT, digest TEXT);
CREATE UNIQUE INDEX IF NOT EXISTS one_effect_a_key ON effect (key) WHERE key IS NOT NULL;
"""


class Ledger:
    """What was asked and what exists."""

    def __init__(self, store: Path) -> None:
        self._lock = threading.Lock()
        self._db = sqlite3.connect(store, check_same_thread=False, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.executescript(SCHEMA)

    def note_call(self, kind: str, name: str, *, key: str | None, digest: str) -> int:
        with self._lock:
            made = self._db.execute(
                "INSERT INTO call (kind, name, key, digest) VALUES (?, ?, ?, ?)",
                (kind, name, key, digest),
            )
            return int(made.lastrowid or 0)

    def apply(self, name: str, *, key: str | None, digest: str) -> tuple[str, bool]:
        """The resource of this request and whether the request fits it."""
        with self._lock:
            self._db.execute(
                "INSERT INTO effect (name, key, digest) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                (name, key, digest),
            )
            row = self._db.execute(
                "SELECT id, digest FROM effect WHERE key IS ? ORDER BY id DESC LIMIT 1", (key,)
            ).fetchone()
        return f"res-{row[0]}", row[1] == digest

    def counts(self, prefix: str) -> dict[str, Any]:
        """Calls and effects by name, and the keys that were used, of all names that begin so."""
        with self._lock:
            like = (prefix.replace("_", "\\_") + "%",)
            query = "SELECT name, count(*) FROM {} WHERE name LIKE ? ESCAPE '\\' GROUP BY name"
            keys = "SELECT DISTINCT key FROM call WHERE name LIKE ? ESCAPE '\\' AND key IS NOT NULL"
            return {
                "calls": dict(self._db.execute(query.format("call"), like).fetchall()),
                "effects": dict(self._db.execute(query.format("effect"), like).fetchall()),
                "keys": [row[0] for row in self._db.execute(keys, like).fetchall()],
            }


class Holds:
    """Which requests wait, where, and until when."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ordered: dict[tuple[str, str], int] = {}
        self._waiting: dict[str, list[threading.Event]] = {}

    def order(self, name: str, where: str, times: int) -> None:
        with self._lock:
            self._ordered[name, where] = times

    def wait(self, name: str, where: str) -> None:
        with self._lock:
            left = self._ordered.get((name, where), 0)
            if left <= 0:
                return
            self._ordered[name, where] = left - 1
            released = threading.Event()
            self._waiting.setdefault(name, []).append(released)
        released.wait(HOLD_LIMIT)

    def held(self, name: str) -> int:
        with self._lock:
            return len(self._waiting.get(name, []))

    def release(self, name: str, count: int | None) -> int:
        """Let the ``count`` oldest go on, or all."""
        with self._lock:
            waiting = self._waiting.get(name, [])
            leaving, self._waiting[name] = waiting[:count], waiting[len(waiting[:count]) :]
        for released in leaving:
            released.set()
        return len(leaving)


class World(ThreadingHTTPServer):
    """The service and its state."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, store: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.ledger = Ledger(store)
        self.holds = Holds()
        self.scripts: dict[str, str] = {}


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: World

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        name = parse_qs(address.query).get("name", [""])[0]
        if address.path == "/held":
            self._answer(200, {"held": self.server.holds.held(name)})
        else:
            self._answer(200, self.server.ledger.counts(name))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        kind, name = self.path.strip("/").split("/", 1)
        if kind == "admin":
            self._answer(200, self._administer(name, json.loads(body)))
        else:
            self._serve(kind, name, body)

    def _serve(self, kind: str, name: str, body: bytes) -> None:
        world = self.server
        key = self.headers.get("Idempotency-Key") if kind == "idempotent" else None
        digest = hashlib.sha256(body).hexdigest()
        number = world.ledger.note_call(kind, name, key=key, digest=digest)
        world.holds.wait(name, "before")
        if kind == "llm":
            status, answer = 200, {"text": world.scripts.get(name, json.dumps({"answer": number}))}
        else:
            resource_id, fits = world.ledger.apply(name, key=key, digest=digest)
            status, answer = (200 if fits else 409), {"resource_id": resource_id}
        world.holds.wait(name, "after")
        self._answer(status, answer)

    def _administer(self, what: str, order: dict[str, Any]) -> dict[str, Any]:
        match what:
            case "hold":
                self.server.holds.order(order["name"], order["where"], order["times"])
            case "release":
                return {"released": self.server.holds.release(order["name"], order["count"])}
            case "script":
                self.server.scripts[order["name"]] = order["text"]
        return {}

    def _answer(self, status: int, answer: dict[str, Any]) -> None:
        data = json.dumps(answer).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except OSError:
            self.close_connection = True  # the caller was killed, as it should be

    def log_message(self, *_: Any) -> None:
        """The ledger is the log."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--port-file", type=Path, required=True)
    arguments = parser.parse_args()
    world = World(arguments.store)
    unfinished = arguments.port_file.with_suffix(".new")
    unfinished.write_text(str(world.server_port))
    unfinished.replace(arguments.port_file)
    world.serve_forever()


if __name__ == "__main__":
    main()
