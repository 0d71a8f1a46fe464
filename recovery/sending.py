"""Messages to recovery's own tasks on the queues of agents: what needs their code runs where it is loaded."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from celery import Celery

from models.ids import new_nonce
from models.journal.untracked import Ask
from tasks.publishing import FAILURES, queue

_log = logging.getLogger("onward.publish")

RECONCILE, RECONCILE_STEP, COMPENSATE = (
    "recovery.reconcile",
    "recovery.reconcile_step",
    "recovery.compensate",
)


@dataclass(frozen=True, slots=True)
class Job:
    """One message. Its arguments are ids only, as Flower shows them."""

    task: str
    queue: str
    kwargs: Mapping[str, object]


def look_up(run_id: str, key: str, queue_name: str) -> Job:
    """Ask what became of an effect."""
    return Job(RECONCILE, queue_name, {"run_id": run_id, "key": key})


def look_up_step(ask: Ask) -> Job:
    """Ask whether an untracked step was done."""
    ref = ask.ref
    given = {"run_id": ref.run_id, "branch": ref.branch, "revision": ref.revision}
    return Job(RECONCILE_STEP, ask.queue, given)


def compensate(run_id: str, queue_name: str) -> Job:
    """Go on with undoing what a run did."""
    return Job(COMPENSATE, queue_name, {"run_id": run_id})


def send(app: Celery, jobs: Sequence[Job]) -> int:
    """Send them over one held producer, in order; returns how many went out.

    The journal has the work: what is not sent, or lost on its way, is due again there.
    """
    sent = 0
    if not jobs:
        return 0
    try:
        with app.producer_pool.acquire(block=True, timeout=10) as producer:
            for job in jobs:
                _send(app, producer, job)
                sent += 1
    except FAILURES as error:
        _log.warning("Messages could not be sent (%s); the journal keeps the work due.", error)
    return sent


def _send(app: Celery, producer: Any, job: Job) -> None:
    shown = dict(job.kwargs)
    message = app.amqp.create_task_message(
        f"{job.task}-{new_nonce()}", job.task, (), shown, argsrepr="()", kwargsrepr=repr(shown),
        ignore_result=True, create_sent_event=app.conf.task_send_sent_event,
    )  # fmt: skip
    app.amqp.send_task_message(producer, job.task, message, queue=queue(job.queue), declare=[])
