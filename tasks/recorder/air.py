"""Requests in the air while others of the same attempt go on beside them.

What stops one of them (its endpoint asks to be left alone, a budget is reached) ends the body, and a loop that ends
cancels the tasks it still has. Those requests are paid for, and an attempt that counts for nothing would pay for
them again and again: they go on until their answers are recorded, and the next attempt asks for what is missing.
Nobody waits for them when the step is not ours any more, when the worker leaves, or when the body's time is over.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from billiard.exceptions import SoftTimeLimitExceeded

from models.journal.errors import JournalError
from tasks import leaving
from tasks.errors import AttemptLost
from tasks.recorder.values import Arrived

if TYPE_CHECKING:
    from tasks.effects import Ledger

_NAP = 0.5  #: seconds between two looks whether an answer is still worth waiting for


class Sent(asyncio.Task[Arrived]):
    """One request, carried to its end even where its loop is told to end everything."""

    def __init__(
        self, coro: Coroutine[Any, Any, Arrived], *, loop: asyncio.AbstractEventLoop, air: "Air"
    ) -> None:
        super().__init__(coro, loop=loop)
        self._air, self._is_watched = air, False

    def cancel(self, msg: Any | None = None) -> bool:
        if self.done() or not self._air.keeps():
            return super().cancel(msg)
        if not self._is_watched:
            self._is_watched = True
            self.get_loop().call_later(_NAP, self._look)
        return False

    def _look(self) -> None:
        self._is_watched = False
        if not self.done():
            self.cancel()


class Seat:
    """A request's place in the line of its endpoint, from when it has one."""

    def __init__(self, air: "Air") -> None:
        self._air, self.is_taken = air, False

    def take(self) -> None:
        if not self.is_taken:
            self.is_taken = True
            self._air.count(1)

    def has_siblings(self) -> bool:
        """Whether others of this attempt are in the air, or about to be: sending it back would interrupt them."""
        return self._air.seated > int(self.is_taken)


class Air:
    """The requests of one attempt that are under way."""

    def __init__(self, ledger: "Ledger", require_trust: Callable[[], object]) -> None:
        self._ledger, self._require_trust = ledger, require_trust
        self._lock = threading.Lock()
        self._sent: set[Sent] = set()
        self._is_over = False
        self.seated = 0  #: requests that are in the air, or have a place in the line

    def keeps(self) -> bool:
        """Whether a request goes on though whoever waited for it is cancelled.

        Only where the attempt is stopped: it goes no further way that a recorded answer could contradict. A
        request that the body itself gives up ends at once.
        """
        stop = self._ledger.stopped
        if self._is_over or stop is None or isinstance(stop, AttemptLost) or leaving.is_leaving():
            return False
        try:
            self._require_trust()
        except JournalError:
            return False
        return True

    def launch(self, carrying: Coroutine[Any, Any, Arrived]) -> Sent:
        """Carry a request, in no scope of its own."""
        sent = Sent(carrying, loop=asyncio.get_running_loop(), air=self)
        with self._lock:
            self._sent.add(sent)
        sent.add_done_callback(self._landed)
        return sent

    def _landed(self, sent: Any) -> None:
        with self._lock:
            self._sent.discard(sent)
        if not sent.cancelled():
            sent.exception()  # whoever waited for it may be gone

    @contextmanager
    def seat(self) -> Iterator[Seat]:
        seat = Seat(self)
        try:
            yield seat
        finally:
            if seat.is_taken:
                self.count(-1)

    def count(self, change: int) -> None:
        with self._lock:
            self.seated += change

    async def settle(self, error: BaseException | None) -> None:
        """The body has ended so: what a stopped attempt has in the air is waited for, all else of it is cancelled."""
        if isinstance(error, SoftTimeLimitExceeded) or not self.keeps():
            return
        loop = asyncio.get_running_loop()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        while self.keeps():
            with self._lock:
                flying = [sent for sent in self._sent if sent.get_loop() is loop]
            if not flying:
                return
            await asyncio.wait(flying, timeout=_NAP)

    def close(self) -> None:
        """Nothing is waited for any more."""
        self._is_over = True
