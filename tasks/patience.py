"""Writing an outcome while the database comes and goes: the statement is repeated, never the work."""

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from billiard.exceptions import SoftTimeLimitExceeded

from models.journal.errors import CommitUnknown, JournalUnavailable, RolledBack
from models.settings import settings

_log = logging.getLogger("onward.engine")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0  #: seconds between tries

T = TypeVar("T")


def recorded(
    write: Callable[[], T], *, confirmed: Callable[[], T | None], stoppable: bool = False
) -> T:
    """Write something down, through outages of up to two leases.

    A connection that broke at COMMIT leaves it open whether the write went through: ``confirmed`` reads
    back what it led to. Publishing is then left to the sweep, since the grace may be over. Gives up with
    ``JournalUnavailable``: the lease runs out and the step becomes unknown, which is what it is. A soft
    time limit that strikes here came too late to stop the work, and must not throw its result away;
    ``stoppable``: the work goes on afterwards, so the caller hears of the limit and sees to the write.
    """
    deadline = time.monotonic() + 2 * settings().lease_ttl
    pause, in_doubt = 0.0, False
    while True:
        try:
            if pause:  # a sleep of nothing costs a context switch
                time.sleep(pause)
            if in_doubt and (found := confirmed()) is not None:
                return found
            return write()
        except SoftTimeLimitExceeded:
            if stoppable:
                raise
            in_doubt = True
        except (JournalUnavailable, RolledBack) as error:
            in_doubt = in_doubt or isinstance(error, CommitUnknown)
            if time.monotonic() > deadline:
                raise
            _log.warning("Not recorded yet: %s Trying again.", error)
            pause = min(max(2 * pause, _FIRST_PAUSE), _LONGEST_PAUSE)


def persistent(work: Callable[[], T], trouble: type[Exception]) -> T:
    """Do something that may be repeated until it goes without this trouble, for up to two leases."""
    deadline, pause = time.monotonic() + 2 * settings().lease_ttl, _FIRST_PAUSE
    while True:
        try:
            return work()
        except trouble as error:
            if time.monotonic() + pause > deadline:
                raise
            _log.warning("Not done yet: %s Trying again.", error)
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
