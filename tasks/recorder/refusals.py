"""What an answer without success means for the run: wait, stop for a person, or let the body see it."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeAlias
from urllib.parse import urljoin

from models.messages import one_line
from tasks.recorder.declared import origin
from tasks.recorder.dialects import as_object
from tasks.recorder.reading import fields, problem, text
from tasks.recorder.values import Arrived, Headers

_OVERLOADED = frozenset({503, 529})
_LONGEST = 24 * 3600.0  #: seconds; a service that asks for more is asked again after a day
_SOONEST = 0.05  #: seconds
_SHOWN = 300  #: characters of a service's own words

_WITHDRAWN_CODES = frozenset(
    {"model_not_found", "model_not_available", "model_deprecated", "model_decommissioned"}
)
_WITHDRAWN = re.compile(
    r"\bmodels?\b.{0,200}\b(deprecated|decommissioned|retired|discontinued|no longer|not found|not exist)"
    r"|^model: ",
    re.IGNORECASE | re.DOTALL,
)
_MAY_NAME_MODEL = frozenset({400, 404, 422})
_SECRET = re.compile(r"\[secret ([^\]]+)\]|\{\{secret:([^}]+)\}\}")


@dataclass(frozen=True, slots=True)
class Later:
    """Nobody is to ask again before ``seconds`` have passed; None: the service does not say how long.

    An instant: it has named one, and not what time it has.
    """

    seconds: float | datetime | None
    reason: str


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The model is not there any more."""

    reason: str


@dataclass(frozen=True, slots=True)
class Denied:
    """The credentials are not accepted."""

    reason: str


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The request would have to be sent to another host, which nobody has declared."""

    url: str


@dataclass(frozen=True, slots=True)
class Theirs:
    """The request itself is at fault: the body hears of it as its SDK tells it."""


Meaning: TypeAlias = Later | Withdrawn | Denied | Elsewhere | Theirs


def of_model(answer: Arrived, url: str) -> Meaning:
    """What a status other than success means when a model was asked."""
    status, said = answer.status, _told(answer)
    if status == 429 or status in _OVERLOADED or status == 408 or status >= 500:
        return Later(
            asked_to_wait(answer) if status == 429 or status in _OVERLOADED else None, said
        )
    if status == 410 or (status in _MAY_NAME_MODEL and _names_model(answer)):
        return Withdrawn(said)
    if status in (401, 403):
        return Denied(said)
    if 300 <= status < 400 and (target := answer.header("location")):
        goes_to = urljoin(url, target)
        return Theirs() if origin(goes_to) == origin(url) else Elsewhere(goes_to)
    return Theirs()


def of_read(answer: Arrived) -> Later | None:
    """Whether something that was read asks to be left alone for a while."""
    if answer.status not in (429, 503):
        return None
    seconds = asked_to_wait(answer)
    return None if seconds is None else Later(seconds, _told(answer))


def asked_to_wait(answer: Arrived) -> float | datetime | None:
    """Seconds of ``Retry-After``, which is a number or a date; the date is read by the service's own clock.

    The date itself where the service does not say what time it has.
    """
    if (fine := _number(answer.header("retry-after-ms"))) is not None:
        return bounded(fine / 1000)
    given = answer.header("retry-after")
    if given is None:
        return None
    if (seconds := _number(given)) is not None:
        return bounded(seconds)
    until, now = _date(given), _date(answer.header("date"))
    if until is None or now is None:
        return until
    return bounded((until - now).total_seconds())


def bounded(seconds: float) -> float:
    """A wait that is neither nothing nor for ever."""
    return min(max(seconds, _SOONEST), _LONGEST)


def names_of_secrets(headers: Headers) -> tuple[str, ...]:
    """The secrets that a request's headers, redacted or with placeholders, are made with."""
    found = (match for _, value in headers for match in _SECRET.finditer(value))
    return tuple(dict.fromkeys(match[1] or match[2] for match in found))


def _number(given: str | None) -> float | None:
    try:
        seconds = float(given or "")
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None


def _date(given: str | None) -> datetime | None:
    """An instant in any of the forms of HTTP; one without a zone is in UTC, as they all are."""
    try:
        found = parsedate_to_datetime(given or "")
    except (ValueError, TypeError, OverflowError):
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _error_of(answer: Arrived) -> Any:
    body = as_object(answer.body)
    return body.get("error", body.get("detail", body.get("message")))


def _names_model(answer: Arrived) -> bool:
    error = _error_of(answer)
    said = problem(error) or ""
    return (
        text(fields(error).get("code")) in _WITHDRAWN_CODES or _WITHDRAWN.search(said) is not None
    )


def _told(answer: Arrived) -> str:
    said = problem(_error_of(answer))
    return f"status {answer.status}" + (f", {one_line(said, limit=_SHOWN)}" if said else "")
