"""``onward.start_run``: a run submitted by a Celery message, from services that have none of our code.

The message may come twice, since its worker may die before the ack: a run without a key of its own is
known by the message's id. A worker that cannot reach the journal gives the message back, and one that has
not loaded the workflow hands it to those that have, which listen to a queue of the workflow's name.
"""

import logging
import time
from collections.abc import Mapping

from celery import Task
from celery.exceptions import Reject
from kombu.exceptions import OperationalError

from models.errors import OnwardError
from models.journal import reads
from models.journal.errors import JournalUnavailable
from models.settings import settings
from tasks import registry
from tasks.publishing import queue
from tasks.quiet import refuse, shown
from tasks.starting import start_run

_log = logging.getLogger("onward.start")

START_QUEUE = "onward.start"


def start_queue(workflow: str) -> str:
    """Where those listen that have loaded this workflow, whatever their version."""
    return f"{START_QUEUE}.{workflow}"


def start_from_message(
    task: Task, workflow: str, given: Mapping[str, object], *, key: str | None, run_id: str | None,
    batch_id: str | None, priority: int, budget: object = None,
) -> None:  # fmt: skip
    """Submit the run, hand the message on, or raise what Flower may show."""
    if key is None and run_id is None:
        key = f"message-{task.request.id}"
    try:
        if workflow not in registry.workflows() and _is_known_elsewhere(workflow):
            _hand_on(task, workflow)
            return
        start_run(
            task.app, workflow, given, key=key, run_id=run_id, batch_id=batch_id, priority=priority,
            budget=budget,
        )  # fmt: skip
    except (JournalUnavailable, OperationalError) as error:
        _log.warning("Run of %r not submitted yet: %s Giving its message back.", workflow, error)
        time.sleep(settings().wake_period)
        raise Reject(str(error), requeue=True) from error
    except OnwardError as error:
        raise refuse(error, workflow=workflow, key=key) from None


def _is_known_elsewhere(workflow: str) -> bool:
    return start_queue(workflow) in reads.served_queues(silent_after=4 * settings().heartbeat)


def _hand_on(task: Task, workflow: str) -> None:
    request = task.request
    task.app.send_task(
        task.name, args=request.args, kwargs=request.kwargs, queue=queue(start_queue(workflow)),
        task_id=request.id, argsrepr="()", kwargsrepr=shown(request.kwargs),
    )  # fmt: skip
