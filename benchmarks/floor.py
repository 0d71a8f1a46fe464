"""The floor: the fewest statements that a journalled step needs, sent by pgbench, with nothing around them.

One commit a step: complete N and claim N+1 at once, as sticky execution does. Two commits: claim, then
complete, as a hop does. Every transaction is one prepared statement of ``benchmarks/least.py``.
"""

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from psycopg.conninfo import conninfo_to_dict

from benchmarks.contestants import Contestant
from benchmarks.least import (
    CLAIM,
    COMPLETE,
    DATABASE,
    TAKEN,
    THEN_TAKEN,
    THEN_WAITING,
    WAITING,
    prepare_database,
)
from benchmarks.meters import Measure, Meter
from benchmarks.stand import Mode, Stand
from benchmarks.work import RESULT, STEPS
from ops.stack import binaries
from ops.stack.errors import ServerMissing

_RATE = re.compile(r"tps = ([\d.]+)")


@dataclass(frozen=True)
class Floor(Contestant):
    """pgbench with as many clients as the pool has processes."""

    name: str
    commits: int

    def measure(self, stand: Stand, mode: Mode, *, runs: int) -> Measure:
        prepare_database(stand)
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


@contextmanager
def _script(commits: int) -> Iterator[str]:
    """The transactions of one run, in a file."""
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(";\n".join(_statements(commits)) + ";\n")
        file.flush()
        yield file.name


def _statements(commits: int) -> Iterator[str]:
    """Of one run, each a transaction. pgbench's variable ``r`` is the run."""
    waits = commits == 2
    first, then = (WAITING, THEN_WAITING) if waits else (TAKEN, THEN_TAKEN)
    yield f"SELECT nextval('run') AS r \\gset\n{first.format(run=':r', seq=0)}"
    result = f"'{json.dumps(RESULT)}'"  # ": " begins no variable of pgbench
    for seq in range(STEPS):
        if waits:
            yield CLAIM.format(run=":r", seq=seq)
        last = seq == STEPS - 1
        yield (COMPLETE if last else then).format(run=":r", seq=seq, next=seq + 1, result=result)


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
    told = conninfo_to_dict(stand.libpq_url(DATABASE))
    names = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD"}
    return {"PGDATABASE": DATABASE, **{names[key]: str(told[key]) for key in names}}
