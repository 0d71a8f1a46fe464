"""Counting what one measurement costs: processor time, commits, bytes of WAL, broker commands, per step.

Counts are of the whole server, so one thing runs at a time. Of all figures the counts alone do not
depend on the machine; processor time moves less with other load than wall time does.
"""

import os
import re
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg

from benchmarks.stand import Stand
from ops.stack import binaries

#: What a client says of itself when it connects, and what we ask here: no part of the work.
_OVERHEAD = frozenset({"info", "ping", "auth", "hello", "select", "client", "config", "command"})
_COMMITS = re.compile(r"^Transaction/COMMIT\w*\s+(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One measurement. All but the first three fields are per step; processor time is in ms."""

    steps: int
    seconds: float
    steps_per_second: float
    cpu_workers: float
    cpu_postgres: float
    cpu_valkey: float
    cpu_driver: float
    commits: float  #: durable ones, counted in the WAL
    wal_bytes: float
    broker_commands: float

    @property
    def cpu(self) -> float:
        """All processor time of a step."""
        return self.cpu_workers + self.cpu_postgres + self.cpu_valkey + self.cpu_driver


@dataclass(frozen=True, slots=True)
class _Reading:
    at: float
    cpu: Mapping[str, float]
    position: str
    commands: int


class Meter:
    """Reads everything at its start and at its stop."""

    def __init__(self, stand: Stand, *workers: int) -> None:
        self._stand = stand
        self._workers = workers
        self._first = self._read()

    def stop(self, steps: int) -> Measure:
        """The difference since the start, divided by the steps done."""
        last, first = self._read(), self._first
        seconds = last.at - first.at

        def cpu(part: str) -> float:
            return (last.cpu[part] - first.cpu[part]) * 1000 / steps

        return Measure(
            steps=steps,
            seconds=seconds,
            steps_per_second=steps / seconds,
            cpu_workers=cpu("workers"),
            cpu_postgres=cpu("postgres"),
            cpu_valkey=cpu("valkey"),
            cpu_driver=cpu("driver"),
            commits=self._commits(first.position, last.position) / steps,
            wal_bytes=(_number(last.position) - _number(first.position)) / steps,
            broker_commands=(last.commands - first.commands) / steps,
        )

    def _read(self) -> _Reading:
        at = time.monotonic()
        own = os.times()
        pids = self._stand.servers.pids
        cpu = {
            "workers": sum(map(_tree, self._workers)),
            "postgres": _tree(pids["postgres"]),
            "valkey": _tree(pids["valkey"]),
            "driver": own.user + own.system,
        }
        return _Reading(at, cpu, self._position(), broker_commands(self._stand))

    def _position(self) -> str:
        with psycopg.connect(self._stand.libpq_url()) as link:
            row = link.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
        assert row is not None  # noqa: S101 - it has a row
        return str(row[0])

    def _commits(self, since: str, until: str) -> int:
        """COMMIT records: commits that had something to make durable, however few flushes they shared."""
        program = binaries.postgres_programs() / "pg_waldump"
        wal = self._stand.home.path / "postgres" / "pg_wal"
        if since == until or not Path(program).exists():
            return 0
        told = subprocess.run(
            [
                program, "--path", wal, "--rmgr=Transaction", "--stats=record",
                "--start", since, "--end", until,
            ],
            capture_output=True, text=True, check=False,
        ).stdout  # fmt: skip
        return sum(map(int, _COMMITS.findall(told)))


def broker_commands(stand: Stand) -> int:
    """How many commands the broker has served, MULTI and EXEC included."""
    with stand.valkey as client:
        served = client.info("commandstats")
    calls = {name.removeprefix("cmdstat_"): told["calls"] for name, told in served.items()}
    return sum(count for name, count in calls.items() if name.split("|")[0] not in _OVERHEAD)


def _tree(pid: int) -> float:
    """Seconds of processor time of a process and all below it, the ended ones included."""
    seconds = 0.0
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for member in (process, *process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                seconds += sum(member.cpu_times()[:4])
    return seconds


def _number(position: str) -> int:
    high, low = position.split("/")
    return (int(high, 16) << 32) + int(low, 16)
