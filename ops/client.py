"""The Python client: submit runs, wait for them, get their results, cancel them.

    from ops.client import submit

    run = submit("contract-review", uri="file:///tmp/contract.pdf", key="contract-17")
    filing = run.result(timeout=300)

Everything goes through the journal; a broker that is down delays a run and loses nothing. The same key
with the same input is the same run, whoever submits it and how often.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from models.artifacts.payloads import load_optional
from models.decoding import decode
from models.errors import OnwardError, UndecodableValue
from models.ids import check_identifier, new_batch_id, new_nonce
from models.journal import compensations, history, runs, submitting
from models.journal.compensations import Requested
from models.journal.errors import JournalUnavailable
from models.journal.runs import Cancellation
from models.journal.values import Wakeup
from models.states import SETTLED_RUN_STATES, BlockReason, RunState
from ops.run_errors import RunBlocked, RunCancelled, RunFailed, RunUnfinished
from recovery import wake, watch
from tasks import registry, starting
from tasks.budgets import Budget
from tasks.errors import AgentsError
from tasks.workflow import Workflow

if TYPE_CHECKING:
    from celery import Celery

__all__ = [
    "Batch", "Run", "RunBlocked", "RunCancelled", "RunFailed", "RunUnfinished", "app", "cancel", "compensate",
    "recorded", "result", "submit", "submit_batch", "wait",
]  # fmt: skip

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0  #: seconds between two looks at a run
_OUTAGE = 120.0  #: seconds that a wait without a deadline lets the database be away


@dataclass(frozen=True, slots=True)
class Run:
    """A run that exists. ``created`` is False when an earlier submission had made it."""

    run_id: str
    created: bool = False

    def wait(self, timeout: float | None = None) -> RunState:
        """See ``wait``."""
        return wait(self.run_id, timeout)

    def result(self, timeout: float | None = 0.0) -> Any:
        """See ``result``."""
        return result(self.run_id, timeout)

    def cancel(self, *, by: str, reason: str, compensate: bool = False) -> Cancellation:
        """See ``cancel``."""
        return cancel(self.run_id, by=by, reason=reason, compensate=compensate)

    def compensate(self, *, by: str, reason: str, only: Sequence[str] = ()) -> Requested:
        """See ``compensate``."""
        return compensate(self.run_id, by=by, reason=reason, only=only)

    def __str__(self) -> str:
        return self.run_id


@dataclass(frozen=True, slots=True)
class Batch:
    """Runs submitted together, in the order of their inputs."""

    batch_id: str
    runs: tuple[Run, ...]


def submit(
    workflow: "str | Workflow[...]", input: Mapping[str, object] | None = None, /, *,
    key: str | None = None, run_id: str | None = None, batch_id: str | None = None,
    priority: int = 0, budget: Budget | Mapping[str, object] | None = None, **arguments: object,
) -> Run:  # fmt: skip
    """Submit a run with ``input`` as a mapping or as keyword arguments.

    The same ``key`` (or run id) and input give the same run again; with another input or budget this raises
    ``SubmissionConflict`` and submits nothing. A batch that does not exist yet is made. ``budget`` is this run's,
    in place of its workflow's own.
    """
    given = {**(input or {}), **arguments}
    prepared = starting.prepare(
        _name(workflow), given, key=key, run_id=run_id, batch_id=batch_id, priority=priority,
        budget=budget,
    )  # fmt: skip
    if batch_id is not None:
        submitting.create_batch(batch_id, batch_id)
    submitted = submitting.submit(prepared)
    _publish(submitted.wakeups)
    return Run(submitted.run_id, submitted.created)


def submit_batch(
    workflow: "str | Workflow[...]", inputs: Sequence[Mapping[str, object]], *,
    keys: Sequence[str] | None = None, batch_id: str | None = None, label: str = "", priority: int = 0,
    budget: Budget | Mapping[str, object] | None = None,
) -> Batch:  # fmt: skip
    """Submit one run for each input, in one batch.

    Every input is checked before the first run is made. A submission that was cut short is completed by
    submitting it again under the same ``batch_id`` or with the same ``keys``: no run is made twice.
    A key that was used in an earlier batch gives that run, which stays in its batch. ``budget`` is what all
    runs of the batch may spend together; each has its workflow's own beside it.
    """
    asked = Budget.of(budget)
    name, batch_id = _name(workflow), batch_id or new_batch_id()
    keys = keys or [f"{batch_id}/{number}" for number in range(1, len(inputs) + 1)]
    prepared = [
        starting.prepare(name, given, key=key, batch_id=batch_id, priority=priority)
        for given, key in zip(inputs, keys, strict=True)
    ]
    submitting.create_batch(batch_id, label or batch_id, budget=asked.limits if asked else None)
    made = []
    for submission in prepared:
        submitted = submitting.submit(submission)
        _publish(submitted.wakeups)
        made.append(Run(submitted.run_id, submitted.created))
    return Batch(batch_id, tuple(made))


def wait(run: Run | str, timeout: float | None = None) -> RunState:
    """Wait until a run is over, or stands still until somebody acts; returns its state.

    Raises ``RunUnfinished`` after ``timeout`` seconds, with what the run is waiting for. A database
    that is away for a moment is waited for as well.
    """
    run_id = _id(run)
    started = heard = time.monotonic()
    pause = _FIRST_PAUSE
    while True:
        try:
            state = RunState(history.outcome(run_id).state)
            heard = time.monotonic()
            if state in SETTLED_RUN_STATES:
                return state
        except JournalUnavailable:
            patience = _OUTAGE if timeout is None else timeout - (heard - started)
            if time.monotonic() - heard > patience:
                raise
        left = None if timeout is None else started + timeout - time.monotonic()
        if left is not None and left <= 0:
            raise _unfinished(run_id)
        time.sleep(pause if left is None else min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE)


def result(run: Run | str, timeout: float | None = 0.0) -> Any:
    """A completed run's result, waited for up to ``timeout`` seconds (None: as long as it takes).

    As the last step's annotation says, where that version of the workflow is loaded, and otherwise as
    plain data. Raises ``RunFailed``, ``RunBlocked``, ``RunCancelled`` or ``RunUnfinished`` with the reason.
    """
    run_id = _id(run)
    wait(run_id, timeout)
    return _value(recorded(run_id))


def recorded(run: Run | str) -> history.Outcome:
    """A completed run's outcome with its result as the journal's text; raises like ``result``."""
    run_id = _id(run)
    ended = history.outcome(run_id)
    match RunState(ended.state):
        case RunState.COMPLETED:
            return replace(ended, output=load_optional(ended.output))
        case RunState.FAILED:
            raise RunFailed(
                f"Run {run_id} failed: {ended.detail or ended.reason}. Its completed steps are kept; "
                f"`onward runs retry {run_id}` tries again from there."
            )
        case RunState.BLOCKED if ended.reason == BlockReason.COMPENSATION_FAILED:
            raise RunBlocked(
                f"What run {run_id} did could not all be undone: {ended.detail}. Once the cause is gone, "
                f"`onward runs compensate {run_id}` goes on; `onward effects resolve` gives an undo up."
            )
        case RunState.BLOCKED:
            raise RunBlocked(
                f"Run {run_id} is blocked by {ended.reason}: {ended.detail}. Once the cause is gone, "
                f"`onward runs resume {run_id}` goes on from there."
            )
        case RunState.COMPENSATED if ended.cancelled_by is None:
            raise RunFailed(
                f"Run {run_id} failed, and what it did was undone: {ended.detail or ended.reason}. That is for "
                f"good: submit a new run instead."
            )
        case RunState.CANCELLED | RunState.COMPENSATED:
            raise RunCancelled(
                f"Run {run_id} was cancelled by {ended.cancelled_by}: {ended.cancel_reason}."
            )
        case _:
            raise _unfinished(run_id)


def cancel(run: Run | str, *, by: str, reason: str, compensate: bool = False) -> Cancellation:
    """Cancel a run for good, once: cancelling again returns the first cancellation.

    Steps in the air finish first; ``wait`` tells when the run has come to rest. With ``compensate`` what it
    did is undone then, also when it was cancelled before.
    """
    run_id, cancellation_id = _id(run), f"cancel-{new_nonce()}"
    check_identifier("by", by)
    if not compensate:
        return runs.cancel(run_id, by=by, reason=reason, cancellation_id=cancellation_id)
    cancelled, _ = compensations.cancel_and_request(
        run_id, by=by, reason=reason, cancellation_id=cancellation_id
    )
    _publish_undoing(run_id)
    return cancelled


def compensate(run: Run | str, *, by: str, reason: str, only: Sequence[str] = ()) -> Requested:
    """Undo what a failed, blocked or cancelled run did, last effect first; ``wait`` tells when that is over.

    ``only`` names effects by their keys: those alone are undone, of a completed run as well, and the run
    stays what it is. Asking again changes nothing, but for what could not be undone: that is tried anew.
    """
    run_id = _id(run)
    check_identifier("by", by)
    asked = compensations.request(run_id, by=by, reason=reason, only=only)
    _publish_undoing(run_id)
    return asked


def app() -> "Celery":
    """The Celery app that carries the messages, loaded when first needed: that loads the agents too."""
    from tasks.celery import app as loaded  # noqa: PLC0415 - reads settings and agents at import

    return loaded


def _publish(wakeups: Sequence[Wakeup]) -> None:
    from tasks.publishing import publish  # noqa: PLC0415 - with the app it belongs to

    publish(app(), wakeups)


def _publish_undoing(run_id: str) -> None:
    """Now instead of at the next ``wake``, where this process has the agents."""
    with suppress(AgentsError):
        wake.publish_undoing(app(), run_id=run_id)


def _name(workflow: "str | Workflow[...]") -> str:
    """The workflow's name; one given by name needs its package, which is loaded when it is not."""
    if isinstance(workflow, Workflow):
        return workflow.name
    if workflow not in registry.workflows():
        registry.load_agents()
    return workflow


def _id(run: Run | str) -> str:
    return check_identifier("run_id", run.run_id if isinstance(run, Run) else run)


def _unfinished(run_id: str) -> RunUnfinished:
    return RunUnfinished(f"Run {run_id} has no result yet. {watch.why(run_id).sentence}")


def _value(ended: history.Outcome) -> Any:
    """Typed by the last step where this process has the code that wrote it; else the plain structure."""
    if ended.output is None or ended.step_name is None:
        return None
    try:
        workflow = registry.get_workflow(_name(ended.workflow))
        if ended.version in (workflow.version, *workflow.compatible_with):
            step = registry.step_named(ended.step_name, ended.workflow)
            return step.result.load(ended.output)
    except UndecodableValue:
        raise
    except OnwardError:
        pass  # not loaded here, or its code has changed since
    return decode(ended.output)
