"""Keeping a compensation while its tools work: a heartbeat, and a trust window on the monotonic clock."""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from models import database
from models.errors import OnwardError
from models.journal import undoing
from models.journal.errors import LeaseLost
from models.journal.undoing import Doing
from models.settings import settings

_log = logging.getLogger("onward.compensate")


class Holding:
    """A compensation that this process goes on with, how long it may believe so, and how it is going."""

    def __init__(self, doing: Doing, *, sent_at: float) -> None:
        self.doing = doing
        self.streak = doing.streak
        self.again = False  #: another message is to go on at once
        self._trusted_until = _trusted_until(sent_at)
        self._lost = False

    def require_trust(self) -> None:
        """Raise ``LeaseLost`` unless it is certainly still ours: nothing new is sent then."""
        if self._lost or time.monotonic() > self._trusted_until:
            raise LeaseLost(
                f"The undoing of run {self.doing.run_id} is not certainly ours any more: nothing new is sent "
                f"here, and the next to begin goes on."
            )

    def renew(self, *, progress: bool = False) -> None:
        """Hold on to it. ``progress``: something came of it."""
        sent_at = time.monotonic()
        if undoing.renew(self.doing, progress=progress):
            self._trusted_until = _trusted_until(sent_at)
        else:
            self._lost = True

    def progress(self) -> bool:
        """One more is done: what failed before counts no more. True."""
        self.renew(progress=True)
        self.streak = 0
        return True

    def wait(self, seconds: float, why: str, *, counts: bool = False) -> bool:
        """Let go of it for a while. False: this task is at its end."""
        undoing.defer(self.doing, after=seconds, why=why, counts=counts)
        return False

    def hand_over(self, queue: str) -> bool:
        """Let go of it, to be gone on with at once by whoever serves this queue. False, as ``wait``."""
        undoing.defer(self.doing, after=0.0, why="", queue=queue)
        self.again = True
        return False


@contextmanager
def hold(doing: Doing, *, sent_at: float) -> Iterator[Holding]:
    """Keep the lease alive for the duration, on a thread of its own. ``sent_at``: when it was asked for."""
    holding, over = Holding(doing, sent_at=sent_at), threading.Event()
    beat = threading.Thread(
        target=_beat, args=(holding, over), name="onward-undo-heartbeat", daemon=True
    )
    beat.start()
    try:
        yield holding
    finally:
        over.set()
        beat.join()


def _beat(holding: Holding, over: threading.Event) -> None:
    try:
        while not over.wait(settings().heartbeat):
            try:
                holding.renew()
            except OnwardError as error:
                _log.warning("The undoing could not be held on to: %s. Trying again.", error)
    finally:
        database.close()


def _trusted_until(sent_at: float) -> float:
    return sent_at + settings().lease_ttl - settings().trust_margin
