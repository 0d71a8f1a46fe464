"""Publishing what is due: steps, within a window per queue, by priority, then fairly between batches; and
what recovery has to do where the agents' code is: look-ups of effects, and undos."""

from celery import Celery

from models.journal import compensations, lookups, publish, workers
from models.settings import settings
from recovery import sending
from tasks.publishing import publish as send

WAKE_LOCK = 0x5741_4B45  #: any fixed number of ours


def publish_due(app: Celery, *, run_id: str | None = None) -> int:
    """Hand out due steps and send their messages, outside any transaction; returns how many went out."""
    wakeups = publish.take_due(limit=settings().publish_window, run_id=run_id)
    sent = send(app, wakeups)
    if sent < len(wakeups):
        publish.give_back(wakeups[sent:], after=settings().wake_period)
    return sent


def publish_lookups(app: Celery, *, run_id: str | None = None) -> int:
    """The same of effects that are to be looked up."""
    due = lookups.take_due(limit=settings().publish_window, run_id=run_id)
    sent = sending.send(app, [sending.look_up(*one) for one in due])
    if sent < len(due):
        unsent = [key for _, key, _ in due[sent:]]
        lookups.give_back(unsent, after=settings().wake_period)
    return sent


def publish_undoing(app: Celery, *, run_id: str | None = None) -> int:
    """The same of runs whose effects are being undone."""
    due = compensations.take_due(limit=settings().publish_window, run_id=run_id)
    sent = sending.send(app, [sending.compensate(*one) for one in due])
    if sent < len(due):
        unsent = [one for one, _ in due[sent:]]
        compensations.give_back(unsent, after=settings().wake_period)
    return sent


def wake_once(app: Celery) -> int | None:
    """One pass over all three, or None when another process is at it."""
    if not workers.alone(WAKE_LOCK):
        return None
    try:
        return publish_due(app) + publish_lookups(app) + publish_undoing(app)
    finally:
        workers.release(WAKE_LOCK)
