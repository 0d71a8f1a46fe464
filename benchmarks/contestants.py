"""The contestants: each does the work once, warmed up, and is measured over exactly that."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from benchmarks.least import prepare_database
from benchmarks.meters import Measure, Meter
from benchmarks.stand import Mode, Stand
from benchmarks.work import STEPS
from models import database

DEADLINE = 300.0  #: seconds for one measurement, far beyond what a slow machine takes
SHORTEST_PAUSE, LONGEST_PAUSE = 0.003, 0.1  #: seconds between two looks at what is done
WARM_UP = 3  #: runs for each process of the pool


class Contestant(ABC):
    """Something that runs chains of steps."""

    name: str

    @abstractmethod
    def measure(self, stand: Stand, mode: Mode, *, runs: int) -> Measure:
        """Do the work once."""


class _OnWorkers(Contestant):
    """Submits runs to a worker that is started for the measurement."""

    def measure(self, stand: Stand, mode: Mode, *, runs: int) -> Measure:
        with self.workers(stand, mode) as pid:
            submit, finished = self.hands(stand, mode)
            warm = WARM_UP * mode.concurrency
            _submit_and_wait(submit, finished, runs=warm, steps=STEPS)
            time.sleep(0.5)  # what follows the last commit is no part of the next measurement
            meter = Meter(stand, pid)
            _submit_and_wait(submit, finished, runs=runs, steps=STEPS)
            return meter.stop(runs * STEPS)

    @abstractmethod
    @contextmanager
    def workers(self, stand: Stand, mode: Mode) -> Iterator[int]:
        """The worker, while the work is done."""

    @abstractmethod
    def hands(
        self, _stand: Stand, mode: Mode, /
    ) -> tuple[Callable[[int, int], object], Callable[[], int]]:
        """(submit run N of so many steps, how many runs are finished)."""


@dataclass(frozen=True)
class Onward(_OnWorkers):
    """Every step claimed and completed in the journal, over the broker or in place."""

    name: str
    sticky: bool

    @contextmanager
    def workers(self, stand: Stand, mode: Mode) -> Iterator[int]:
        with stand.onward(mode, sticky=self.sticky) as pid:
            yield pid

    def hands(
        self, _stand: Stand, mode: Mode
    ) -> tuple[Callable[[int, int], object], Callable[[], int]]:
        return partial(submit_run, mode), completions()


@dataclass(frozen=True)
class PlainChain(_OnWorkers):
    """A Celery chain, every step a task with late acknowledgement, nothing recorded."""

    name: str = "plain chain"

    @contextmanager
    def workers(self, stand: Stand, mode: Mode) -> Iterator[int]:
        with stand.plain(mode, module="benchmarks.plain") as pid:
            yield pid

    def hands(
        self, stand: Stand, mode: Mode
    ) -> tuple[Callable[[int, int], object], Callable[[], int]]:
        from benchmarks import plain  # noqa: PLC0415 - reads its settings when it is imported

        plain.app.conf.task_send_sent_event = mode.events
        return plain.submit, partial(finished_runs, stand)


@dataclass(frozen=True)
class BareLoop(_OnWorkers):
    """A Celery task that sends the floor's statements for all steps of a run."""

    name: str

    @contextmanager
    def workers(self, stand: Stand, mode: Mode) -> Iterator[int]:
        prepare_database(stand)
        with stand.plain(mode, module="benchmarks.bare") as pid:
            yield pid

    def hands(
        self, stand: Stand, mode: Mode
    ) -> tuple[Callable[[int, int], object], Callable[[], int]]:
        from benchmarks import bare  # noqa: PLC0415 - reads its settings when it is imported

        bare.app.conf.task_send_sent_event = mode.events
        return bare.submit, partial(finished_runs, stand)


def finished_runs(stand: Stand) -> int:
    """How many runs of plain Celery have left their line."""
    return stand.finished.read_bytes().count(b"\n")


def submit_run(mode: Mode, _run: int, steps: int) -> None:
    """Start one run of the journal, as a client does."""
    from tasks.celery import app  # noqa: PLC0415 - reads its settings when it is imported
    from tasks.starting import start_run  # noqa: PLC0415

    app.conf.task_send_sent_event = mode.events
    start_run(app, "bench", {"steps": steps})


def completions() -> Callable[[], int]:
    """Counts the runs that began after this and are completed: no look at older ones, which are many by and by."""
    last = database.fetch_one("SELECT coalesce(max(run_id), '') FROM run", {})
    assert last is not None  # noqa: S101 - it has a row
    params = {"last": last[0]}

    def count() -> int:
        row = database.fetch_one(
            "SELECT count(*) FROM run WHERE run_id > %(last)s AND state = 'completed'", params
        )
        assert row is not None  # noqa: S101 - it has a row
        return int(row[0])

    return count


def wait_for(count: Callable[[], int], target: int) -> None:
    """Until so many runs are finished. Looks seldom while much is left: looking costs the contestant."""
    began, before = time.monotonic(), count()
    while (done := count()) < target:
        waited = time.monotonic() - began
        if waited > DEADLINE:
            raise TimeoutError(f"{target - done} runs are unfinished after {DEADLINE:.0f} s")
        expected = waited * (target - done) / max(done - before, 1)
        time.sleep(min(max(expected / 20, SHORTEST_PAUSE), LONGEST_PAUSE))


def _submit_and_wait(
    submit: Callable[[int, int], object], finished: Callable[[], int], *, runs: int, steps: int
) -> None:
    before = finished()
    for run in range(runs):
        submit(run, steps)
    wait_for(finished, before + runs)
