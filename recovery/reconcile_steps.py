"""Asking an untracked step's own look-up whether the step was done, after its owner was lost.

Found completes the step as its owner would have, absent lets it run again, and where nobody can tell a
person decides, as of every untracked step without a look-up.
"""

import logging
from dataclasses import replace
from typing import Any, NoReturn

from celery import Celery

from models.failpoints import FailPoint, failpoint
from models.ids import new_nonce
from models.journal import rescue, untracked
from models.journal.untracked import StepInDoubt
from models.journal.values import BranchRef, Output
from models.settings import settings
from models.states import BlockReason
from recovery.asking import finding_of
from recovery.conclude import (
    AskPerson,
    BelieveAbsent,
    CheckFailed,
    Conclusion,
    LookAgain,
    NotAskable,
    Settle,
    TryAgain,
    conclude_step,
)
from recovery.reconcile import NEVER_BACK
from recovery.sweep import go_on_with
from tasks import inputs, logs, patience, processes, registry, stored
from tasks.context import Context
from tasks.errors import AgentsError, CallRefused
from tasks.publishing import publish
from tasks.step import BoundStep
from tasks.worker import start_id, worker_name

_log = logging.getLogger("onward.reconcile")


def reconcile_step(app: Celery, ref: BranchRef) -> None:
    """Look up an untracked step, if it is still as it was when it was asked for."""
    step = untracked.begin(ref, owner=f"{start_id()}.{new_nonce()}")
    if step is None:
        _log.debug("Step of %s is not to be looked up any more.", ref)
        return
    with logs.about(run_id=ref.run_id, step_key=step.stale.step_key):
        conclusion = _concluded(step)
        failpoint(FailPoint.S3, step.claimed.step_name)
        counted = patience.recorded(lambda: _act(app, step, conclusion), confirmed=lambda: None)
        late = "" if counted else " That came too late: it has changed meanwhile."
        _log.info("Step %s: %s.%s", step.stale.step_key, conclusion.said, late)


def _concluded(step: StepInDoubt) -> Conclusion:
    gone = _owner_gone(step)
    if step.failed_looks >= settings().lookup_failure_limit:
        counted = replace(step, failed_looks=step.failed_looks - 1)
        return conclude_step(counted, CheckFailed(NEVER_BACK), owner_gone=gone)
    try:
        bound = registry.step_named(step.claimed.step_name)
    except AgentsError as error:
        return conclude_step(step, CheckFailed(str(error)), owner_gone=gone)
    if bound.options.lookup is None:
        return conclude_step(step, NotAskable(), owner_gone=gone)
    limit = settings().artifact_limit
    finding = finding_of(
        lambda: _ask(bound, step),
        record=lambda result: bound.result.open_part(bound.result.dump(result, limit=limit)),
    )
    return conclude_step(step, finding, owner_gone=gone)


def _owner_gone(step: StepInDoubt) -> bool:
    """Whether the lost attempt can do nothing more: it said so itself, its parent saw it die, or we do."""
    if step.stale.cause in ("died", "interrupted"):
        return True
    if step.pid is None or step.pid_space != processes.pid_space():
        return False
    if processes.is_alive(step.pid, step.pid_started or 0):
        return False
    processes.kill_left_by(step.stale.run_id, step.stale.step_key, step.claimed.token)
    return True


def _ask(bound: BoundStep, step: StepInDoubt) -> object:
    """The look-up takes what the step takes."""
    assert bound.options.lookup is not None  # noqa: S101 - seen by the caller
    args, kwargs, piped, _ = inputs.given(step.claimed).read()
    values, named = bound.parameters.load(args, kwargs, piped=piped)
    return bound.options.lookup(_context(bound, step), *values, **named)


def _act(app: Celery, step: StepInDoubt, conclusion: Conclusion) -> bool:
    """Whether it still counted: a step that has changed meanwhile is left alone."""
    match conclusion:
        case Settle(result, _, said):
            kept = stored.kept(result, step.claimed, step_name=step.claimed.step_name)
            output = Output(result, *inputs.digests(step.claimed, result), kept)
            completed = untracked.found(step, output, worker=worker_name(), said=said)
            publish(app, completed.wakeups if completed else ())
            return completed is not None
        case BelieveAbsent(said):
            untracked.tell(step, said=said)
            return str(go_on_with(app, step.stale)) != "nothing to do"
        case LookAgain(after, _, said):
            return untracked.again(step, after=after, said=said, failed=False)
        case TryAgain(after, said):
            return untracked.again(step, after=after, said=said, failed=True)
        case AskPerson(said):
            untracked.tell(step, said=said)
            detail = _stopped(step, said)
            return rescue.block(step.ref, BlockReason.UNTRACKED_STEP, detail=detail, failed=False)


def _stopped(step: StepInDoubt, said: str) -> str:
    return (
        f"step {step.stale.step_key!r} does I/O that Onward cannot see, its owner is gone "
        f"({step.stale.cause}), and {said}: look at the outside world, then `onward runs resume` repeats it"
    )


class _NoCalls:
    """A look-up asks, and changes nothing."""

    def call(self, tool: Any, _request: Any, *, name: str | None) -> NoReturn:  # noqa: ARG002
        raise CallRefused(f"{tool!r} was called in a look-up, which only asks what happened.")

    async def acall(self, tool: Any, _request: Any, *, name: str | None) -> NoReturn:
        self.call(tool, _request, name=name)

    def read(self, tool: Any, _request: Any, *, name: str | None, wanted: Any) -> NoReturn:  # noqa: ARG002
        self.call(tool, _request, name=name)

    async def aread(self, tool: Any, _request: Any, *, name: str | None, wanted: Any) -> NoReturn:  # noqa: ARG002
        self.call(tool, _request, name=name)

    def enter_task(self) -> None:
        """Nothing is counted here."""


def _context(bound: BoundStep, step: StepInDoubt) -> Context:
    claimed = step.claimed
    return Context(
        run_id=claimed.run_id, batch_id=claimed.batch_id, workflow=bound.workflow, version=bound.version,
        step_key=claimed.step_key, attempt=claimed.attempt, require_trust=lambda: None,
        report_progress=lambda *_: None, calls=_NoCalls(),
    )  # fmt: skip
