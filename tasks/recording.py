"""How a body ended, written down: its result, its failure, or that the step is somebody else's by now.

The result of a body that opened ``ctx.session`` is written in that session's transaction, any other in a
statement of its own, which is repeated through outages. What keeps a result from standing (a plan without an
end, an error at COMMIT) makes a failure of it, written after everything else was undone.
"""

import logging
from dataclasses import dataclass

from models.artifacts.errors import Withheld
from models.errors import OnwardError
from models.ids import new_nonce
from models.journal import expanding, failing, steps
from models.journal.errors import JournalUnavailable, LeaseLost
from models.journal.values import Carrier, Claimed, Completed, Output
from tasks import inputs, patience, registry
from tasks.compile import compile_insertion
from tasks.outcomes import (
    Blocked,
    Displaced,
    Failed,
    Interrupted,
    Outcome,
    Postponed,
    Succeeded,
    Unfinished,
    judge,
    refuse,
)
from tasks.step import BoundStep, Then
from tasks.sticky import Budget
from tasks.transactional import Transaction

_log = logging.getLogger("onward.engine")


def marks(claimed: Claimed) -> dict[str, object]:
    """What a log line about this attempt carries."""
    return {"run_id": claimed.run_id, "step_key": claimed.step_key, "attempt": claimed.attempt}


def judged(bound: BoundStep, claimed: Claimed, error: BaseException) -> Outcome:
    """What an error means for this step under its retry policy."""
    spent = max(0, claimed.failures - claimed.pardoned_failures)
    seed = f"{claimed.run_id}:{claimed.step_key}"
    return judge(error, retry=bound.retry, failures=spent, seed=seed)


@dataclass(frozen=True, slots=True)
class Recording:
    """The outcome of one attempt, about to be written."""

    bound: BoundStep
    claimed: Claimed
    carrier: Carrier
    budget: Budget
    transaction: Transaction

    def record(self, outcome: Outcome) -> Completed:
        """Write the outcome, whatever it is. A displaced owner changes nothing; its result stays as evidence."""
        try:
            match outcome:
                case Succeeded():
                    return self._succeed(outcome)
                case Displaced():
                    self.transaction.discard()
                    _log.warning("Step displaced: %s", outcome.error, extra=marks(self.claimed))
                case _:
                    self.transaction.discard()
                    patience.recorded(lambda: self._end(outcome), confirmed=lambda: None)
        except LeaseLost as lost:
            _log.warning("Late outcome set aside: %s", lost, extra=marks(self.claimed))
            if isinstance(outcome, Succeeded):
                steps.keep_evidence(self.claimed, outcome.output, worker=self.carrier.worker)
        return Completed()

    def _succeed(self, outcome: Succeeded) -> Completed:
        nonce, transactional = new_nonce(), self.transaction.is_open
        complete = self.transaction.complete if transactional else patience.recorded
        try:
            return complete(
                lambda: self._complete(outcome, nonce),
                confirmed=lambda: steps.led_to(self.claimed, carrier=self.carrier, nonce=nonce),
            )
        except (LeaseLost, JournalUnavailable):
            raise
        except Exception as error:
            if isinstance(error, OnwardError) and inputs.is_final(error):
                return self.record(refuse(error))
            if transactional or isinstance(error, Withheld):
                return self.record(judged(self.bound, self.claimed, error))
            raise

    def _complete(self, outcome: Succeeded, nonce: str) -> Completed:
        claimed, output = self.claimed, outcome.output
        if outcome.then is not None:
            return self._expand(output, outcome.then)
        if self.budget.allows(self.bound, claimed):
            return steps.complete_and_claim(claimed, output, carrier=self.carrier, nonce=nonce)
        return steps.complete(
            claimed, output, worker=self.carrier.worker, successor=claimed.successor
        )

    def _expand(self, output: Output, then: Then[object]) -> Completed:
        claimed = self.claimed
        return expanding.complete_with(
            claimed, output, worker=self.carrier.worker,
            compile_insertion=lambda taken, planned: compile_insertion(
                then.signature, workflow=registry.get_workflow(self.bound.workflow),
                branch=claimed.branch, after=inputs.as_node(claimed), taken=taken, planned=planned,
            ),
        )  # fmt: skip

    def _end(self, outcome: Unfinished) -> Completed:
        claimed, extra = self.claimed, marks(self.claimed)
        facts = {
            "worker": self.carrier.worker, "error_type": outcome.error_type, "error": outcome.error,
        }  # fmt: skip
        match outcome:
            case Interrupted():
                _log.warning("Step interrupted: %s", outcome.error, extra=extra)
                failing.interrupt(claimed, crashed=outcome.crashed, **facts)
            case Postponed(delay=delay):
                _log.info("Step postponed by %.1f s: %s", delay, outcome.error, extra=extra)
                failing.postpone(claimed, delay=delay, **facts)
            case Blocked(reason=reason):
                _log.error("Step stopped for a person: %s", outcome.error, extra=extra)
                failing.stop(claimed, reason=reason, **facts)
            case Failed(delay=delay) if delay is not None:
                _log.warning("Step failed, again in %.1f s: %s", delay, outcome.error, extra=extra)
                failing.retry(claimed, delay=delay, **facts)
            case Failed():
                _log.error("Step failed for good: %s", outcome.error, extra=extra)
                failing.fail(claimed, **facts)
        return Completed()
