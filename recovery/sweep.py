"""One pass over everything that does not move by itself. Safe to run at any time, any number of times.

    (a) running, lease over      -> unknown, with its attempt row and one event
    (b) unknown and due          -> decide -> pending | blocked | cancelled, or looked up first
        intents left behind      -> in doubt: nothing of a step is given up before they are looked up
    (c) pending, message lost    -> published again (``wake``); so are look-ups and undos
    (d) waiting, condition met   -> pending
    (e) held or cancelled runs   -> their branches end, the run gets its final state
    (f) money of lost claims     -> charged: what they asked for may have been billed

The parts are separate transactions: a sweep that dies between two of them leaves rows that the next one
finds. A row that cannot be handled is isolated by halving its batch, gets its reason logged, and never
stops the pass.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

from celery import Celery

from models.failpoints import FailPoint, failpoint
from models.journal import (
    compensations,
    doubts,
    losing,
    rescue,
    runs,
    untracked,
    wallets,
    workers,
)
from models.journal.branches import START
from models.journal.errors import JournalUnavailable
from models.journal.untracked import Ask
from models.journal.values import BranchRef, StaleStep
from models.messages import describe
from models.settings import settings
from models.states import BlockReason
from recovery import sending
from recovery.decide import Block, Cancel, Decision, LookUp, Reconcile, Requeue, decide
from recovery.wake import publish_due, publish_lookups, publish_undoing

_log = logging.getLogger("onward.sweep")
SET_ASIDE = 60.0  #: seconds until a row that could not be handled is tried again
RECONCILING = 60.0  #: seconds; what a step waits for wakes it, so this is for what went unnoticed
SWEEP_LOCK = 0x5357_4550  #: any fixed number of ours

T = TypeVar("T")
Row = TypeVar("Row", BranchRef, StaleStep)


@dataclass(slots=True)
class Swept:
    """What one pass did."""

    expired: int = 0
    doubted: int = 0
    requeued: int = 0
    blocked: int = 0
    cancelled: int = 0
    woken: int = 0
    settled: int = 0
    reopened: int = 0
    published: int = 0
    asked: int = 0
    charged: int = 0
    isolated: int = 0

    def __str__(self) -> str:
        did = [
            f"{field.name} {getattr(self, field.name)}"
            for field in fields(self)
            if getattr(self, field.name)
        ]
        return ", ".join(did) or "nothing to do"


def sweep_once(app: Celery) -> Swept | None:
    """One complete pass, or None when another process is at it."""
    if not workers.alone(SWEEP_LOCK):
        return None
    try:
        started = time.monotonic()
        workers.begin_pass("sweep")
        swept = _pass(app)
        failpoint(FailPoint.S5)
        workers.end_pass("sweep", seconds=time.monotonic() - started, detail=str(swept))
    finally:
        workers.release(SWEEP_LOCK)
    if str(swept) != "nothing to do":
        _log.info("Swept: %s", swept)
    return swept


def recover_run(app: Celery, run_id: str) -> Swept:
    """Decide and publish one run's unknown steps now: the fast path after an observed death."""
    swept = Swept()
    stale = rescue.unknown_steps(limit=settings().sweep_batch, run_id=run_id)
    asks = _decide_all(stale, swept)
    failpoint(FailPoint.S4)
    _publish(app, swept, asks=asks, run_id=run_id)
    return swept


def go_on_with(app: Celery, step: StaleStep) -> Swept:
    """Decide and publish one step as it was just seen."""
    swept = Swept()
    asks = _decide_all([step], swept)
    _publish(app, swept, asks=asks, run_id=step.run_id)
    return swept


def _pass(app: Celery) -> Swept:
    swept, batch = Swept(), settings().sweep_batch
    for refs in _batches(losing.expired):
        swept.isolated += in_halves(refs, lambda part: _expire(part, swept))
    asks: list[Ask] = []
    for stale in _batches(rescue.unknown_steps):
        asks += _decide_all(stale, swept)
    failpoint(FailPoint.S4)
    swept.isolated += in_halves([batch], lambda part: _doubt_strays(part[0], swept))
    _charge_strays(swept, batch)
    while (woken := rescue.wake_waiting(limit=batch)) > 0:
        swept.woken += woken
    for refs in _batches(rescue.cancellable):
        swept.isolated += in_halves(refs, lambda part: _cancel(part, swept))
    _settle_held(swept, batch)
    swept.reopened = len(compensations.reopen_resolved())
    _publish(app, swept, asks=asks)
    return swept


def _publish(app: Celery, swept: Swept, *, asks: Sequence[Ask], run_id: str | None = None) -> None:
    swept.published = publish_due(app, run_id=run_id)
    swept.asked = publish_lookups(app, run_id=run_id)
    swept.asked += sending.send(app, [sending.look_up_step(ask) for ask in asks])
    publish_undoing(app, run_id=run_id)


def _batches(read: Callable[..., Sequence[Row]]) -> Iterator[Sequence[Row]]:
    """Everything a query finds, each row once however its batch fares."""
    after = START
    while rows := read(limit=settings().sweep_batch, after=after):
        yield rows
        after = (rows[-1].run_id, rows[-1].branch)


def _expire(part: Sequence[BranchRef], swept: Swept) -> None:
    swept.expired += losing.expire(part)


def _decide_all(stale: Sequence[StaleStep], swept: Swept) -> list[Ask]:
    """Act on what is decided about each; returns the look-ups to send for untracked steps."""
    asks: list[Ask] = []
    decided = [(step, decide(step)) for step in stale]
    again = [(step, choice) for step, choice in decided if isinstance(choice, Requeue)]
    swept.isolated += in_halves(again, lambda part: _requeue(part, swept), aside=_set_aside)
    for one in decided:
        if not isinstance(one[1], Requeue):
            swept.isolated += in_halves(
                [one], lambda part: asks.extend(_act(*part[0], swept)), aside=_set_aside
            )
    return asks


def _requeue(part: Sequence[tuple[StaleStep, Requeue]], swept: Swept) -> None:
    refs = [_ref(step) for step, _ in part]
    swept.requeued += rescue.requeue(refs, [choice.after for _, choice in part])


def _act(step: StaleStep, choice: Decision, swept: Swept) -> list[Ask]:
    match choice:
        case Block(reason, detail):
            failed = reason == BlockReason.POISON_STEP
            swept.blocked += rescue.block(_ref(step), reason, detail=detail, failed=failed)
        case Cancel():
            swept.cancelled += len(rescue.cancel_branches([_ref(step)]))
        case Reconcile():
            swept.doubted += doubts.doubt_step(_ref(step), pause=RECONCILING)
        case LookUp():
            asked = untracked.ask(_ref(step))
            return [] if asked is None else [asked]
        case Requeue():
            raise AssertionError("requeued in batches")
    return []


def _doubt_strays(batch: int, swept: Swept) -> None:
    while (strays := doubts.doubt_strays(limit=batch)) > 0:
        swept.doubted += strays


def _charge_strays(swept: Swept, batch: int) -> None:
    after = ("", "")
    while steps := wallets.strays(limit=batch, after=after):
        swept.isolated += in_halves(steps, lambda part: _charge(part, swept))
        after = steps[-1]


def _charge(part: Sequence[tuple[str, str]], swept: Swept) -> None:
    swept.charged += wallets.charge_strays(part)


def _settle_held(swept: Swept, batch: int) -> None:
    after = ""
    while run_ids := rescue.held_runs(limit=batch, after=after):
        for run_id in run_ids:
            swept.isolated += in_halves([run_id], lambda part: _settle(part[0], swept))
        after = run_ids[-1]


def _settle(run_id: str, swept: Swept) -> None:
    swept.settled += runs.settle(run_id) is not None


def _cancel(part: Sequence[BranchRef], swept: Swept) -> None:
    swept.cancelled += len(rescue.cancel_branches(part))


def _ref(step: StaleStep) -> BranchRef:
    return BranchRef(step.run_id, step.branch, step.revision)


def in_halves(
    rows: Sequence[T],
    act: Callable[[Sequence[T]], None],
    *,
    aside: Callable[[T, str], object] | None = None,
) -> int:
    """Act on rows together; when that fails, on halves, down to the row at fault, which is set aside.

    Returns how many were set aside. An unreachable database is not the rows' fault and is raised.
    """
    if not rows:
        return 0
    try:
        act(rows)
    except JournalUnavailable:
        raise
    except Exception as error:
        if len(rows) > 1:
            half = len(rows) // 2
            return in_halves(rows[:half], act, aside=aside) + in_halves(
                rows[half:], act, aside=aside
            )
        _log.exception("Set aside: %r (%s)", rows[0], error)
        if aside is not None:
            aside(rows[0], describe(error))
        return 1
    return 0


def _set_aside(one: tuple[StaleStep, Decision], error: str) -> None:
    """The row shows why it does not move, and is left alone for a while."""
    try:
        rescue.set_aside(_ref(one[0]), f"the sweep could not handle it: {error}", pause=SET_ASIDE)
    except JournalUnavailable:
        raise
    except Exception as again:
        _log.warning("It cannot even be marked (%s); the next pass tries it again.", again)
