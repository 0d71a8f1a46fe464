"""Log lines that say which run, step and attempt they are about.

``ONWARD_LOG=text`` (the default) writes ``key=value`` pairs behind the message, ``ONWARD_LOG=json`` one
JSON object a line. Lines of other libraries, written while a step runs, carry the step's marks too, and none
holds the value of a secret that this process has revealed.
"""

import json
import logging
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from celery import signals

from models.exceptions import redact_traceback
from models.messages import printable
from models.redaction import redact
from models.settings import settings
from tasks.within import Within

MARKS = ("run_id", "step_key", "attempt", "batch_id")

_about: ContextVar[Mapping[str, object]] = ContextVar(
    "what the work under way is about", default=MappingProxyType({})
)
_BARE = re.compile(r"[^\s\"=]+")


def about(**marks: object) -> AbstractContextManager[None]:
    """Mark every line that this thread logs meanwhile."""
    return Within(_about, {**_about.get(), **marks})


def formatter() -> logging.Formatter:
    """The formatter that the settings ask for."""
    return JsonFormatter() if settings().log == "json" else TextFormatter()


class TextFormatter(logging.Formatter):
    """``2026-03-01T12:00:00.250Z INFO onward.engine Step failed ... run_id=run-1 step_key=read``."""

    def format(self, record: logging.LogRecord) -> str:
        head = f"{_time(record)} {record.levelname} {record.name} {record.getMessage()}"
        line = " ".join(
            [head, *(f"{name}={_bare(value)}" for name, value in _marks(record).items())]
        )
        trouble = _trouble(self, record)
        return redact(f"{line}\n{trouble}" if trouble else line)


class JsonFormatter(logging.Formatter):
    """One object a line; an exception's traceback is a field of it."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": _time(record), "level": record.levelname, "logger": record.name,
            "message": record.getMessage(), **_marks(record), "pid": record.process,
        }  # fmt: skip
        if trouble := _trouble(self, record):
            fields["exception"] = trouble
        return redact(json.dumps(fields, ensure_ascii=False, default=str))


def _dress(logger: logging.Logger, **_: Any) -> None:
    """Celery has set up a logger of a worker or beat: its handlers write our lines from now on."""
    for handler in logger.handlers:
        handler.setFormatter(formatter())


signals.after_setup_logger.connect(_dress, weak=False)
signals.after_setup_task_logger.connect(_dress, weak=False)


def _marks(record: logging.LogRecord) -> dict[str, object]:
    """What the line itself says it is about, else what the work under way is about."""
    found = {name: getattr(record, name, _about.get().get(name)) for name in MARKS}
    return {name: value for name, value in found.items() if value is not None}


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}Z"


def _bare(value: object) -> str:
    text = printable(str(value))
    return text if _BARE.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def _trouble(dress: logging.Formatter, record: logging.LogRecord) -> str:
    parts = []
    if record.exc_info:
        parts.append(redact_traceback(dress.formatException(record.exc_info), record.exc_info[1]))
    if record.stack_info:
        parts.append(dress.formatStack(record.stack_info))
    return "\n".join(parts)
