"""Sending wake-up messages. A message is a hint: the journal has the work, so a failed send is a log line."""

import logging
from collections.abc import Iterable
from functools import lru_cache

from celery import Celery
from kombu import Exchange, Queue
from kombu.exceptions import OperationalError

from models.ids import task_id
from models.journal.values import Wakeup

_log = logging.getLogger("onward.publish")


@lru_cache(maxsize=1024)
def queue(name: str) -> Queue:
    """A queue bound to the default exchange: routed by its own name, with no binding to look up."""
    return Queue(name, Exchange("", type="direct"), routing_key=name)


def publish(app: Celery, wakeups: Iterable[Wakeup]) -> int:
    """Send one message per wake-up over one held producer; returns how many went out.

    Carries run, branch and step key and nothing else. What could not be sent stays due in the journal,
    and the sweep sends it when its grace is over.
    """
    sent = 0
    try:
        with app.producer_pool.acquire(block=True, timeout=10) as producer:
            for wakeup in wakeups:
                app.send_task(
                    wakeup.step_name,
                    kwargs={
                        "run_id": wakeup.run_id, "branch": wakeup.branch, "step_key": wakeup.step_key,
                    },
                    queue=queue(wakeup.queue),
                    task_id=task_id(wakeup.run_id, wakeup.step_key, wakeup.attempt),
                    producer=producer,
                    ignore_result=True,
                )  # fmt: skip
                sent += 1
    except (OperationalError, OSError) as error:
        _log.warning("Messages could not be sent (%s); the journal keeps the work due.", error)
    return sent
