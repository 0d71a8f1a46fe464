"""A Celery app for tests that publish without workers, and what it left in the broker."""

from collections.abc import Iterator
from contextlib import contextmanager

from celery import Celery


@contextmanager
def publisher(broker_url: str) -> Iterator[Celery]:
    """An app with no tasks, apart from the product's own."""
    with Celery("publisher", broker=broker_url, set_as_current=False) as app:
        yield app


def queued(app: Celery, queue: str = "steps.toy@1") -> int:
    """Messages in the broker."""
    with app.connection_for_read() as connection:
        return int(connection.default_channel.client.llen(queue))
