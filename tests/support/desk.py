"""A service within the test's own process, the tools that reach it, and a step's calls without a worker."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from models.journal.values import Claimed
from tasks import Absent, Context, Effect, Tool, tool
from tasks.effects import Ledger
from tasks.tools import Looked
from tests.support.intents import SENDER


@dataclass(frozen=True)
class Wanted:
    """What is asked for. ``at`` is volatile and ``token`` secret."""

    servers: int = 1
    at: str = ""
    token: str = ""


@dataclass(frozen=True)
class Made:
    """What came of it."""

    resource_id: str
    servers: int = 1


@dataclass
class Desk:
    """What was asked, and how the next requests are answered."""

    calls: list[tuple[str, Any]] = field(default_factory=list)
    answers: list[Callable[[], Any]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def serve(self, key: str, request: Any) -> Any:
        with self.lock:
            self.calls.append((key, request))
            number = len(self.calls)
            answer = self.answers.pop(0) if self.answers else None
        return answer() if answer else Made(f"res-{number}", getattr(request, "servers", 1))

    def then(self, *answers: Callable[[], Any]) -> None:
        """Answer the next requests like this, one after another."""
        self.answers.extend(answers)

    def reset(self) -> None:
        self.calls.clear()
        self.answers.clear()


DESK = Desk()


def raises(error: BaseException) -> Callable[[], Any]:
    def answer() -> Any:
        raise error

    return answer


class Queryable(Tool[Wanted, Made]):
    name, effect = "desk.queryable", Effect.QUERYABLE
    max_request_lifetime = timedelta(seconds=60)
    volatile, secret = frozenset({"at"}), frozenset({"token"})

    def execute(self, request: Wanted, *, key: str) -> Made:
        made: Made = DESK.serve(key, request)
        return made

    def lookup(self, request: Wanted, *, key: str) -> Looked:
        return Absent()


class Idempotent(Queryable):
    name, effect = "desk.idempotent", Effect.IDEMPOTENT
    key_retention = timedelta(hours=1)


class Hasty(Queryable):
    """Waits a moment and no longer."""

    name, timeout = "desk.hasty", timedelta(seconds=0.2)


class Rationed(Queryable):
    name, rate_limit = "desk.rationed", "2/s"


class Read(Tool[Wanted, Made]):
    name, effect, timeout = "desk.read", Effect.PURE, timedelta(seconds=0.5)

    def execute(self, request: Wanted, *, key: str) -> Made:
        made: Made = DESK.serve(key, request)
        return made


@tool("desk.patient", effect=Effect.ONCE)
async def patient(request: Wanted, *, key: str) -> Made:
    made: Made = DESK.serve(key, request)
    return made


def a_ledger(claimed: Claimed, *, trust: Callable[[], object] = lambda: None) -> Ledger:
    """The calls of a claimed step, made from this thread."""
    return Ledger(claimed, SENDER, require_trust=trust)


def a_context(ledger: Ledger, claimed: Claimed) -> Context:
    """What a body would see."""
    return Context(
        run_id=claimed.run_id, workflow="toy", version="1", step_key=claimed.step_key,
        attempt=claimed.attempt, require_trust=lambda: None, report_progress=lambda *_: None, calls=ledger,
    )  # fmt: skip
