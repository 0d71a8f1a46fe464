"""Running an author's look-up: whatever it does, it comes back as a finding."""

import asyncio
import inspect
from collections.abc import Callable

from billiard.common import terminate_handler_fired
from billiard.exceptions import SoftTimeLimitExceeded

from models.errors import OnwardError
from models.messages import describe, safe_repr
from models.settings import settings
from recovery.conclude import CannotTell, CheckFailed, Finding, Misfit, Nothing, Seen
from tasks.tools import Absent, Found, Undecided


def finding_of(ask: Callable[[], object], *, record: Callable[[object], str]) -> Finding:
    """What the look-up answers. ``record``: the text of a result, or an ``OnwardError`` when it does not fit.

    It may raise anything, ``SystemExit`` included, without ending the process; only a process that has been
    told to end does, and has then learned nothing.
    """
    try:
        answer = ask()
        if inspect.iscoroutine(answer):
            answer = asyncio.run(answer)
        return _read(answer, record)
    except SoftTimeLimitExceeded:
        return CheckFailed(f"it took longer than {settings().lookup_time_limit:g} s")
    except BaseException as error:
        if terminate_handler_fired():
            raise
        return CheckFailed(describe(error))


def _read(answer: object, record: Callable[[object], str]) -> Finding:
    match answer:
        case Found(result):
            try:
                return Seen(record(result), "lookup")
            except OnwardError as error:
                return Misfit(str(error))
        case Absent():
            return Nothing()
        case Undecided(reason, again_in):
            return CannotTell(str(reason), None if again_in is None else float(again_in))
        case _:
            return CheckFailed(
                f"it returned {safe_repr(answer, limit=60)} and not Found(result), Absent() or Undecided(reason)"
            )
