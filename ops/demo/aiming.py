"""Finding a process that holds a running step, and making sure that it still does when it is hit.

The victim is stopped first, the journal is asked again a moment later, and only then the blow falls: what
was under way in its sockets has reached the journal by then, so the count of leases held is exact. A
victim that turns out to hold nothing goes on unharmed, and another one is looked for.
"""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from models.journal.errors import JournalUnavailable
from ops.demo import evidence
from ops.demo.evidence import HeldStep
from ops.demo.keepsake import Keepsake
from ops.demo.stage import Stage
from tasks.processes import is_alive

AIM_TIMEOUT = 20.0  #: seconds to find a process that holds a step

T = TypeVar("T")
Waiting = Generator[None, None, T]  #: yields while it waits; the main loop goes on meanwhile


class Missed(Exception):
    """A fault could not be played as it must be; the message says what failed."""


@dataclass(slots=True)
class Scene:
    """Where a fault is played."""

    stage: Stage
    batch_id: str
    keepsake: Keepsake
    say: Callable[[str], None]
    documents: int = 0
    settled: bool = False  #: nothing of the batch is in motion any more
    paused: set[str] = field(default_factory=set)  #: workers that a fault keeps stopped

    def held(self) -> Waiting[list[HeldStep]]:
        """Running steps, but for those of workers that are part of another fault."""
        held = yield from patiently(lambda: evidence.held(self.batch_id))
        return [one for one in held if one.worker not in self.paused]


@dataclass(frozen=True, slots=True)
class Aimed:
    """A stopped process with the steps it holds."""

    name: str
    pid: int
    held: tuple[HeldStep, ...]

    @property
    def victim(self) -> str:
        return f"{self.name} (pid {self.pid})"


def patiently(read: Callable[[], T], *, timeout: float = 60.0) -> Waiting[T]:
    """Read from the journal, waiting while it is away."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            return read()
        except JournalUnavailable as error:
            if time.monotonic() > deadline:
                raise Missed(f"the journal did not come back: {error}") from error
            yield


def aim_at_worker(
    scene: Scene, *, wanted: Callable[[Sequence[HeldStep]], bool] = bool
) -> Waiting[Aimed]:
    """Stop a worker that holds running steps, the busiest first."""
    deadline = _deadline(scene)
    while deadline():
        busy = Counter(one.worker for one in (yield from scene.held()))
        for name, _ in busy.most_common():
            pid = scene.stage.supervisor.pids.get(name)
            if pid is None or not name.startswith("worker-"):
                continue
            scene.stage.freeze(name)
            found: tuple[HeldStep, ...] = ()
            try:
                yield
                found = _living(one for one in (yield from scene.held()) if one.worker == name)
                if found and wanted(found):
                    return Aimed(name, pid, found)
                found = ()
            finally:
                if not found:
                    scene.stage.thaw(name)
        yield
    raise Missed(_nothing_held(scene))


def aim_at_child(scene: Scene) -> Waiting[Aimed]:
    """Stop one pool child that runs a step."""
    deadline = _deadline(scene)
    while deadline():
        for one in (yield from scene.held()):
            if not is_alive(one.pid, one.pid_started):
                continue
            _signal(one.pid, signal.SIGSTOP)
            found: tuple[HeldStep, ...] = ()
            try:
                yield
                found = _living(now for now in (yield from scene.held()) if now.pid == one.pid)
                if found:
                    return Aimed(f"a child of {one.worker}", one.pid, found)
            finally:
                if not found:
                    _signal(one.pid, signal.SIGCONT)
        yield
    raise Missed(_nothing_held(scene))


def kill(pid: int) -> None:
    """SIGKILL."""
    _signal(pid, signal.SIGKILL)


def _deadline(scene: Scene) -> Callable[[], bool]:
    until = time.monotonic() + AIM_TIMEOUT
    return lambda: time.monotonic() < until and not scene.settled


def _nothing_held(scene: Scene) -> str:
    if scene.settled:
        return "the batch was over before a process with a running step was found"
    return f"no process held a running step for {AIM_TIMEOUT:.0f} s"


def _living(held: Iterable[HeldStep]) -> tuple[HeldStep, ...]:
    return tuple(one for one in held if is_alive(one.pid, one.pid_started))


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
