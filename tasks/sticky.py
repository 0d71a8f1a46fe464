"""Sticky execution: going on with the next step in place while a budget lasts.

A hop through the broker costs three to four milliseconds of CPU and six Redis commands; completing N and
claiming N+1 in one commit costs well under one. Off by default.
"""

import time
from functools import lru_cache

from celery import Celery, Task

from models.journal.values import Claimed
from models.settings import settings
from tasks import leaving, registry
from tasks.errors import AgentsError
from tasks.events import Carried
from tasks.step import BoundStep

_SPENT = 0.05  #: of a step's time limit that those before it in the same message may have used


class Budget:
    """How long and how far one message may carry a run."""

    def __init__(self, task: Task) -> None:
        self.app: Celery = task.app
        self._began = time.monotonic()
        self._until = self._began + settings().sticky_seconds
        self._left = settings().sticky_steps if settings().sticky else 0
        self._carried = Carried(task.app)

    def allows(self, bound: BoundStep, claimed: Claimed) -> bool:
        """Whether the next step may run here: same branch, queue and limits, no throttle, budget left."""
        after = claimed.after
        if (
            self._left <= 1
            or claimed.next_key is None
            or after is None
            or claimed.fork
            or time.monotonic() > self._until
            or leaving.is_leaving()
        ):
            return False
        if after.queue != claimed.queue or after.rate_limit is not None:
            return False
        try:
            following = self._named(bound, after.step_name)
        except AgentsError:
            return False  # a step of a version that this worker does not have
        # All steps of one message share its time limit: the next must have nearly all of its own left.
        spent = time.monotonic() - self._began
        return _limits(following) == _limits(bound) and spent < _SPENT * min(_limits(bound))

    def follow(self, bound: BoundStep, claimed: Claimed) -> BoundStep:
        """The step that was just claimed in place; Flower sees it as a task of its own."""
        self._left -= 1
        following = self._named(bound, claimed.step_name)
        self._carried.begin(claimed)
        return following

    def end(self) -> None:
        """Nothing more is carried."""
        self._carried.end()

    @staticmethod
    def _named(bound: BoundStep, name: str) -> BoundStep:
        return registry.step_named(name, bound.workflow)


@lru_cache(maxsize=1024)
def _limits(bound: BoundStep) -> tuple[float, float]:
    """Of the step's task, (hard, soft): as they were when it was registered."""
    return bound.time_limit, bound.soft_time_limit
