"""Where a worker process stands, and what happens to each request that leaves it.

    transport --begin--> Passing --sent()--> real transport --answered()--> Twist | None --> caller

Transports (``http_client``, ``httpx``) only translate: what a fault does is decided here.
"""

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from urllib.parse import urlsplit

from models.failpoints import FailPoint
from ops.testing.certify.faults import Fault, FaultKind
from ops.testing.certify.passing import Call, Passing, Task
from ops.testing.certify.records import Exchange, Notebook

LAST_BREATH = 2.0  #: seconds that a process about to be killed waits for answers
_KEY_HEADERS = ("idempotency-key", "x-idempotency-key", "idempotency-token", "x-request-id")


class Wire:
    """All that a process knows while it is certified: its task, its fault, its calls of tools."""

    def __init__(self, notebook: Notebook) -> None:
        self.notebook = notebook
        self._task: Task | None = None
        self._fault: Fault | None = None
        self._calls: list[Call] = []
        self._call: ContextVar[Call | None] = ContextVar(
            "the tool's function under way", default=None
        )
        self._inside: ContextVar[bool] = ContextVar("within a recorded request", default=False)
        self._lock = threading.Lock()
        self._moving = threading.Condition()
        self._on_their_way: set[Passing] = set()
        self._dying = False

    def begin_task(self, run_id: str, step_key: str) -> None:
        self._task = Task(run_id, step_key)
        self._fault = self.notebook.scheduled(run_id)

    def end_task(self) -> None:
        self._task = self._fault = None

    @contextmanager
    def calling(self, *, tool: str, function: str, key: str, timeout: float) -> Iterator[None]:
        """While a function of a tool runs, on whichever thread."""
        call = Call(tool, function, key, timeout, self._task)
        before = self._call.set(call)
        with self._lock:
            self._calls.append(call)
        try:
            yield
        finally:
            with self._lock:
                self._calls.remove(call)
            self._call.reset(before)

    @contextmanager
    def within(self) -> Iterator[None]:
        """While a recorded request is under way: the connections it opens are its own."""
        before = self._inside.set(True)
        try:
            yield
        finally:
            self._inside.reset(before)

    def begin(self, method: str, url: str, headers: Mapping[str, str]) -> Passing | None:
        """A request is about to leave. None: no step and no tool has to do with it."""
        call, task = self._current_call(), self._task
        if call is None and task is None:
            return None
        exchange = self._exchange(method.upper(), url, headers, call=call, task=task)
        return Passing(self, exchange, call)

    def note_connection(self, host: str, port: int) -> None:
        """A connection of a step was opened; unless a recorded request did it, nobody sees what it carries."""
        if self._task is not None and self._task.step_key and not self._inside.get():
            self.notebook.connected(self._task.run_id, self._task.step_key, f"{host}:{port}")

    def choose(self, point: FailPoint, _step_name: str | None, about: str | None) -> str | None:
        """What ``models.failpoints`` asks at each point of the engine."""
        task, fault = self._task, self._fault
        if task is None or fault is None or task.step_key != fault.step_key:
            return None
        if fault.kind != point.value or (
            about is not None and suffix(about, task.run_id) != fault.effect
        ):
            return None
        if not self.notebook.take(task.run_id):
            return None
        self._hold_breath()
        return "kill"

    def duplicates(self, point: FailPoint) -> bool:
        """Whether the message of the step at this point is to come once more."""
        task, fault = self._task, self._fault
        if task is None or fault is None or fault.kind != FaultKind.DUPLICATE:
            return False
        if task.step_key != fault.step_key or point not in (FailPoint.P1, FailPoint.P7):
            return False
        self.notebook.take(task.run_id)
        return True

    def leave(self, passing: Passing) -> None:
        """A request is about to leave; in a process that is about to die none does any more."""
        with self._moving:
            self._moving.wait_for(lambda: not self._dying)
            self._on_their_way.add(passing)

    def arrive(self, passing: Passing) -> None:
        """A request is over. In a process that is about to die nobody gets to act on its answer."""
        with self._moving:
            self._on_their_way.discard(passing)
            self._moving.notify_all()
            self._moving.wait_for(lambda: not self._dying)

    def die_at(self, kind: FaultKind, exchange: Exchange) -> None:
        if self.strikes(kind, exchange):
            self._hold_breath()
            os.kill(os.getpid(), signal.SIGKILL)

    def _hold_breath(self) -> None:
        """Before a kill, let what others have sent be answered, so that it is known what was applied.

        Requests of this thread's own event loop cannot be: they stay undecided.
        """
        with self._moving:
            self._dying = True
            self._moving.wait_for(lambda: not self._on_their_way, timeout=LAST_BREATH)

    def strikes(self, kind: FaultKind, exchange: Exchange) -> bool:
        """Whether the fault of this run is meant for this request, and happens now."""
        fault, task = self._fault, self._task
        if fault is None or fault.kind != kind or fault.request is None or task is None:
            return False
        asked = fault.request
        there = (fault.step_key, fault.effect, asked.method, asked.host, asked.occurrence)
        here = (
            exchange.step_key,
            exchange.effect,
            exchange.method,
            exchange.host,
            exchange.occurrence,
        )
        return (
            exchange.run_id == task.run_id
            and here == there
            and _is_of_the_body(exchange)
            and self.notebook.take(task.run_id)
        )

    def _current_call(self) -> Call | None:
        """The call on this thread, or the latest of this task for a thread that a tool has started.

        A call that was given up goes on beside later tasks, which are not to be taken for it.
        """
        found = self._call.get()
        with self._lock:
            ours = [call for call in self._calls if call.task is self._task]
        return found or (ours[-1] if ours else None)

    def _exchange(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        *,
        call: Call | None,
        task: Task | None,
    ) -> Exchange:
        run_id, step_key, effect = _owner(call, task)
        parts = urlsplit(url)
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        known = {name.lower(): value for name, value in headers.items()}
        exchange = Exchange(
            run_id=run_id, step_key=step_key, effect=effect,
            tool=call.tool if call else "", via=call.function if call else "step",
            method=method, host=parts.netloc.rpartition("@")[2], path=path.replace(run_id, "{run}"),
            key=next((known[name] for name in _KEY_HEADERS if name in known), ""),
            carries_effect_key=call is not None and _carries(call.key, path, known),
        )  # fmt: skip
        if task is not None and _is_of_the_body(exchange):
            with self._lock:
                mark = (exchange.effect, exchange.method, exchange.host)
                exchange.occurrence = task.counts[mark]
                task.counts[mark] += 1
        return exchange


def suffix(key: str, run_id: str) -> str:
    """An effect's key without its run: what is the same in every run of a workflow.

    A key that was too long ends with a digest of the whole, which is another in each run.
    """
    return key.removeprefix(f"{run_id}:").partition("~")[0]


def _owner(call: Call | None, task: Task | None) -> tuple[str, str, str]:
    """(run, step, effect). A call that outlives its step is known by its key."""
    run_id = task.run_id if task else ""
    step_key = task.step_key if task else ""
    if call is None:
        return run_id, step_key, ""
    if call.task is not task or not call.key.startswith(f"{run_id}:"):
        run_id = call.key.partition(":")[0]
        step_key = ""
    return run_id, step_key, suffix(call.key, run_id)


def _is_of_the_body(exchange: Exchange) -> bool:
    return exchange.via in ("step", "execute") and exchange.step_key != ""


def _carries(key: str, path: str, headers: Mapping[str, str]) -> bool:
    return key in path or any(key in value for value in headers.values())
