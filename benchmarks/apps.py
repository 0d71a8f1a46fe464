"""What contestants on plain Celery share: its defaults with late acknowledgement, and how a finished run is told.

A run leaves one line in a file, so that the driver need not ask the broker or the database, whose work is counted.
"""

import os

from celery import Celery

_finished: dict[int, int] = {}  #: by pid, the open file of finished runs


def plain_app(name: str) -> Celery:
    """No journal and no result backend; Celery's own settings otherwise."""
    events = os.environ.get("BENCH_EVENTS") == "1"
    app = Celery(name, broker=os.environ["BENCH_BROKER_URL"])
    app.conf.update(
        task_acks_late=True,
        task_ignore_result=True,
        worker_prefetch_multiplier=1,
        worker_send_task_events=events,
        task_send_sent_event=events,
        broker_connection_retry_on_startup=True,
    )
    return app


def mark_finished(run: int) -> None:
    """One line."""
    os.write(_file(), b"%d\n" % run)


def _file() -> int:
    pid = os.getpid()
    if pid not in _finished:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        _finished[pid] = os.open(os.environ["BENCH_FINISHED"], flags, 0o600)
    return _finished[pid]
