"""One request on its way through a worker: what it is recorded as, and what its caller gets."""

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ops.testing.certify.faults import FaultKind
from ops.testing.certify.records import Exchange, digest_of

if TYPE_CHECKING:
    from ops.testing.certify.wire import Wire

PAST_TIMEOUT = 1.0  #: seconds by which a delayed answer comes too late for the tool's own time-out
WITHOUT_TIMEOUT = 3.0  #: seconds of delay where the caller has set no time-out at all
INJECTED = {"error": "injected by certify"}  #: the body of a 500 that the real server did not say


@dataclass(slots=True)
class Task:
    """The Celery task that this process runs."""

    run_id: str
    step_key: str  #: empty: not a step, but a look-up or another task of recovery
    counts: "Counter[tuple[str, str, str]]" = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Call:
    """A function of a tool that is under way."""

    tool: str
    function: str
    key: str
    timeout: float
    task: Task | None


@dataclass(frozen=True, slots=True)
class Twist:
    """What the caller gets instead of the answer that has come."""

    kind: FaultKind
    wait: float = 0.0  #: seconds until the real answer is handed over after all
    timed_out: bool = False  #: the caller's own time-out is over, without anybody having to wait


class Passing:
    """One request on its way."""

    def __init__(self, wire: "Wire", exchange: Exchange, call: Call | None) -> None:
        self._wire = wire
        self._exchange = exchange
        self._call = call
        self._name = wire.notebook.open(exchange)

    def sent(self) -> None:
        """To be called before anything of the request leaves."""
        self._wire.die_at(FaultKind.P2, self._exchange)
        self._wire.leave(self)
        self._wire.notebook.passed(self._name)

    def failed(self) -> None:
        """To be called when the real transport raised: whether it was applied is not known."""
        self._wire.arrive(self)

    def answered(self, status: int, *, body: bytes, timeout: float | None) -> Twist | None:
        """To be called with the real answer, before the caller gets it. ``timeout``: the caller's own."""
        carries = self._exchange.carries_effect_key or (
            self._call is not None and self._call.key.encode() in body
        )
        self._wire.notebook.answered(
            self._name, status=status, digest=digest_of(body), carries_effect_key=carries
        )
        self._wire.arrive(self)
        self._wire.die_at(FaultKind.P3, self._exchange)
        for kind in (FaultKind.DROP, FaultKind.ERROR):
            if self._wire.strikes(kind, self._exchange):
                return Twist(kind)
        if self._wire.strikes(FaultKind.DELAY, self._exchange):
            return self._delay(timeout)
        return None

    def _delay(self, timeout: float | None) -> Twist:
        """Nobody waits where the caller's own time-out comes first: it is raised in its place."""
        limit = self._call.timeout if self._call is not None else None
        if timeout is not None and (limit is None or timeout <= limit):
            return Twist(FaultKind.DELAY, timed_out=True)
        return Twist(
            FaultKind.DELAY, wait=WITHOUT_TIMEOUT if limit is None else limit + PAST_TIMEOUT
        )
