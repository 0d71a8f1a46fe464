"""Publishing what is due: within a window per queue, by priority, then fairly between batches."""

from celery import Celery

from models.journal import publish, workers
from models.settings import settings
from tasks.publishing import publish as send

WAKE_LOCK = 0x5741_4B45  #: any fixed number of ours


def publish_due(app: Celery, *, run_id: str | None = None) -> int:
    """Hand out due steps and send their messages, outside any transaction; returns how many went out."""
    wakeups = publish.take_due(limit=settings().publish_window, run_id=run_id)
    sent = send(app, wakeups)
    if sent < len(wakeups):
        publish.give_back(wakeups[sent:], after=settings().wake_period)
    return sent


def wake_once(app: Celery) -> int | None:
    """One pass of ``publish_due``, or None when another process is at it."""
    if not workers.alone(WAKE_LOCK):
        return None
    try:
        return publish_due(app)
    finally:
        workers.release(WAKE_LOCK)
