"""``docs/results/performance.md``, written from one session's results."""

import os
import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import psycopg
import redis

from benchmarks import machine
from benchmarks.artifacts import ArtifactCost
from benchmarks.artifacts import table as artifact_lines
from benchmarks.extras import IDLE_RUNS, IDLE_STEPS, SUBMITTED, Latency, Recovery
from benchmarks.model_calls import CallCost
from benchmarks.model_calls import lines as call_lines
from benchmarks.stand import ROOT, Stand
from benchmarks.tables import Results, measures_table, ratios_table
from benchmarks.work import STEPS

PLACE = ROOT / "docs" / "results" / "performance.md"

_INTRODUCTION = """\
The work: {runs} runs of {steps} sequential steps that do nothing and return 200 bytes of JSON, submitted
one by one while the workers run. *hop*: every step is claimed (1 commit) and completed (1 commit) in the
journal and the next one goes through the broker. *sticky*: the next step is claimed in the commit that
completes the one before, within 20 steps and one second, and runs in place. *plain chain*: a Celery `chain`
with late acknowledgement and no result backend: nothing is recorded. *floor*: pgbench sends the fewest
statements that such a journal needs. *bare loop*: a Celery task sends those same statements for all steps of its
run and does nothing else, which is what Celery, psycopg and one commit a step cost whoever keeps the journal. All
use the same servers and the same pool (prefork); a measurement ends when the journal shows every run as completed,
or every run of plain Celery has marked its end.

Wall time moves with whatever else the machine does, so read the ratios: each is of two measurements of the
same round, taken within seconds of each other, and the order turns every round. Processor time per step is
steadier; counts (commits, WAL, broker commands) do not depend on the machine at all. Processor time is
that of all processes together. *Durable commits* are COMMIT records in the WAL, the run's creation included.
"""

_READING = """\
For a step that waits seconds for a model, either mode's cost is below one per cent. Sticky execution matters
where steps are many and short.

The bare loop says how much of the way to the floor is open to a journal under Celery at all. Between it and
sticky execution lie, in PostgreSQL, the plan and the history row with its digests, the look at the run's hold, and
the checks of the rows; outside it, the Python that types, digests, fences, numbers and records what a step does
(`docs/results/hot-path.md` has the shares). Between the bare loop and the floor lie a message through Celery for
every run, psycopg, and commits that seldom share a flush: 0.86 flushes a step where the floor needs 0.37, since
workers that compute between two commits rarely commit at once. Between the hop and the plain chain lie two commits
and what writes them; the hop itself is cheaper here, since messages are built directly and one client is kept per
channel (`tasks/transport.py`).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Everything one session found out."""

    command: str
    rounds: int
    runs: int
    results: Results
    latencies: list[Latency]
    submissions: float
    recovery: Recovery
    model_calls: list[CallCost]
    artifacts: list[ArtifactCost]
    load: tuple[float, float]  #: of the machine before and after


def write(session: Session, stand: Stand, *, to: Path = PLACE) -> None:
    """Replace the page."""
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text("\n".join(_page(session, stand)) + "\n")


def _page(session: Session, stand: Stand) -> list[str]:
    results = session.results
    page = ["# Performance", "", *_circumstances(session, stand), ""]
    page += [_INTRODUCTION.format(runs=session.runs, steps=STEPS), "## Ratios", ""]
    for mode in results.modes():
        page += [f"At {mode}:", "", *ratios_table(results, mode), ""]
    page += [
        "*By processor time*: how many of its steps the processor time of one of the other's buys."
    ]
    page += ["", "## Medians", ""]
    for mode in results.modes():
        page += [f"At {mode}; everything but wall time is per step:", ""]
        page += [*measures_table(results, mode), ""]
    return [*page, "## Beside throughput", "", *_extras(session), "", _READING.rstrip(), "",
            "## Model calls", "", *call_lines(session.model_calls), "",
            "## Artifacts", "", *artifact_lines(session.artifacts)]  # fmt: skip


def _circumstances(session: Session, stand: Stand) -> list[str]:
    before, after = session.load
    cores = os.cpu_count() or 1
    return [
        f"* {_today(stand)}, commit {machine.commit()}, `{session.command}`, {session.rounds} rounds",
        f"* {cores} cores ({machine.processor()}), {platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}",
        f"* PostgreSQL {_postgres(stand)} (fsync and synchronous_commit on, embedded defaults otherwise), "
        f"Valkey {_valkey(stand)}",
        f"* Celery {version('celery')}, kombu {version('kombu')}, redis {version('redis')}, "
        f"psycopg {version('psycopg')}",
        f"* load average {before:.1f} when the session began and {after:.1f} when it ended, its own "
        "included; how far single measurements lay apart is in the tables (min-max)",
    ]


def _extras(session: Session) -> list[str]:
    lines = [
        f"* One run of {IDLE_STEPS} steps on an idle machine, ms from step to step ({IDLE_RUNS} runs):"
    ]
    for one in session.latencies:
        spread = f"; median {one.median:.1f}, 95 % {one.p95:.1f}" if one.median and one.p95 else ""
        lines.append(f"  * {one.name}: mean {one.mean:.1f}{spread}")
    recovery = session.recovery
    return [
        *lines,
        f"* One client submits a batch of {SUBMITTED} runs of {STEPS} steps, recorded and published, at "
        f"{session.submissions:.0f} runs/s.",
        f"* Recovery of {recovery.steps:,} steps whose owner vanished: one sweep expires, decides, requeues "
        f"and publishes them in {recovery.seconds:.2f} s "
        f"({recovery.steps / recovery.seconds:,.0f} steps/s). Publishing as many messages alone takes "
        f"{recovery.publishing_seconds:.2f} s.",
    ]


def _today(stand: Stand) -> str:
    with psycopg.connect(stand.libpq_url()) as link:
        row = link.execute(
            "SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI')"
        ).fetchone()
    return f"{row[0]} UTC" if row else ""


def _postgres(stand: Stand) -> str:
    with psycopg.connect(stand.libpq_url()) as link:
        row = link.execute("SHOW server_version").fetchone()
    return str(row[0]) if row else ""


def _valkey(stand: Stand) -> str:
    with redis.Redis.from_url(stand.servers.broker_url, decode_responses=True) as client:
        told = client.info("server")
    return str(told.get("valkey_version") or told["redis_version"])
