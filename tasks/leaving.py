"""Leaving on SIGTERM: when the steps in the air have ended, at the latest when their grace is over.

Celery's soft shutdown sleeps through the whole grace once anything runs, so that a step of a tenth of a
second would keep its worker for 25. Its main process is inside a signal handler meanwhile and takes
nothing new: whether a child still holds a step is asked of the journal, on a thread with a connection of
its own, since the handler may have interrupted this one's.
"""

import logging
import math
import mmap
import threading
import time

from billiard.common import terminate_handler_fired
from celery.exceptions import WorkerShutdown, WorkerTerminate
from celery.worker import state

from models import database
from models.journal import workers
from models.journal.errors import JournalUnavailable
from models.messages import describe
from models.settings import settings
from tasks.errors import StepExited, Stop

_log = logging.getLogger("onward.worker")

_LOOK_PERIOD = 0.2  #: seconds
#: In a row: what was handed to a child as the signal came is claimed between two of them.
_QUIET_LOOKS = 3
#: One byte that forked children share with their main process; a spawned one never sees it set.
_leaving = mmap.mmap(-1, 1)


def is_leaving() -> bool:
    """Whether this worker was told to go: what it holds may end, and nothing new is claimed."""
    return _leaving[0] != 0


def own_exit(error: BaseException) -> BaseException:
    """An exit that nobody told this process to make, ``sys.exit`` or a cancelled task, is the body's own failure.

    Taken for a shutdown it would count nothing and be repeated for ever.
    """
    ordinary = isinstance(error, Exception | Stop)
    stopped = isinstance(error, BaseExceptionGroup) and error.subgroup(Stop) is not None
    told = is_leaving() or terminate_handler_fired()
    if ordinary or stopped or told or isinstance(error, (WorkerShutdown, WorkerTerminate)):
        return error
    return StepExited(
        f"the step tried to end its process ({describe(error)}): the process goes on, and the step fails. To fail "
        "a step, raise an ordinary exception"
    )


def wait_for_steps(start_id: str, *, ends_them: bool) -> None:
    """Return when no process of this start holds a step any more, or when the grace is over.

    A worker that cannot end its steps (``ends_them``: threads) has no use for a grace: it waits for them.
    """
    _leaving[0] = 1
    if not state.reserved_requests:
        return
    grace = settings().shutdown_grace if ends_them else None
    limit = f"get up to {grace:.0f} s to end in" if grace is not None else "are waited for"
    _log.warning("Leaving: steps in the air %s.", limit)
    waiting = threading.Thread(target=_until_quiet, args=(start_id, grace), daemon=True)
    waiting.start()
    waiting.join(grace)


def _until_quiet(start_id: str, grace: float | None) -> None:
    deadline = math.inf if grace is None else time.monotonic() + grace
    quiet = 0
    while quiet < _QUIET_LOOKS and time.monotonic() < deadline:
        time.sleep(_LOOK_PERIOD)
        quiet = 0 if _holds_steps(start_id) else quiet + 1
    database.close()


def _holds_steps(start_id: str) -> bool:
    try:
        return workers.holds_steps(start_id)
    except JournalUnavailable:
        return True
