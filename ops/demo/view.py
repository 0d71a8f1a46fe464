"""What one sees while the batch runs: a live screen on a terminal, plain lines everywhere else."""

import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ops.demo.evidence import Progress

_PLAIN_PERIOD = 5.0  #: seconds between two lines of progress where there is no screen
_RATE_WINDOW = 20.0  #: seconds over which the rate is taken


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """One worker as shown."""

    name: str
    pid: int
    steps: Sequence[str]


class Rate:
    """Documents a second over the last moments, and what that means for the rest."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def note(self, at: float, completed: int) -> None:
        self._seen.append((at, completed))
        while len(self._seen) > 1 and self._seen[0][0] < at - _RATE_WINDOW:
            self._seen.popleft()

    @property
    def per_second(self) -> float:
        (first, before), (last, after) = self._seen[0], self._seen[-1]
        return (after - before) / (last - first) if last > first else 0.0

    def eta(self, remaining: int) -> float | None:
        """Seconds to go; None when that cannot be told."""
        return remaining / self.per_second if self._seen and self.per_second > 0 else None


class View(Protocol):
    """Where news and progress go."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...
    def say(self, line: str) -> None: ...
    def show(self, progress: Progress, *, elapsed: float, workers: Sequence[WorkerRow]) -> None: ...


class PlainView:
    """Lines on standard error."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
        self._rate = Rate()
        self._next = 0.0
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        """Nothing to put away."""

    def say(self, line: str) -> None:
        self._console.print(f"{time.monotonic() - self._began:6.1f} s  {line}")

    def show(self, progress: Progress, *, elapsed: float, workers: Sequence[WorkerRow]) -> None:
        self._rate.note(elapsed, progress.completed)
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _PLAIN_PERIOD
            self.say(f"{_summary(progress, self._rate)}, {len(workers)} workers")


class LiveView:
    """Lines that scroll by, and below them a bar and the workers, drawn anew several times a second."""

    def __init__(self) -> None:
        self._rate = Rate()
        self._began = time.monotonic()
        self._live = Live(console=Console(highlight=False), refresh_per_second=5, transient=True)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._live.__exit__(None, None, None)

    def say(self, line: str) -> None:
        at = Text(f"{time.monotonic() - self._began:6.1f} s  ", style="dim")
        self._live.console.print(at + Text(line, style=_style(line)))

    def show(self, progress: Progress, *, elapsed: float, workers: Sequence[WorkerRow]) -> None:
        self._rate.note(elapsed, progress.completed)
        bar = ProgressBar(total=max(1, progress.documents), completed=progress.completed)
        summary = Text(_summary(progress, self._rate))
        self._live.update(Group(bar, summary, _workers_table(workers)))


def _style(line: str) -> str:
    """Green for what was overcome, red for what was struck."""
    if "recovered by" in line or "first contract" in line:
        return "green"
    return "red" if "(pid" in line and ": " in line else ""


def choose(*, plain: bool) -> View:
    """A screen where there is one and it is wanted."""
    return PlainView() if plain or not sys.stdout.isatty() else LiveView()


def _summary(progress: Progress, rate: Rate) -> str:
    left = rate.eta(progress.documents - progress.completed - progress.stopped)
    told = f"{progress.completed} of {progress.documents} contracts reviewed"
    if progress.stopped:
        told += f", {progress.stopped} stopped"
    told += f", {progress.steps_done} of {progress.steps_planned} steps"
    if left is not None:
        told += f", {rate.per_second:.1f}/s, {left:.0f} s to go"
    return told


def _workers_table(workers: Sequence[WorkerRow]) -> Table:
    table = Table("worker", "pid", "running", expand=True)
    for worker in workers:
        table.add_row(worker.name, str(worker.pid), ", ".join(worker.steps))
    return table
