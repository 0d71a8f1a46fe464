"""Sending wake-up messages. A message is a hint: the journal has the work, so a failed send is a log line."""

import logging
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from celery import Celery
from kombu import Exchange, Queue
from kombu.exceptions import KombuError
from redis import RedisError

from models.ids import task_id
from models.journal.values import Wakeup

_log = logging.getLogger("onward.publish")
FAILURES = (KombuError, OSError, RedisError)


@lru_cache(maxsize=1024)
def queue(name: str) -> Queue:
    """A queue bound to the default exchange: routed by its own name, with no binding to look up."""
    return Queue(name, Exchange("", type="direct"), routing_key=name)


def publish(app: Celery, wakeups: Sequence[Wakeup]) -> int:
    """Send one message per wake-up over one held producer; returns how many went out.

    What could not be sent stays due in the journal, and the sweep sends it when its grace is over.
    """
    if not wakeups:
        return 0
    sent = 0
    try:
        with app.producer_pool.acquire(block=True, timeout=10) as producer:
            if len(wakeups) > 1 and _sent_together(app, producer, wakeups):
                return len(wakeups)
            for wakeup in wakeups:
                _send(app, producer, wakeup)
                sent += 1
    except FAILURES as error:
        _log.warning("Messages could not be sent (%s); the journal keeps the work due.", error)
    return sent


def _sent_together(app: Celery, producer: Any, wakeups: Sequence[Wakeup]) -> bool:
    """Send in few round trips: a fifth of the time of a mass recovery, which is all publishing.

    A batch is not repeated over a new connection as single messages are, so these follow when it
    fails. What had gone out by then is sent twice, and the claim drops the copy.
    """
    try:
        with producer.batch():
            for wakeup in wakeups:
                _send(app, producer, wakeup)
    except FAILURES:
        return False
    return True


def _send(app: Celery, producer: Any, wakeup: Wakeup) -> None:
    """One ordinary Celery message, with its signals and events: run, branch and step key, nothing else.

    What ``send_task`` does before this point (routing, options of the registered task, a result
    object) costs as much again and is settled here: the plan names the queue, the limits are the
    consuming worker's own, and nobody waits for a result. Workers declare what they consume.
    """
    amqp = app.amqp
    shown = {"run_id": wakeup.run_id, "branch": wakeup.branch, "step_key": wakeup.step_key}
    parent = app.current_worker_task
    message = amqp.create_task_message(
        task_id(wakeup.run_id, wakeup.step_key, wakeup.attempt), wakeup.step_name, (), shown,
        argsrepr="()", kwargsrepr=repr(shown), ignore_result=True,
        root_id=(parent.request.root_id or parent.request.id) if parent else None,
        parent_id=parent.request.id if parent else None,
        create_sent_event=app.conf.task_send_sent_event,
    )  # fmt: skip
    amqp.send_task_message(
        producer, wakeup.step_name, message, queue=queue(wakeup.queue), declare=[]
    )
