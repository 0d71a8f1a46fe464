"""The floor: the fewest statements that a journalled step needs, sent by pgbench, with nothing around them.

One commit a step: complete N and claim N+1 at once, as sticky execution does. Two commits: claim, then
complete, as a hop does. Every transaction is one prepared statement. One table, with an index that a sweep
would need; no plan, no history, no fencing.
"""

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import LiteralString

import psycopg
from psycopg.conninfo import conninfo_to_dict

from benchmarks.contestants import Contestant
from benchmarks.meters import Measure, Meter
from benchmarks.stand import Mode, Stand
from benchmarks.work import RESULT, STEPS
from ops.stack import binaries
from ops.stack.errors import ServerMissing

_DATABASE = "floor"
_SCHEMA: LiteralString = """
DROP TABLE IF EXISTS step;
DROP SEQUENCE IF EXISTS run;
CREATE SEQUENCE run;
CREATE TABLE step (
    run_id bigint, seq int, name text NOT NULL DEFAULT 'noop', state text NOT NULL,
    attempt int NOT NULL DEFAULT 0, owner text, lease_expires_at timestamptz, result jsonb,
    created_at timestamptz NOT NULL DEFAULT now(), started_at timestamptz, finished_at timestamptz,
    PRIMARY KEY (run_id, seq));
CREATE INDEX ix_step_lease ON step (lease_expires_at) WHERE state = 'running'"""
_NEXT = "WITH done AS ({done} RETURNING 1) {then}"
_WAITING = "INSERT INTO step (run_id, seq, state) SELECT :r, {seq}, 'pending'"
_TAKEN = (
    "INSERT INTO step (run_id, seq, state, attempt, owner, started_at, lease_expires_at)"
    " SELECT :r, {seq}, 'running', 1, 'w', now(), now() + interval '60 s'"
)
_CLAIM = (
    "UPDATE step SET state = 'running', attempt = attempt + 1, owner = 'w', started_at = now(),"
    " lease_expires_at = now() + interval '60 s'"
    " WHERE run_id = :r AND seq = {seq} AND state = 'pending'"
)
_COMPLETE = (
    "UPDATE step SET state = 'completed', result = '{result}', finished_at = now(),"
    " lease_expires_at = NULL WHERE run_id = :r AND seq = {seq} AND state = 'running'"
)
_RATE = re.compile(r"tps = ([\d.]+)")


@dataclass(frozen=True)
class Floor(Contestant):
    """pgbench with as many clients as the pool has processes."""

    name: str
    commits: int

    def measure(self, stand: Stand, mode: Mode, *, runs: int) -> Measure:
        _prepare_database(stand)
        with _script(self.commits) as script:
            _pgbench(stand, script, clients=mode.concurrency, runs=2 * mode.concurrency)
            meter = Meter(stand)
            before = os.times()
            told = _pgbench(stand, script, clients=mode.concurrency, runs=runs)
            after = os.times()
            done = runs // mode.concurrency * mode.concurrency * STEPS
            measured = meter.stop(done)
        found = _RATE.search(told)
        assert found is not None, told  # noqa: S101 - it ends with its rate
        rate = float(found.group(1)) * STEPS
        spent = sum(after[2:4]) - sum(before[2:4])  # of children that have ended
        return replace(
            measured, steps_per_second=rate, seconds=done / rate, cpu_workers=spent * 1000 / done
        )


def _prepare_database(stand: Stand) -> None:
    with psycopg.connect(stand.libpq_url("postgres"), autocommit=True) as server:
        known = server.execute("SELECT 1 FROM pg_database WHERE datname = 'floor'").fetchone()
        if known is None:
            server.execute("CREATE DATABASE floor")
    with psycopg.connect(stand.libpq_url(_DATABASE), autocommit=True) as server:
        server.execute(_SCHEMA)


@contextmanager
def _script(commits: int) -> Iterator[str]:
    """The transactions of one run, in a file."""
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(";\n".join(_statements(commits)) + ";\n")
        file.flush()
        yield file.name


def _statements(commits: int) -> Iterator[str]:
    first = (_WAITING if commits == 2 else _TAKEN).format(seq=0)
    yield f"SELECT nextval('run') AS r \\gset\n{first}"
    result = json.dumps(RESULT)  # ": " begins no variable of pgbench
    for seq in range(STEPS):
        if commits == 2:
            yield _CLAIM.format(seq=seq)
        complete = _COMPLETE.format(seq=seq, result=result)
        if seq == STEPS - 1:
            yield complete
        elif commits == 2:
            yield _NEXT.format(done=complete, then=f"{_WAITING.format(seq=seq + 1)} FROM done")
        else:
            yield _NEXT.format(done=complete, then=f"{_TAKEN.format(seq=seq + 1)} FROM done")


def _pgbench(stand: Stand, script: str, *, clients: int, runs: int) -> str:
    program = binaries.postgres_programs() / "pgbench"
    if not program.exists():
        raise ServerMissing(f"no pgbench beside PostgreSQL: there is no {program}; install it")
    words = ("-n", "-M", "prepared", "-f", script, "-c", str(clients), "-j", "1")
    told = subprocess.run(
        [program, *words, "-t", str(runs // clients)],
        env={**os.environ, **_address(stand)}, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return told.stdout


def _address(stand: Stand) -> dict[str, str]:
    """Where to connect, in the environment: every user of the machine can read arguments."""
    told = conninfo_to_dict(stand.libpq_url(_DATABASE))
    names = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD"}
    return {"PGDATABASE": _DATABASE, **{names[key]: str(told[key]) for key in names}}
