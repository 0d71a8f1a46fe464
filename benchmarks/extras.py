"""What else a user asks: how fast one run is on an idle machine, how fast runs are taken in, how long a
recovery takes."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.contestants import Onward, PlainChain, completions, submit_run, wait_for
from benchmarks.stand import Mode, Stand
from models import database
from models.ids import new_nonce
from models.journal import steps, submitting
from models.journal.values import Carrier, Wakeup
from models.plan import ROOT_BRANCH
from ops import client
from recovery.sweep import sweep_once
from tasks.publishing import publish
from tasks.starting import prepare

IDLE_STEPS = 50
IDLE_RUNS = 5
SUBMITTED = 500
STALE = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Milliseconds from one step's end to the next one's, of runs that have the machine to themselves."""

    name: str
    mean: float
    median: float | None = None
    p95: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """A mass recovery: steps whose owners are gone, from the sweep's first look to the last message."""

    steps: int
    seconds: float
    publishing_seconds: float  #: of the same number of messages, sent again by themselves


def latencies(stand: Stand) -> list[Latency]:
    """One run after the other, each of many steps, on eight idle processes."""
    mode = Mode(concurrency=8, events=False)
    found = [_plain_latency(stand, mode)]
    for contestant in (Onward("hop", sticky=False), Onward("sticky", sticky=True)):
        with contestant.workers(stand, mode):
            _one_by_one(mode, runs=2)  # warm-up
            since = _now()
            _one_by_one(mode, runs=IDLE_RUNS)
            found.append(_gaps(contestant.name, since))
    return found


def submission_rate() -> float:
    """Runs a second that one client submits in one batch, recorded and published."""
    inputs = [{"steps": 10}] * SUBMITTED
    client.submit_batch("bench", inputs[:20])
    began = time.monotonic()
    client.submit_batch("bench", inputs)
    return SUBMITTED / (time.monotonic() - began)


def recovery(stand: Stand) -> Recovery:
    """Let an owner vanish while it holds many steps, and sweep once, in this process."""
    from tasks.celery import app  # noqa: PLC0415 - reads its settings when it is imported

    wakeups = _abandoned()
    with _a_minute_later():
        began = time.monotonic()
        swept = sweep_once(app)
        seconds = time.monotonic() - began
    assert swept is not None  # noqa: S101 - nobody else sweeps here
    began = time.monotonic()
    publish(app, wakeups)
    publishing = time.monotonic() - began
    with stand.valkey as broker:
        broker.flushdb()
    return Recovery(steps=swept.requeued, seconds=seconds, publishing_seconds=publishing)


def _abandoned() -> list[Wakeup]:
    """Running steps of one owner that nobody will hear of again, and the messages that began them."""
    owner = Carrier("start-gone", "gone@nowhere", "gone", os.getpid(), 0)
    wakeups: list[Wakeup] = []
    for _ in range(STALE):
        submitted = submitting.submit(prepare("bench", {"steps": 1}))
        wakeups.extend(submitted.wakeups)
        steps.claim(
            submitted.run_id, ROOT_BRANCH, "first", workflow="bench", versions=("1",), carrier=owner,
            nonce=new_nonce(),
        )  # fmt: skip
    return wakeups


def _plain_latency(stand: Stand, mode: Mode) -> Latency:
    """Mean only: nobody records when a step of a plain chain ends."""
    contestant = PlainChain()
    with contestant.workers(stand, mode):
        submit, finished = contestant.hands(stand, mode)

        def one_by_one(count: int) -> None:
            for run in range(count):
                target = finished() + 1
                submit(run, IDLE_STEPS)
                wait_for(finished, target)

        one_by_one(2)  # warm-up
        began = time.monotonic()
        one_by_one(IDLE_RUNS)
        spent = time.monotonic() - began
    return Latency(name=contestant.name, mean=spent * 1000 / IDLE_RUNS / IDLE_STEPS)


def _one_by_one(mode: Mode, *, runs: int) -> None:
    completed = completions()
    for run in range(runs):
        submit_run(mode, run, IDLE_STEPS)
        wait_for(completed, run + 1)


def _now() -> object:
    row = database.fetch_one("SELECT onward_now()", {})
    assert row is not None  # noqa: S101 - it has a row
    return row[0]


def _gaps(name: str, since: object) -> Latency:
    """From the journal's own times of completion."""
    row = database.fetch_one(
        """
        SELECT avg(gap), percentile_cont(0.5) WITHIN GROUP (ORDER BY gap),
               percentile_cont(0.95) WITHIN GROUP (ORDER BY gap)
        FROM (SELECT 1000 * extract(epoch FROM finished_at - lag(finished_at)
                     OVER (PARTITION BY run_id ORDER BY finished_at))::float8 AS gap
              FROM step WHERE started_at > %(since)s) gaps""",
        {"since": since},
    )
    assert row is not None  # noqa: S101 - it has a row
    return Latency(name=name, mean=row[0], median=row[1], p95=row[2])


@contextmanager
def _a_minute_later() -> Iterator[None]:
    """For this connection every lease of now is over."""
    later = "(clock_timestamp() + interval '1 minute')::text"
    database.fetch(f"SELECT set_config('onward.now', {later}, false)", {})
    try:
        yield
    finally:
        database.fetch("SELECT set_config('onward.now', '', false)", {})
