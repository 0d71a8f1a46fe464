"""A request and its answer between a transport and the recorder, whatever HTTP library they come from."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from models.journal.call_values import Place

Headers: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A request as its maker wrote it: placeholders of secrets are not filled in."""

    method: str
    url: str
    headers: Headers = ()
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """What the wire gave. ``broken``: why it ended before its end."""

    status: int
    headers: Headers
    body: bytes  #: without its content encoding
    broken: Exception | None = None

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name), None)


class NoAnswer(Exception):
    """A transport's word for a request that was not answered. ``has_left``: it may have been worked on.

    ``of_caller``: it cannot be sent as its maker wrote it.
    """

    def __init__(self, cause: Exception, *, has_left: bool, of_caller: bool = False) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.has_left = has_left
        self.of_caller = of_caller


@dataclass(frozen=True, slots=True)
class Wait:
    """To whoever drives an exchange: let so many seconds pass."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Send:
    """To whoever drives an exchange: send this, which holds real secrets, and hand back what ``Arrived``."""

    request: Outgoing
    on_chunk: Callable[[bytes], object] | None


Order: TypeAlias = Wait | Send


@dataclass(slots=True, kw_only=True)
class Incoming:
    """An answer as it is handed out, live or from the record."""

    status: int
    headers: Headers
    body: bytes
    place: Place | None = None
    replayed: bool = False
    age: float = 0.0  #: seconds since it was recorded
    stale: bool = False  #: older than its reader wanted, and given all the same
    state: str = "complete"
    verdict: str | None = None
    reason: str | None = None  #: why it was rejected
    counts: bool = True  #: False: rejected before a person let the step start anew
    asks: int = 1  #: answers that count against the limit, this one included
    model: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    judged: Callable[["Incoming", str, str | None], None] = field(
        default=lambda *_: None, repr=False
    )

    losses: Callable[[Place], int] = field(default=lambda _: 0, repr=False)

    @property
    def lost(self) -> int:
        """How often it was asked for before, by attempts that did not live to get the answer."""
        return self.losses(self.place) if self.place is not None else 0

    def accept(self) -> None:
        """Say that this answer is taken: what the body goes on with. Durable on return."""
        self._judge("accepted", None)

    def reject(self, reason: str) -> None:
        """Say that this answer is not taken, and why. Durable on return."""
        self._judge("rejected", reason)

    def _judge(self, verdict: str, reason: str | None) -> None:
        if self.verdict is None:
            self.judged(self, verdict, reason)
            self.verdict, self.reason = verdict, reason
