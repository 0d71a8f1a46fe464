"""Celery task events for steps that ran in place, so that Flower shows each step as a task of its own."""

from celery import Celery

from models.ids import task_id
from models.journal.values import Claimed
from tasks.worker import worker_name


def carried(app: Celery, claimed: Claimed) -> None:
    """Announce a step that starts inside another step's message. Costs nothing with events off."""
    if not app.conf.worker_send_task_events:
        return
    uuid = task_id(claimed.run_id, claimed.step_key, claimed.attempt)
    shown = {"run_id": claimed.run_id, "branch": claimed.branch, "step_key": claimed.step_key}
    with app.events.default_dispatcher(hostname=worker_name()) as dispatcher:
        dispatcher.send(
            "task-received",
            uuid=uuid,
            name=claimed.step_name,
            args="()",
            kwargs=repr(shown),
            retries=0,
        )
        dispatcher.send("task-started", uuid=uuid)
        dispatcher.send("task-succeeded", uuid=uuid, result="None", runtime=0.0)
