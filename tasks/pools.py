"""Which pools of Celery a worker may run on, and what a pool of threads is not given.

prefork runs every step: one process each, which a limit or a person can end. Threads are for steps that wait
for a model and do nothing else: a hundred of them fit into one process, which nothing can end one by one.
There a step's hard limit ends its lease instead of its body, and untracked steps are refused, since what a
displaced one goes on writing could be stopped by nobody.
"""

from typing import Any

from celery import concurrency

from models import database
from models.journal.values import Claimed
from models.settings import settings
from models.states import BlockReason
from tasks import registry
from tasks.errors import EffectBlocked
from tasks.step import BoundStep

#: Statements take milliseconds, so that a hundred threads seldom wait for one of so many connections.
CONNECTIONS = 8

_THREADS = "celery.concurrency.thread"
_GREEN = ("celery.concurrency.gevent", "celery.concurrency.eventlet")
_threads = False


def prepare(worker: Any, *, control_queue: str) -> None:
    """What the pool of a starting worker asks for. Ends it, with the reason, where it must not run."""
    global _threads  # noqa: PLW0603 - set once, before any step runs
    pool = concurrency.get_implementation(worker.pool_cls).__module__
    if pool in _GREEN:
        raise SystemExit(
            "onward: this pool never gets back the messages of a worker that died (measured, on Redis). "
            "Use prefork, or -P threads for steps that only wait for a model."
        )
    if pool != _THREADS:
        return
    _check(set(worker.app.amqp.queues.consume_from), control_queue)
    _threads = True
    database.lend(CONNECTIONS)


def is_threaded() -> bool:
    """Whether this process runs many steps at a time, in threads."""
    return _threads


def lease_limit(bound: BoundStep) -> float | None:
    """Seconds after which a step's lease is given up here; None: the pool enforces the limit itself."""
    return (bound.time_limit or settings().step_time_limit) if _threads else None


def refuse_untracked(claimed: Claimed) -> None:
    """For a plan that names a queue of threads for a step that must not be there."""
    if _threads and claimed.untracked:
        raise EffectBlocked(
            f"step {claimed.step_key!r} does I/O that Onward cannot see, and its plan sent it to a worker of "
            "threads, where nothing can end it: nothing was done. Give it a queue that a prefork worker serves, "
            "or start one for this queue; then `onward runs resume`",
            reason=BlockReason.UNTRACKED_STEP,
        )


def _check(consumed: set[str], control_queue: str) -> None:
    if control_queue in consumed:
        raise SystemExit(
            "onward: a worker of threads takes only the queues of steps that wait for a model. Name them: "
            "`celery -A tasks worker -P threads -c 100 -Q llm.contract-review@1`"
        )
    untracked = [
        bound.name
        for workflow in registry.load_agents()
        for bound in workflow.steps.values()
        if bound.options.untracked and bound.queue in consumed
    ]
    if untracked:
        raise SystemExit(
            f"onward: untracked steps must be on a worker that can end them, not on threads: "
            f"{', '.join(sorted(untracked))}. Give them another `queue=`."
        )
