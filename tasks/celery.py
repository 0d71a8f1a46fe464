"""The Celery app: ``celery -A tasks worker``, ``celery -A tasks beat``, ``celery -A tasks flower``.

Each setting has its measured reason. The journal is the record; Celery carries wake-up messages.
"""

from typing import Any

from celery import Celery, Task

from models.secret import learn_from_environment
from models.settings import settings
from tasks import registry, transport
from tasks.children import ChildWatch
from tasks.engine import perform
from tasks.publishing import queue
from tasks.quiet import QuietTask, without_secrets
from tasks.step import BoundStep
from tasks.submissions import START_QUEUE, start_from_message, start_queue
from tasks.worker import CONTROL_QUEUE

learn_from_environment()
transport.install()
app = Celery("onward")
app.conf.update(
    broker_url=settings().broker_url,
    include=["recovery.jobs"],
    # The journal holds results: no keys that grow, no chords that hang.
    result_backend=None,
    task_ignore_result=True,
    # Queued messages return to the queue when a worker shuts down; both `acks_on` stay true, since a
    # timed-out step that is requeued overlaps itself for ever. Lost children are *not* rejected or
    # retried by Celery: that loops on a step that kills its worker (79 runs in 12 s, measured), re-runs
    # what nobody reconciled, and silences the signal by which we learn of the death.
    task_acks_late=True,
    task_acks_on_failure=True,
    task_acks_on_timeout=True,
    task_reject_on_worker_lost=False,
    task_retry_on_worker_lost=False,
    worker_prefetch_multiplier=1,
    # A blink of the broker must not burn a running LLM call.
    worker_cancel_long_running_tasks_on_connection_loss=False,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    # A full Redis answers a worker's own bookkeeping with a refusal, and the worker would exit on it.
    broker_channel_error_retry=True,
    broker_transport_options={
        # Longer than any step: Redis hands an unacked message out again after it, while the first
        # copy still runs. Fast recovery comes from the lease. Without the two restore settings Redis
        # is scanned only about every 100 s.
        "visibility_timeout": settings().visibility_timeout,
        "unacked_restore_interval": max(1, min(10, int(settings().visibility_timeout / 4))),
        "unacked_restore_throttle": 1,
        # Publishing to a frozen Redis hangs for ever otherwise.
        "socket_timeout": 10,
        "socket_connect_timeout": 5,
        "socket_keepalive": True,
        "health_check_interval": 25,
        "global_keyprefix": settings().key_prefix,
        "priority_steps": [0],
        "client_name": "onward",
    },
    # The default of `retry=False` is slower on a dead Redis (6 s) than two quick retries (0.7 s).
    task_publish_retry=True,
    task_publish_retry_policy={
        "max_retries": 2, "interval_start": 0, "interval_step": 0.2, "interval_max": 0.5,
    },
    # Only prefork enforces limits and shuts down cleanly.
    worker_pool="prefork",
    task_time_limit=settings().step_time_limit,
    task_soft_time_limit=settings().step_soft_time_limit,
    worker_soft_shutdown_timeout=settings().shutdown_grace,  # with REMAP_SIGTERM=SIGQUIT
    worker_enable_soft_shutdown_on_idle=False,
    worker_proc_alive_timeout=30.0,
    worker_max_tasks_per_child=2000,
    worker_max_memory_per_child=600_000,
    task_serializer="json",
    accept_content=["json"],
    task_create_missing_queues=False,
    # Flower. Arguments of our messages are ids only; prompts and payloads never travel.
    worker_send_task_events=settings().task_events,
    task_send_sent_event=settings().task_events,
    task_track_started=True,
    beat_max_loop_interval=1,
    beat_enable_remote_control=True,
    beat_remote_control_max_tick_age=30.0,
    # `expires` below the period: no pile of passes to catch up with after an outage.
    beat_schedule={
        name: {
            "task": name, "schedule": period,
            "options": {"queue": queue(CONTROL_QUEUE), "expires": max(period, 1.0)},
        }
        for name, period in {
            "recovery.sweep": settings().sweep_period,
            "recovery.wake": settings().wake_period,
            "recovery.watch": max(settings().sweep_period, 5.0),
        }.items()
    },
    enable_utc=True,
    timezone="UTC",
)  # fmt: skip
app.steps["worker"].add(ChildWatch)


def _register(bound: BoundStep) -> None:
    """One Celery task per step: its name, its limits; its body is the engine."""

    def run(task: Task, run_id: str, branch: str, step_key: str) -> None:
        with without_secrets():
            perform(task, run_id, branch, step_key)

    app.task(
        name=bound.name,
        bind=True,
        time_limit=bound.time_limit,
        soft_time_limit=bound.soft_time_limit,
    )(run)


_queues = {CONTROL_QUEUE, START_QUEUE}
for _workflow in registry.load_agents():
    _queues.update((start_queue(_workflow.name), *_workflow.queues))
    for _bound in _workflow.steps.values():
        if _bound.name not in app.tasks:
            _register(_bound)
app.conf.task_queues = [queue(name) for name in sorted(_queues)]
app.conf.task_default_queue = START_QUEUE


@app.task(name="onward.start_run", bind=True, base=QuietTask)
def start_run_task(  # noqa: PLR0917 - senders may give positions
    task: Task,
    workflow: str,
    input: dict[str, Any],
    key: str | None = None,
    run_id: str | None = None,
    batch_id: str | None = None,
    priority: int = 0,
    budget: dict[str, Any] | None = None,
) -> None:
    """Submit a run from anywhere that can send a Celery message; idempotent by its ``key``."""
    with without_secrets():
        start_from_message(
            task, workflow, input, key=key, run_id=run_id, batch_id=batch_id, priority=priority,
            budget=budget,
        )  # fmt: skip
