"""Celery task events for steps that ran in place, so that Flower shows each step as a task of its own."""

import logging
import time
from typing import Any

from celery import Celery
from kombu.exceptions import KombuError
from redis import RedisError

from models.ids import task_id
from models.journal.values import Claimed
from models.settings import settings
from tasks.worker import worker_name

_log = logging.getLogger("onward.events")
_Event = tuple[str, dict[str, Any]]


class Carried:
    """What one message carries beyond its own step. One command to the broker a step; none with events off."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._tells = settings().task_events
        self._current: tuple[str, float] | None = None

    def begin(self, claimed: Claimed) -> None:
        """A step begins in place; the one before it is over."""
        if not self._tells:
            return
        shown = {"run_id": claimed.run_id, "branch": claimed.branch, "step_key": claimed.step_key}
        uuid = task_id(claimed.run_id, claimed.step_key, claimed.attempt)
        received = {
            "uuid": uuid, "name": claimed.step_name, "args": "()", "kwargs": repr(shown), "retries": 0,
        }  # fmt: skip
        over = self._over()
        self._current = uuid, time.monotonic()
        self._tell([*over, ("task-received", received), ("task-started", {"uuid": uuid})])

    def end(self) -> None:
        """The message carries nothing further."""
        self._tell(self._over())

    def _over(self) -> list[_Event]:
        if self._current is None:
            return []
        uuid, since = self._current
        self._current = None
        runtime = time.monotonic() - since
        return [("task-succeeded", {"uuid": uuid, "result": "None", "runtime": runtime})]

    def _tell(self, events: list[_Event]) -> None:
        """Send events as one message. Flower may miss them: a broker that fails once is not asked again."""
        if not events:
            return
        try:
            with (
                self._app.producer_pool.acquire(block=True, timeout=10) as producer,
                self._app.events.Dispatcher(
                    producer.connection, hostname=worker_name(), channel=producer.channel,
                    buffer_group=frozenset({"task"}), buffer_while_offline=False,
                ) as dispatcher,
            ):  # fmt: skip
                for kind, fields in events:
                    dispatcher.send(kind, **fields)
                dispatcher.flush()
        except (KombuError, OSError, RedisError) as error:
            self._tells, self._current = False, None
            _log.info("Flower was not told of a step that ran in place: %s", error)
