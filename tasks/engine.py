"""The life of a step inside a worker, on one screen.

    message -> claim -> body -> complete -> publish -> ack

A message only says *go on with this run here*. The claim decides whether there is anything to run;
the completion records the result and releases what follows in one commit; publishing comes after it
and may fail. Whatever is cut in between is found by the sweep.
"""

import logging
import os
import time
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import lru_cache

from billiard.exceptions import SoftTimeLimitExceeded
from celery import Celery, Task

from models.digests import digest_text
from models.errors import OnwardError
from models.failpoints import FailPoint, failpoint
from models.ids import new_nonce
from models.journal import publish, reads, rewinds, steps
from models.journal.effect_values import Sender
from models.journal.values import Carrier, Claimed, Completed, Output
from models.settings import settings
from models.states import BlockReason
from tasks import inputs, leaving, logs, pools, processes, registry, stored
from tasks.context import Context
from tasks.effects import Ledger
from tasks.errors import EffectBlocked, Stop
from tasks.facilities import OfRun
from tasks.leases import Held, Keeper
from tasks.outcomes import (
    Displaced,
    Failed,
    Interrupted,
    Outcome,
    Succeeded,
    refuse,
)
from tasks.paying import require_budget
from tasks.progress import Progress
from tasks.publishing import publish as send
from tasks.recorder.recorder import Recorder
from tasks.recording import Recording, judged, marks
from tasks.step import BoundStep, Then
from tasks.sticky import Budget
from tasks.transactional import Transaction
from tasks.worker import ask_for_recovery, start_id, worker_name

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
    about = logs.about(**marks(claimed))
    with about, _held(bound, claimed, sent_at) as held:
        recorder = _recorder(bound, claimed, carrier, held)
        with Transaction(claimed, bar=recorder.ledger.bar) as transaction, recorder.entered():
            ctx = _context(bound, claimed, held, recorder=recorder, transaction=transaction)
            interruption, outcome = _body(bound, claimed, ctx, transaction)
            outcome = _last_word(bound, claimed, recorder, outcome)
            failpoint(FailPoint.P4, bound.name)
            recorded_at = time.monotonic()
            completed = Recording(bound, claimed, carrier, budget, transaction).record(outcome)
    failpoint(FailPoint.P6, bound.name)
    if time.monotonic() - recorded_at < settings().publish_grace:
        send(budget.app, completed.wakeups)
    if isinstance(outcome, Interrupted) and outcome.decide_now:
        ask_for_recovery(budget.app, claimed.run_id)
    failpoint(FailPoint.P7, bound.name)
    if interruption is not None:
        raise interruption
    return completed, recorded_at


def _body(
    bound: BoundStep, claimed: Claimed, ctx: Context, transaction: Transaction
) -> tuple[BaseException | None, Outcome]:
    """Run the author's code. A shutdown comes back beside its outcome, to be raised once that is written."""
    try:
        ctx.require_trust()  # claimed in place, it may be another's by now
        pools.refuse_untracked(claimed)
        require_budget(claimed)
        if claimed.untracked:
            _look_back(claimed)
        args, kwargs, piped, input_digest = stored.given(claimed).read()
        value = transaction.run(lambda: bound.call(ctx, args, kwargs, piped=piped))
    except OnwardError as error:
        return None, refuse(error) if inputs.is_final(error) else judged(bound, claimed, error)
    except BaseException as error:
        failure = leaving.own_exit(error)
        ends_here = isinstance(failure, Exception | Stop | BaseExceptionGroup)
        return (None if ends_here else failure), judged(bound, claimed, failure)
    then = value if isinstance(value, Then) else None
    try:
        output = _output(bound, claimed, then.value if then else value, input_digest=input_digest)
    except OnwardError as error:
        return None, refuse(error) if inputs.is_final(error) else judged(bound, claimed, error)
    except (MemoryError, SoftTimeLimitExceeded) as error:
        return None, judged(bound, claimed, error)
    return None, Succeeded(output, then)


def _output(bound: BoundStep, claimed: Claimed, value: object, *, input_digest: str) -> Output:
    """The result as it is recorded; a large one is in the artifact store when this returns."""
    text = bound.result.dump(value, limit=settings().artifact_limit)
    text = bound.result.open_part(text)
    kept = stored.kept(text, claimed, step_name=bound.name)
    return Output(text, digest_text(text), input_digest, kept)


def _look_back(claimed: Claimed) -> None:
    """What an untracked step did in a time that the journal has lost, nobody but a person can see."""
    lost = rewinds.unseen_since(claimed.run_id, claimed.step_key)
    if lost is not None:
        raise EffectBlocked(
            f"step {claimed.step_key!r} does I/O that Onward cannot see, and the journal went back in time (to "
            f"{lost.isoformat()}): it may have been done in what was lost. Look at the outside world, then "
            "`onward runs resume` runs it",
            reason=BlockReason.UNTRACKED_STEP,
        )


def _last_word(bound: BoundStep, claimed: Claimed, recorder: Recorder, outcome: Outcome) -> Outcome:
    """What the ledger says, whatever the body made of it: nothing ends with an effect in doubt."""
    ledger = recorder.ledger
    stop = ledger.close()
    if isinstance(outcome, Failed):
        outcome = replace(outcome, error=ledger.strike(outcome.error))
    if isinstance(outcome, Displaced):
        return outcome
    ends = isinstance(outcome, Succeeded) or (isinstance(outcome, Failed) and outcome.delay is None)
    if stop is None and ends:
        stop = ledger.left_over()
    if stop is None and isinstance(outcome, Succeeded):
        stop = recorder.left_over()
    if stop is not None:
        return judged(bound, claimed, stop)
    if isinstance(outcome, Succeeded):
        ledger.report_unasked()
    return outcome


def _drop(app: Celery, run_id: str, branch: str, step_key: str) -> None:
    """A message with nothing to run: count it if it is a copy, and send what its run has due."""
    why = reads.why_not(run_id, branch, step_key)
    about = {"run_id": run_id, "step_key": step_key}
    _log.info("Message for step %s of run %s dropped: %s", step_key, run_id, why, extra=about)
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


def _recorder(bound: BoundStep, claimed: Claimed, carrier: Carrier, held: Held) -> Recorder:
    sender = Sender(
        carrier.start_id, carrier.worker, carrier.pid, carrier.pid_started, processes.pid_space()
    )
    ledger = Ledger(claimed, sender, require_trust=held.require_trust)
    return Recorder(
        claimed, sender, ledger, require_trust=held.require_trust,
        on_mismatch=bound.options.on_replay_mismatch,
    )  # fmt: skip


def _context(
    bound: BoundStep, claimed: Claimed, held: Held, *, recorder: Recorder, transaction: Transaction
) -> Context:
    return Context(
        run_id=claimed.run_id, batch_id=claimed.batch_id, workflow=bound.workflow, version=bound.version,
        step_key=claimed.step_key, attempt=claimed.attempt, require_trust=held.require_trust,
        report_progress=Progress(held.lease), calls=recorder.ledger, http=recorder,
        facilities=OfRun(claimed), session=transaction.session,
    )  # fmt: skip


def _carrier(task: Task) -> Carrier:
    pid = os.getpid()
    return Carrier(start_id(), worker_name(), task.request.id, pid, processes.own_start(pid))


@lru_cache(maxsize=256)
def _versions(bound: BoundStep) -> tuple[str, ...]:
    if bound.builtin:
        return ()
    return (bound.version, *registry.get_workflow(bound.workflow).compatible_with)


def _held(bound: BoundStep, claimed: Claimed, sent_at: float) -> AbstractContextManager[Held]:
    limit = pools.lease_limit(bound)
    return keeper(os.getpid()).hold(claimed.lease, sent_at=sent_at, at_most=limit)


@lru_cache(maxsize=2)
def keeper(_pid: int) -> Keeper:
    """This process's leases: a forked child starts with none, and with a thread of its own."""
    return Keeper()
