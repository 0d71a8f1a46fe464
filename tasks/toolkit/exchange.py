"""One request and its answer, and what is certain about it when there is none."""

import json
import logging
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from models.messages import one_line
from models.redaction import redact
from tasks.tools import NotSent, Refused, Unanswered
from tasks.within import Within

if TYPE_CHECKING:
    import httpx2

_log = logging.getLogger("onward.http")
_ours: ContextVar[bool] = ContextVar("onward_http_tool_sends", default=False)

BODY_LIMIT = 16 * 1024 * 1024  #: bytes of an answer; more is not a result but a mistake
_EXCERPT = 300  #: characters of an answer in a message

Meaning: TypeAlias = Literal["settled", "refused", "unknown"]

#: Definite answers among those that say "error": nothing was done, or nothing could be understood. 408 is
#: not among them, since a proxy says it of a server that may be at work; nor is 409, which some services
#: answer while the first request with the same key is still being worked on.
_REFUSED = frozenset({301, 307, 308, *range(400, 500)} - {408, 409})


class RateLimited(Refused):
    """It was not done, since too many were asked for. ``retry_after`` seconds were asked for, if any."""

    retry_after: float | None = None

    def __init__(self, message: str, *, retry_after: float | None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Unreadable(Exception):
    """An answer that cannot be understood, whatever it means."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request, filled in. ``what`` names it in messages, without what was filled in."""

    method: str
    url: str
    what: str
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    hidden: tuple[str, ...] = ()  #: what is struck out of messages


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. ``problem``: the body did not arrive whole."""

    call: Call
    status: int
    headers: Mapping[str, str]  #: names in lower case
    body: bytes
    problem: str = ""

    def json(self) -> Any:
        """The body; None when it is empty. Raises ``Unreadable``."""
        if self.problem:
            raise Unreadable(self.problem)
        if not self.body:
            return None
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise Unreadable(f"it is not JSON: {one_line(str(error))}") from None

    @property
    def excerpt(self) -> str:
        """The beginning of the body for a message, with secrets struck out."""
        text = self.body[: 8 * _EXCERPT].decode("utf-8", "replace")
        return redacted(one_line(text), self.call)[:_EXCERPT]

    @property
    def retry_after(self) -> float | None:
        """Seconds, as the header says: a number, or a date against the answer's own ``Date``."""
        text = self.headers.get("retry-after", "").strip()
        if text.isdecimal() and len(text) < 10:
            return float(text)
        try:
            until = parsedate_to_datetime(text)
            return max(0.0, (until - parsedate_to_datetime(self.headers["date"])).total_seconds())
        except (ValueError, TypeError, KeyError):
            return None


def meaning(status: int, answers: Mapping[int, Meaning]) -> Meaning:
    """What a status says about the effect; ``answers`` come first."""
    if status in answers:
        return answers[status]
    if 200 <= status < 300:
        return "settled"
    return "refused" if status in _REFUSED else "unknown"


def check_settled(answer: Answer, answers: Mapping[int, Meaning]) -> None:
    """Return when it happened; raise what it means otherwise."""
    said = f"{answer.call.what} was answered {answer.status}"
    match meaning(answer.status, answers):
        case "settled":
            return
        case "refused" if answer.status == 429:
            pause = answer.retry_after
            when = "" if pause is None else f", and again in {pause:g} s at the earliest"
            raise RateLimited(f"{said}: too many requests{when}", retry_after=pause)
        case "refused" if 300 <= answer.status < 400:
            raise Refused(
                f"{said}: it has moved; correct the tool's url. A redirect is not followed"
            )
        case "refused":
            raise Refused(f"{said}: {answer.excerpt}")
        case "unknown":
            raise Unanswered(f"{said}, which leaves open whether it happened: {answer.excerpt}")


def send(client: "httpx2.Client", call: Call, *, seconds: float) -> Answer:
    """Send once, follow nothing, and read the answer within the time given.

    Raises ``NotSent`` when the request provably never left and ``Unanswered`` when it may have. An answer
    whose body breaks off is an answer all the same: its status is known.
    """
    import httpx2  # noqa: PLC0415 - a tenth of a second, for processes that only declare the tool

    deadline = time.monotonic() + seconds
    try:
        request = client.build_request(
            call.method, call.url, headers=dict(call.headers), content=call.content, timeout=seconds
        )
    except Exception as error:
        raise NotSent(f"{call.what} was not sent: {_told(error, call)}") from error
    try:
        with _unlogged():
            response = client.send(request, stream=True, follow_redirects=False)
    except (
        httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError,
        httpx2.UnsupportedProtocol,
    ) as error:  # fmt: skip
        raise NotSent(f"{call.what} was not sent: {_told(error, call)}") from error
    except Exception as error:
        raise Unanswered(f"{call.what} was sent and not answered: {_told(error, call)}") from error
    _log.info("%s was answered %d.", call.what, response.status_code)
    body, problem = _read(response, deadline)
    return Answer(call, response.status_code, _lower(response.headers), body, problem)


def redacted(text: str, call: Call) -> str:
    """A message without what is secret in this call."""
    for secret in call.hidden:
        text = text.replace(secret, "***")
    return redact(text)


def _read(response: "httpx2.Response", deadline: float) -> tuple[bytes, str]:
    """The body as far as it came, and why no further."""
    parts: list[bytes] = []
    size = 0
    try:
        for part in response.iter_bytes():
            parts.append(part)
            size += len(part)
            if size > BODY_LIMIT:
                return b"".join(parts), f"it is longer than {BODY_LIMIT:,} bytes"
            if time.monotonic() > deadline:
                return b"".join(parts), "it took longer than the tool's timeout"
    except Exception as error:
        return b"".join(parts), f"it broke off: {type(error).__name__}"
    finally:
        response.close()
    return b"".join(parts), ""


def _unlogged() -> AbstractContextManager[None]:
    """httpx2 logs whole addresses, which may hold what is secret here; other users of it go on logging."""
    logging.getLogger("httpx2").addFilter(_is_not_ours)  # once, however often
    return Within(_ours, True)


def _is_not_ours(_record: logging.LogRecord) -> bool:
    return not _ours.get()


def _lower(headers: "httpx2.Headers") -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _told(error: Exception, call: Call) -> str:
    return redacted(one_line(f"{type(error).__name__}: {error}"), call)
