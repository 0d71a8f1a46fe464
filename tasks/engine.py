"""The life of a step inside a worker, on one screen.

    message -> claim -> body -> complete -> publish -> ack

A message only says *go on with this run here*. The claim decides whether there is anything to run;
the completion records the result and releases what follows in one commit; publishing comes after it
and may fail. Whatever is cut in between is found by the sweep.
"""

import logging
import os
import time
from functools import lru_cache

from celery import Celery, Task

from models.errors import OnwardError
from models.failpoints import FailPoint, failpoint
from models.ids import new_nonce
from models.journal import expanding, failing, publish, reads, steps
from models.journal.errors import LeaseLost
from models.journal.values import Carrier, Claimed, Completed, Output
from models.settings import settings
from tasks import inputs, logs, patience, processes, registry
from tasks.compile import compile_insertion
from tasks.context import Context
from tasks.leases import Held, Keeper
from tasks.outcomes import (
    Displaced,
    Failed,
    Interrupted,
    Outcome,
    Succeeded,
    judge,
    refuse,
)
from tasks.progress import Progress
from tasks.publishing import publish as send
from tasks.step import BoundStep, Then
from tasks.sticky import Budget
from tasks.worker import start_id, worker_name

_log = logging.getLogger("onward.engine")


def perform(task: Task, run_id: str, branch: str, step_key: str) -> None:
    """Run one step of a run, and, within the sticky budget, those that follow it in place."""
    bound = registry.step_named(task.name)
    failpoint(FailPoint.P0, bound.name)
    if _must_wait(bound, run_id, branch, step_key):
        return
    carrier = _carrier(task)
    sent_at = time.monotonic()
    claimed = steps.claim(
        run_id, branch, step_key, workflow=None if bound.builtin else bound.workflow,
        versions=_versions(bound), carrier=carrier, nonce=new_nonce(),
    )  # fmt: skip
    if claimed is None:
        _drop(task.app, run_id, branch, step_key)
        return
    budget = Budget(task)
    while claimed is not None:
        completed, sent_at = _run(bound, claimed, carrier, sent_at=sent_at, budget=budget)
        claimed = completed.claimed
        if claimed is not None:
            bound = budget.follow(bound, claimed)
    budget.end()


def _run(
    bound: BoundStep, claimed: Claimed, carrier: Carrier, *, sent_at: float, budget: Budget
) -> tuple[Completed, float]:
    failpoint(FailPoint.P1, bound.name)
    processes.mark_attempt(claimed.run_id, claimed.step_key, claimed.token)
    if claimed.attempt > 1:
        processes.kill_strays(claimed.run_id, claimed.step_key, claimed.token)
    about = logs.about(**_marks(claimed))
    with about, keeper(os.getpid()).hold(claimed.lease, sent_at=sent_at) as held:
        interruption, outcome = _body(bound, claimed, held)
        failpoint(FailPoint.P4, bound.name)
        recorded_at = time.monotonic()
        completed = _record(bound, claimed, carrier, outcome=outcome, budget=budget)
    failpoint(FailPoint.P6, bound.name)
    if time.monotonic() - recorded_at < settings().publish_grace:
        send(budget.app, completed.wakeups)
    failpoint(FailPoint.P7, bound.name)
    if interruption is not None:
        raise interruption
    return completed, recorded_at


def _body(bound: BoundStep, claimed: Claimed, held: Held) -> tuple[BaseException | None, Outcome]:
    """Run the author's code. A shutdown comes back beside its outcome, to be raised once that is written."""
    try:
        claimed = inputs.gathered(claimed)
        args, kwargs, piped = inputs.read(claimed)
        value = bound.call(_context(bound, claimed, held), args, kwargs, piped=piped)
    except OnwardError as error:
        return None, refuse(error) if inputs.is_final(error) else _judged(bound, claimed, error)
    except BaseException as error:
        return (None if isinstance(error, Exception) else error), _judged(bound, claimed, error)
    then = value if isinstance(value, Then) else None
    try:
        text = bound.result.dump(then.value if then else value, limit=settings().output_limit)
    except OnwardError as error:
        return None, refuse(error)
    except MemoryError as error:
        return None, _judged(bound, claimed, error)
    return None, Succeeded(Output(text, *inputs.digests(claimed, text)), then)


def _judged(bound: BoundStep, claimed: Claimed, error: BaseException) -> Outcome:
    spent = max(0, claimed.failures - claimed.pardoned_failures)
    seed = f"{claimed.run_id}:{claimed.step_key}"
    return judge(error, retry=bound.retry, failures=spent, seed=seed)


def _record(
    bound: BoundStep, claimed: Claimed, carrier: Carrier, *, outcome: Outcome, budget: Budget
) -> Completed:
    """Write the outcome, whatever it is. A displaced owner changes nothing; its result stays as evidence."""
    nonce = new_nonce()
    try:
        match outcome:
            case Succeeded():
                return patience.recorded(
                    lambda: _complete(
                        bound, claimed, carrier, outcome=outcome, budget=budget, nonce=nonce
                    ),
                    confirmed=lambda: steps.led_to(claimed, carrier=carrier, nonce=nonce),
                )
            case Failed() | Interrupted():
                patience.recorded(lambda: _end(claimed, carrier, outcome), confirmed=lambda: None)
            case Displaced():
                _log.warning("Step displaced: %s", outcome.error, extra=_marks(claimed))
    except LeaseLost as lost:
        _log.warning("Late outcome set aside: %s", lost, extra=_marks(claimed))
        if isinstance(outcome, Succeeded):
            steps.keep_evidence(claimed, outcome.output, worker=carrier.worker)
    return Completed()


def _complete(
    bound: BoundStep,
    claimed: Claimed,
    carrier: Carrier,
    *,
    outcome: Succeeded,
    budget: Budget,
    nonce: str,
) -> Completed:
    if outcome.then is not None:
        return _expand(bound, claimed, carrier, output=outcome.output, then=outcome.then)
    if budget.allows(bound, claimed):
        return steps.complete_and_claim(claimed, outcome.output, carrier=carrier, nonce=nonce)
    return steps.complete(
        claimed, outcome.output, worker=carrier.worker, successor=claimed.successor
    )


def _expand(
    bound: BoundStep, claimed: Claimed, carrier: Carrier, *, output: Output, then: Then[object]
) -> Completed:
    try:
        return expanding.complete_with(
            claimed, output, worker=carrier.worker,
            compile_insertion=lambda taken, planned: compile_insertion(
                then.signature, workflow=registry.get_workflow(bound.workflow), branch=claimed.branch,
                after=inputs.as_node(claimed), taken=taken, planned=planned,
            ),
        )  # fmt: skip
    except LeaseLost:
        raise
    except OnwardError as error:
        if not inputs.is_final(error):
            raise
        return _end(claimed, carrier, refuse(error))


def _end(claimed: Claimed, carrier: Carrier, outcome: Failed | Interrupted) -> Completed:
    facts = {"worker": carrier.worker, "error_type": outcome.error_type, "error": outcome.error}
    extra = _marks(claimed)
    match outcome:
        case Interrupted():
            _log.warning("Step interrupted: %s", outcome.error, extra=extra)
            failing.interrupt(claimed, crashed=outcome.crashed, **facts)
        case Failed(delay=delay) if delay is not None:
            _log.warning("Step failed, again in %.1f s: %s", delay, outcome.error, extra=extra)
            failing.retry(claimed, delay=delay, **facts)
        case Failed():
            _log.error("Step failed for good: %s", outcome.error, extra=extra)
            failing.fail(claimed, **facts)
    return Completed()


def _drop(app: Celery, run_id: str, branch: str, step_key: str) -> None:
    """A message with nothing to run: count it if it is a copy, and send what its run has due."""
    why = reads.why_not(run_id, branch, step_key)
    marks = {"run_id": run_id, "step_key": step_key}
    _log.info("Message for step %s of run %s dropped: %s", step_key, run_id, why, extra=marks)
    if why in reads.DUPLICATES:
        publish.count_duplicate(run_id)
        send(app, publish.take_due(limit=settings().sweep_batch, run_id=run_id))


def _must_wait(bound: BoundStep, run_id: str, branch: str, step_key: str) -> bool:
    """Under a rate limit a step takes a place first; until then it stays pending and holds nothing."""
    if bound.options.rate_limit is None:
        return False
    wait = steps.take_slot(
        run_id, branch, step_key, throttle=bound.name, per_second=bound.options.rate_limit
    )
    return wait > 0


def _context(bound: BoundStep, claimed: Claimed, held: Held) -> Context:
    return Context(
        run_id=claimed.run_id, batch_id=claimed.batch_id, workflow=bound.workflow, version=bound.version,
        step_key=claimed.step_key, attempt=claimed.attempt, require_trust=held.require_trust,
        report_progress=Progress(claimed.lease),
    )  # fmt: skip


def _carrier(task: Task) -> Carrier:
    pid = os.getpid()
    return Carrier(start_id(), worker_name(), task.request.id, pid, processes.own_start(pid))


@lru_cache(maxsize=256)
def _versions(bound: BoundStep) -> tuple[str, ...]:
    if bound.builtin:
        return ()
    return (bound.version, *registry.get_workflow(bound.workflow).compatible_with)


@lru_cache(maxsize=2)
def keeper(_pid: int) -> Keeper:
    """This process's leases: a forked child starts with none, and with a thread of its own."""
    return Keeper()


def _marks(claimed: Claimed) -> dict[str, object]:
    return {"run_id": claimed.run_id, "step_key": claimed.step_key, "attempt": claimed.attempt}
