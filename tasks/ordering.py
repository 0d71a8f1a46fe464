"""Which call of a step is which: the keys of its effects, the same in every attempt.

A call is known by its place among the step's calls of the same tool. Where that place is not the same after
a crash (threads, ``asyncio.gather``), the author names the call instead, or nothing is sent.
"""

import asyncio
import threading
from typing import Any

from models.ids import check_identifier, idempotency_key, named_effect_key
from tasks.errors import CallNameNeeded, CallNameTaken


class Order:
    """The keys given out in one attempt of one step."""

    def __init__(self, run_id: str, step_key: str) -> None:
        self._run_id, self._step_key = run_id, step_key
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}
        self._thread: int | None = None
        self._task: asyncio.Task[object] | None = None
        self.given: set[str] = set()
        self._askers: dict[str, asyncio.Task[object] | None] = {}

    def enter(self) -> None:
        """From here on, calls of this thread and asyncio task are the body's own, in its order."""
        self._thread, self._task = threading.get_ident(), task_now()

    @property
    def is_own(self) -> bool:
        """Whether this thread and asyncio task are the body's own."""
        return (threading.get_ident(), task_now()) == (self._thread, self._task)

    def has_gone_past(self, key: str) -> bool:
        """Whether whoever asks now has caught what became of this call: the body, or the same asyncio task.

        A thread says nothing: one of a pool goes on to another's work after an error that it handed over.
        """
        asker = task_now()
        return self.is_own or (asker is not None and self._askers.get(key) is asker)

    def key(self, tool: str, name: str | None) -> str:
        """The key of the next call of a tool. Raises before anything is sent."""
        if name is not None:
            return self._named(tool, check_identifier("name", name))
        if self._thread is None:
            self.enter()
        if not self.is_own:
            raise CallNameNeeded(
                f"Step {self._step_key!r} of run {self._run_id} calls {tool} beside its body, from a thread or "
                f"an asyncio task of its own. In which order such calls come is not the same after a crash, so "
                f"nothing was sent: tell them apart with ctx.call(tool, request, name=...)."
            )
        with self._lock:
            self._counts[tool] = count = self._counts.get(tool, 0) + 1
            key = idempotency_key(self._run_id, self._step_key, tool, count)
            self.given.add(key)
            self._askers[key] = self._task
        return key

    def _named(self, tool: str, name: str) -> str:
        key = named_effect_key(self._run_id, self._step_key, tool, name)
        with self._lock:
            if key in self.given:
                raise CallNameTaken(
                    f"Step {self._step_key!r} of run {self._run_id} calls {tool} twice with name={name!r}. A "
                    f"name stands for one effect, so nothing was sent: give the second call a name of its own."
                )
            self.given.add(key)
            self._askers[key] = task_now()
        return key


def task_now() -> "asyncio.Task[Any] | None":
    """The asyncio task that this code runs in, if any."""
    loop = (
        asyncio._get_running_loop()
    )  # documented; the public one raises outside a loop, at 1 us a step
    return None if loop is None else asyncio.current_task(loop)
