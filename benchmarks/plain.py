"""The plain contestant: a Celery chain with late acknowledgement, no journal and no result backend.

Celery's own defaults otherwise. A finished chain leaves one line in a file, so that the driver need
not ask the broker, whose commands are counted.
"""

import os

from celery import Celery, chain

from benchmarks.work import RESULT

_events = os.environ.get("BENCH_EVENTS") == "1"
_finished: dict[int, int] = {}  #: by pid, the open file of finished chains

app = Celery("plain", broker=os.environ["BENCH_BROKER_URL"])
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=1,
    worker_send_task_events=_events,
    task_send_sent_event=_events,
    broker_connection_retry_on_startup=True,
)


@app.task(name="plain.link")  # type: ignore[untyped-decorator]
def link(_previous: dict[str, object] | None, run: int, left: int) -> dict[str, object]:
    """One step. The last one of a chain says so."""
    if left == 0:
        os.write(_file(), b"%d\n" % run)
    return RESULT


def submit(run: int, steps: int) -> None:
    """Send one chain."""
    links = [
        link.s(None, run, steps - 1),
        *(link.s(run, left) for left in reversed(range(steps - 1))),
    ]
    chain(*links).apply_async()


def _file() -> int:
    pid = os.getpid()
    if pid not in _finished:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        _finished[pid] = os.open(os.environ["BENCH_FINISHED"], flags, 0o600)
    return _finished[pid]
