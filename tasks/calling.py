"""A tool's code on a thread of its own, for as long as it may take and no longer.

Python cannot stop a call that hangs. It is left behind on its thread instead, and what it brings when it
ends after all is handed to ``late`` there, on that thread's own connection to the journal.
"""

from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from threading import Event, Lock, Thread
from typing import Any, TypeAlias

from models import database
from tasks.awaiting import to_its_end

#: Seconds that a late answer waits for the note that its call was given up; the note may never come.
_NOTE_TIMEOUT = 120.0


@dataclass(frozen=True, slots=True)
class Answered:
    """The call returned this."""

    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """The call raised this."""

    error: BaseException


Answer: TypeAlias = Answered | Raised


class Call:
    """One call. ``check`` is the last look before it: when that raises, nothing has left."""

    def __init__(
        self,
        work: Callable[[], Any],
        *,
        check: Callable[[], object],
        late: Callable[[Answer], object],
    ) -> None:
        self._work, self._check, self._late = work, check, late
        self._lock = Lock()
        self._ended = Event()
        self._noted = Event()
        self._answer: Answer | None = None
        self._given_up = False
        self.has_left = False  #: the work was begun: it may have reached the outside world

    def run(self, timeout: float) -> Answer | None:
        """Its answer, or None when there is none after ``timeout`` seconds; then it is given up."""
        context = copy_context()
        Thread(target=context.run, args=(self._go,), name="onward-call", daemon=True).start()
        self._ended.wait(timeout)
        return self.give_up()

    def give_up(self) -> Answer | None:
        """Wait no longer: what has not left will not leave, what comes from now on is late."""
        with self._lock:
            self._given_up = self._answer is None
            return self._answer

    def noted(self) -> None:
        """It is written down that the call was given up: a late answer may be filed now."""
        self._noted.set()

    def _go(self) -> None:
        try:
            answer = self._attempt()
            with self._lock:
                late = self._given_up
                self._answer = None if late else answer
            self._ended.set()
            if late and self.has_left:
                self._noted.wait(_NOTE_TIMEOUT)
                self._late(answer)
        finally:
            database.close()

    def _attempt(self) -> Answer:
        try:
            self._check()
            with self._lock:
                if self._given_up:
                    return Answered(None)
                self.has_left = True
            return Answered(to_its_end(self._work()))
        except BaseException as error:
            return Raised(error)
