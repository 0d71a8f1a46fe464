"""Undoing what a run did, in a worker that has its tools. ``undo_plan`` says in which order.

One doer at a time, by a lease that it renews while tools work. It is counted before any tool's code runs: a
tool that ends its process again and again is left to a person after a few goes. A message too many finds the
lease taken; one that is lost is sent again by ``wake``.
"""

import logging
import os
import time
from typing import Any

from celery import Celery

from models.errors import OnwardError
from models.journal import undoing
from models.journal.effect_values import Sender
from models.journal.errors import JournalUnavailable, LeaseLost
from models.journal.undoing import Target
from models.messages import describe
from models.settings import settings
from recovery import wake
from recovery.holding import Holding, hold
from recovery.undo_plan import GOES, End, Leave, Next, Stop, Try, Wait, next_action
from tasks import processes
from tasks.errors import (
    AttemptLost,
    EffectBlocked,
    EffectExhausted,
    EffectGivenUp,
    EffectPostponed,
    EffectUnknown,
)
from tasks.tool_base import Absent, Found, NotSent, Refused, Tool, Undecided
from tasks.tool_registry import tool_named
from tasks.undoing import LookFailed, Undoing
from tasks.worker import start_id, worker_name

_log = logging.getLogger("onward.compensate")

_TURN = 30.0  #: seconds of one task; then another message goes on, so that nobody waits behind a long one
_DOUBLINGS_MAX = 30  #: far above the longest pause, and within what a float holds


def compensate(app: Celery, run_id: str) -> None:
    """Go on with undoing what this run did, as far as that goes now."""
    sent_at = time.monotonic()
    doing = undoing.begin(run_id, start_id=start_id())
    if doing is None:
        return
    marks = {"run_id": run_id}
    try:
        with hold(doing, sent_at=sent_at) as holding:
            _go_on(holding)
    except (LeaseLost, AttemptLost) as lost:
        _log.warning("Undoing of run %s was taken over: %s", run_id, lost, extra=marks)
        return
    except JournalUnavailable as away:
        _log.warning("Undoing of run %s goes on later: %s", run_id, away, extra=marks)
        return
    if holding.again:
        wake.publish_undoing(app, run_id=run_id)


def _go_on(holding: Holding) -> None:
    """Undo one effect after another, for a while."""
    deadline = time.monotonic() + _TURN
    while time.monotonic() < deadline:
        undoing.note_undone(holding.doing)
        if not _act(holding, _next(holding)):
            return
    holding.hand_over(holding.doing.queue)


def _act(holding: Holding, action: Next) -> bool:
    """Whether to go on with what is next."""
    match action:
        case Try(target) if target.queue != holding.doing.queue:
            return holding.hand_over(target.queue)
        case Try(target):
            return _try(holding, target)
        case Wait(why):
            return holding.wait(settings().wake_period, why)
        case Leave(targets):
            for target in targets:
                _give_up(holding, target, f"tool {target.tool} cannot undo what it did")
            return True
        case Stop():
            return _block(holding)
        case End():
            return _end(holding)


def _end(holding: Holding) -> bool:
    if not undoing.finish(holding.doing):
        holding.wait(settings().wake_period, "its last branches are ending")
    return False


def _next(holding: Holding) -> Next:
    still = undoing.standstill(holding.doing)
    if still is None:
        raise LeaseLost(f"The undoing of run {holding.doing.run_id} is another's by now.")
    return next_action(still, undoing.to_undo(holding.doing), can_undo=_can_undo)


def _can_undo(name: str) -> bool:
    """A tool that cannot be had here may be elsewhere, so it is tried and fails."""
    tool = _tool(name)
    return tool.can_compensate if isinstance(tool, Tool) else True


def _tool(name: str) -> Tool[Any, Any] | Exception:
    """The tool, or why there is none here: it is not loaded, or its constructor misses something."""
    try:
        return tool_named(name)
    except Exception as error:
        return error


def _try(holding: Holding, target: Target) -> bool:
    """Undo one effect; returns whether it is done."""
    if holding.streak > GOES and target.state in (None, "refused", "absent"):
        return _leave(holding, target, f"{GOES} goes at it ended their process or gave no answer")
    tool, done = _tool(target.tool), undoing.read(target.key)
    if isinstance(tool, Exception):
        return _failed(holding, target, describe(tool))
    try:
        one = Undoing(
            undoing.undo_of(target, holding.doing), done, tool, sender=_sender(),
            require_trust=holding.require_trust,
        )  # fmt: skip
    except OnwardError as error:
        return _failed(
            holding, target, f"this version of {tool.name} cannot read it: {describe(error)}"
        )
    if target.state in (None, "refused"):
        looked = _look(holding, target, one)
        if looked is not None:
            return looked
    return _send(holding, target, one)


def _look(holding: Holding, target: Target, one: Undoing) -> bool | None:
    """Whether it is undone already: then it is done. None: it is not, or nobody can say."""
    try:
        found = one.look()
    except LookFailed as error:
        return _failed(
            holding,
            target,
            f"whether it is undone already could not be looked up: {error}",
        )
    match found:
        case Found():
            one.keep_found(found)
            return holding.progress()
        case Undecided(reason, again_in) if again_in is not None:
            return holding.wait(again_in, f"{target.key}: {reason}")
        case Undecided(reason):
            return _leave(holding, target, f"whether it is undone already cannot be told: {reason}")
        case Absent() | None:
            return None


def _send(holding: Holding, target: Target, one: Undoing) -> bool:
    try:
        one.perform()
    except EffectGivenUp:
        pass  # a person has, at this moment
    except EffectUnknown as doubt:
        return holding.wait(_pause(target.sends + 1), str(doubt))
    except EffectPostponed as late:
        return holding.wait(late.delay, str(late))
    except EffectExhausted as exhausted:
        return _leave(holding, target, str(exhausted))
    except EffectBlocked as odd:
        return _leave(holding, target, str(odd))
    except Refused as refused:
        return _refused(holding, target, one, refused)
    return holding.progress()


def _refused(holding: Holding, target: Target, one: Undoing, error: Refused) -> bool:
    """Final, unless it says that it may be tried again, or somebody has undone it just now."""
    if isinstance(error, NotSent) or hasattr(error, "retry_after"):
        return _failed(holding, target, describe(error), after=getattr(error, "retry_after", None))
    looked = _look(holding, target, one)
    if looked is not None:
        return looked
    return _leave(holding, target, f"it cannot be undone: {describe(error)}")


def _failed(holding: Holding, target: Target, error: str, *, after: float | None = None) -> bool:
    """In vain: again later, and after some goes in a row a person is asked."""
    if holding.streak >= GOES:
        return _leave(holding, target, f"{GOES} goes at it failed, the last: {error}")
    _log.warning("Effect %s is not undone yet: %s", target.key, error)
    return holding.wait(
        max(after or 0.0, _pause(holding.streak)), f"{target.key}: {error}", counts=True
    )


def _leave(holding: Holding, target: Target, reason: str) -> bool:
    """Leave it to a person, and with it everything that was done before it."""
    _give_up(holding, target, reason)
    return _block(holding)


def _block(holding: Holding) -> bool:
    if undoing.block(holding.doing) is None:  # a person has just decided
        holding.wait(settings().wake_period, "a person has decided")
    return False


def _give_up(holding: Holding, target: Target, reason: str) -> None:
    _log.error("Effect %s is not undone: %s", target.key, reason)
    undo = undoing.undo_of(target, holding.doing)
    undoing.give_up(undo, reason=reason, worker=worker_name())


def _pause(count: int) -> float:
    """Before the next go after the ``count``-th: doubling, and bounded."""
    doublings = min(max(count, 1) - 1, _DOUBLINGS_MAX)
    return min(settings().look_pause * 2.0**doublings, settings().look_pause_max)


def _sender() -> Sender:
    pid = os.getpid()
    return Sender(start_id(), worker_name(), pid, processes.own_start(pid), processes.pid_space())
