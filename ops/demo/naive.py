"""The same documents and the same blows on plain Celery chains: what ``acks_late`` alone keeps.

A chain has no journal that could say which process holds which step, so blows fall on whatever runs;
beat and PostgreSQL have no counterpart. Progress is taken from the model server, since a first-in,
first-out queue files nothing before almost everything is read.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import redis

from examples.contract_review.estimate import CALLS_PER_DOCUMENT
from ops.demo import batch
from ops.demo.records import FaultRecord
from ops.demo.schedule import FaultKind, PlannedFault, drops
from ops.demo.session import TICK
from ops.demo.stage import TIMES, Stage, root
from ops.demo.view import View
from ops.demo.witnesses import Witnessed, Witnesses, witnesses
from ops.stack import Program, StackError
from ops.stack import Stage as Order
from ops.stack.identity import session_members
from ops.stack.stopping import StopRequests

PREFIX = "naive-"
KEYS = ("naive:naive", "naive:unacked")  #: its queue, and what was handed out and not acknowledged
VISIBILITY = 30  #: seconds; Redis' default is an hour, which nobody would wait for here
#: Seconds without any call or filing while messages are left: Celery looks for what was not
#: acknowledged about every 100 s only, whatever the timeout says.
PATIENCE = 125.0
_QUIET = 10.0  #: seconds of silence with an empty broker: nothing can come any more
_LIMIT = 420.0  #: seconds for everything
_SUBMIT_TIMEOUT = 60.0
_SUBMIT = """
import sys
from examples.contract_review import naive
for number, uri in enumerate(sys.argv[1:], start=1):
    naive.submit(uri, run=f"naive-{number}")
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NaiveResult:
    """What plain chains made of the same work."""

    documents: int
    testimony: Witnessed
    seconds: float
    faults: tuple[str, ...]

    @property
    def never_filed(self) -> int:
        return self.documents - self.testimony.distinct

    def to_json(self) -> dict[str, Any]:
        return {
            "documents": self.documents,
            "filed": self.testimony.distinct,
            "never_filed": self.never_filed,
            "duplicate_filings": self.testimony.duplicate_filings,
            "llm_calls": self.testimony.llm_calls,
            "seconds": round(self.seconds, 1),
            "faults": list(self.faults),
        }


@dataclass(slots=True)
class Comparison:
    """Runs the chains on a stage whose own batch is done."""

    stage: Stage
    view: View
    stop: StopRequests
    documents: int
    faults: Sequence[FaultRecord]
    _paused: list[tuple[float, str]] = field(default_factory=list)
    _played: list[str] = field(default_factory=list)
    _world: Witnesses = field(init=False)

    def run(self) -> NaiveResult | None:
        """Submit, strike, wait until nothing moves. None: someone asked to stop."""
        world = self._world = self._start()
        uris = batch.documents(self.documents)
        began = time.monotonic()
        self._submit(uris)
        self.view.say(f"the same {len(uris)} contracts on plain Celery chains")
        testimony = self._watch(world)
        if testimony is None:
            return None
        seconds = time.monotonic() - began
        return NaiveResult(
            documents=len(uris), testimony=testimony, seconds=seconds, faults=tuple(self._played)
        )

    def drop_answers(self) -> None:
        """As ours did: the registry files and does not say so."""
        self._world.registry.post("/faults", {"drop_responses": drops(self.documents)})

    def _start(self) -> Witnesses:
        supervisor = self.stage.supervisor
        ours = [
            name for name in supervisor.pids if name.startswith(("worker-", "beat-", "control"))
        ]
        supervisor.stop(*ours, in_a_hurry=lambda: self.stop.in_a_hurry)
        store = self.stage.memory.store(self.stage.home) / "naive"
        world = witnesses(
            self.stage.home,
            store,
            latency=self.stage.size.latency,
            root=root(),
            prefix=PREFIX,
        )
        self.stage.start_outside(world)
        for number in range(1, self.stage.size.workers + 1):
            supervisor.start(self._worker(f"{PREFIX}{number}", world))
        return world

    def _submit(self, uris: Sequence[str]) -> None:
        # A process of its own: chains leave results behind that talk to the broker when they go.
        with self.stage.home.log(f"{PREFIX}submit").open("ab") as log:
            subprocess.run(
                [sys.executable, "-c", _SUBMIT, *uris],
                cwd=root(),
                env=self._environment,
                stdout=log,
                stderr=log,
                check=True,
                timeout=_SUBMIT_TIMEOUT,
            )

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, "ONWARD_NAIVE_BROKER_URL": self.stage.servers.broker_url}

    def _worker(self, name: str, world: Witnesses) -> Program:
        argv = (
            "-m",
            "celery",
            "-A",
            "examples.contract_review.naive",
            "worker",
            "-n",
            f"{name}@%h",
        )
        environment = {
            **self._environment,
            **world.environment,
            "ONWARD_NAIVE_VISIBILITY_TIMEOUT": str(VISIBILITY),
        }
        return Program(
            name=name,
            argv=(sys.executable, *argv, "-c", str(self.stage.size.concurrency), "-l", "WARNING"),
            log=self.stage.home.log(name),
            env=environment,
            cwd=root(),
            stage=Order.WORKER,
        )

    def _watch(self, world: Witnesses) -> Witnessed | None:
        due = comparable(self.faults)
        began = moved = time.monotonic()
        told = ""
        known = world.testify()
        while known.distinct < self.documents and time.monotonic() < began + _LIMIT:
            if self.stop.requested:
                return None
            self.stage.poll()
            self._wake_due()
            before, known = known, _ask(world, known)
            if (known.llm_calls, known.filings) != (before.llm_calls, before.filings):
                moved = time.monotonic()
            elif self._is_over(time.monotonic() - moved):
                break
            if due and known.llm_calls >= CALLS_PER_DOCUMENT * due[0].document:
                self._strike(due.pop(0).kind)
            if told != (told := _told(known, time.monotonic() - moved)):
                self.view.say(told)
            time.sleep(TICK)
        return known

    def _is_over(self, silence: float) -> bool:
        if self._paused or silence < _QUIET:
            return False
        return silence > PATIENCE or self._left() == 0

    def _left(self) -> int | None:
        """Messages that may still lead to something; None while the broker is away."""
        try:
            with redis.Redis.from_url(self.stage.servers.broker_url, socket_timeout=3) as client:
                return int(client.llen(KEYS[0])) + int(client.hlen(KEYS[1]))
        except redis.RedisError:
            return None

    def _strike(self, kind: FaultKind) -> None:
        name = next(
            (
                one
                for one in self.stage.supervisor.pids
                if one.startswith(PREFIX) and one[-1:].isdigit()
            ),
            None,
        )
        if name is None:
            return
        try:
            _BLOWS[kind](self, name)
        except (StackError, OSError) as error:
            self.view.say(f"plain chains: {kind} could not be played: {error}")
            return
        self._played.append(str(kind))
        self.view.say(f"plain chains: {kind}")

    def _wake_due(self) -> None:
        for at, name in [one for one in self._paused if one[0] <= time.monotonic()]:
            self.stage.thaw(name)
            self._paused.remove((at, name))

    def pause(self, name: str) -> None:
        """As long as ours was: past a lease."""
        self.stage.freeze(name)
        self._paused.append((time.monotonic() + float(TIMES["ONWARD_LEASE_TTL"]) + 1, name))

    def kill_child(self, name: str) -> None:
        pid = self.stage.supervisor.pids[name]
        for child in session_members(pid)[-1:]:
            os.kill(child, signal.SIGKILL)


_BLOWS: dict[FaultKind, Callable[[Comparison, str], None]] = {
    FaultKind.CHILD_SIGKILL: Comparison.kill_child,
    FaultKind.ANSWERED_SIGKILL: Comparison.kill_child,
    FaultKind.RESPONSE_DROPPED: lambda one, _name: one.drop_answers(),
    FaultKind.WORKER_SIGKILL_RETURNS: lambda one, name: one.stage.supervisor.kill(name),
    FaultKind.WORKER_SIGKILL_GONE: lambda one, name: one.stage.supervisor.retire(name),
    FaultKind.WORKER_SIGSTOP: Comparison.pause,
    FaultKind.VALKEY_SIGKILL: lambda one, _name: one.stage.servers.kill("valkey"),
    FaultKind.VALKEY_WIPED: lambda one, _name: one.stage.servers.lose_broker_data(),
}


def comparable(faults: Sequence[FaultRecord]) -> list[PlannedFault]:
    """The blows that chains can take, at the same documents.

    The loss of the broker's data comes last, whenever it came to us: after it nothing is left to hit.
    """
    kinds = [fault.kind for fault in faults if fault.kind in _BLOWS]
    places = sorted(fault.document for fault in faults if fault.kind in _BLOWS)
    kinds.sort(key=lambda kind: kind is FaultKind.VALKEY_WIPED)
    return list(map(PlannedFault, kinds, places))


def _told(known: Witnessed, silence: float) -> str:
    calls = f"{known.llm_calls // 20 * 20}+ LLM calls"
    told = f"plain chains: {known.distinct // 5 * 5}+ filed, {calls}"
    if silence > _QUIET:
        told += "; waiting for Redis to give out again what killed workers had taken"
    return told


def _ask(world: Witnesses, known: Witnessed) -> Witnessed:
    try:
        return world.testify()
    except OSError:
        return known
