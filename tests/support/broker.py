"""A Celery app for tests that publish without workers, and what it left in the broker."""

import json
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


def sent(app: Celery, queue: str = "steps.toy@1") -> list[tuple[str, str]]:
    """(task, arguments as Flower shows them) of everything in the broker, oldest first."""
    with app.connection_for_read() as connection:
        raw = connection.default_channel.client.lrange(queue, 0, -1)
    headers = [json.loads(message)["headers"] for message in reversed(raw)]
    return [(one["task"], one["kwargsrepr"]) for one in headers]
