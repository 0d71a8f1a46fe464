"""What Flower may show of a message that carries a user's input: the ids in it, nothing else."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from celery import Task
from celery.worker.request import Request

from models.errors import OnwardError
from models.exceptions import scrubbed

_log = logging.getLogger("onward.start")
_SHOWN = ("workflow", "key", "run_id", "batch_id", "priority")


def shown(kwargs: Mapping[str, Any]) -> str:
    """Of a submission's arguments what may be shown, as a literal dict."""
    return repr({name: kwargs[name] for name in _SHOWN if name in kwargs})


@contextmanager
def without_secrets() -> Iterator[None]:
    """Let nothing out that holds a revealed secret: Celery tells Flower of it, from a process that knows none."""
    try:
        yield
    except BaseException as error:
        safe = scrubbed(error)
        if safe is error:
            raise
        raise safe from None


class QuietRequest(Request):  # type: ignore[misc]  # Celery publishes no types
    """A request whose task events name the run and leave its input out."""

    @property
    def argsrepr(self) -> str:
        """Positional arguments may be input; none is shown."""
        return "()"

    @property
    def kwargsrepr(self) -> str:
        """A literal dict, so that Flower's search finds ``kwargs:key=...``."""
        return shown(self.kwargs)


class QuietTask(Task):  # type: ignore[misc]  # Celery publishes no types
    """A task whose arguments and errors stay out of events and out of Celery's own log lines."""

    abstract = True
    Request = QuietRequest


class StartRefused(OnwardError):
    """A run could not be submitted; the reason may quote its input and is in the worker's log only."""


def refuse(error: OnwardError, *, workflow: str, key: str | None) -> StartRefused:
    """Log why a submission was refused, and make the error that events and Flower may show."""
    _log.error("Run of %r (key %r) not submitted: %s", workflow, key, error)
    return StartRefused(
        f"run of {workflow!r} not submitted: {type(error).__name__}; see the worker's log"
    )
