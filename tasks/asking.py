"""What every call of a tool needs, and the calls that change nothing outside."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from models.ids import reread_key
from models.journal import effects, throttle
from models.journal.effect_values import Holder, Intent, Recorded, Sender, Standing
from models.messages import describe
from models.settings import settings
from tasks import leaving, patience
from tasks.calling import Answered, Call, Raised
from tasks.errors import EffectPostponed, Stop
from tasks.recorder.options import Freshness
from tasks.tool_base import Read, Tool, Unanswered
from tasks.tool_requests import Asked

WAIT_IN_PLACE = 30.0  #: seconds for a place under a rate limit; a longer wait holds no worker
_NAP = 0.5  #: seconds between two looks whether the worker is to leave

T = TypeVar("T")


def look_at_nothing() -> None:
    """Before an effect that rests on no answers."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """On whose behalf calls are made."""

    claimed: Holder
    sender: Sender
    require_trust: Callable[[], object]
    note: Callable[[Stop], Stop]  #: remembers a stop before anything else can go wrong
    #: Raises where a new effect would rest on other answers.
    before_effect: Callable[[], object] = look_at_nothing


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one reading asks for in place of what its tool declares."""

    freshness: Freshness | None = None
    max_age: timedelta | None = None


class Asking:
    """One call of a tool, on the thread that made it."""

    is_open = False  #: an intent of it may be durable, and nothing after it

    def __init__(self, attempt: Attempt, tool: Tool[Any, Any], asked: Asked, *, key: str) -> None:
        self._tool, self._asked, self._key = tool, asked, key
        self._attempt, self._claimed = attempt, attempt.claimed

    def perform(self) -> Any:
        """The result, recorded now or by an earlier attempt. Raises what ended it otherwise."""
        raise NotImplementedError

    def _recalled(self) -> Standing | None:
        """What an earlier attempt recorded of it: a replay costs no commit."""
        if self._claimed.attempt == 1:
            return None
        return effects.recall(self._key, self._asked.digest)

    def _load(self, recorded: Recorded) -> Any:
        return self._tool.result_type.load(recorded.result)

    def _wait_for_place(self) -> None:
        """Wait for a place under the tool's rate limit, or send the step back when that takes long."""
        rate = self._tool.per_second
        if rate is None:
            return
        name = f"tool:{self._tool.name}"
        wait = self._write(
            lambda: throttle.take_place(name, per_second=rate, at_most=WAIT_IN_PLACE)
        )
        if wait > WAIT_IN_PLACE:
            raise self._postponed(wait - WAIT_IN_PLACE / 2)
        turn = time.monotonic() + wait
        while (left := turn - time.monotonic()) > 0:
            if leaving.is_leaving():
                raise self._postponed(left)
            time.sleep(min(left, _NAP))
        self._attempt.require_trust()

    def _postponed(self, delay: float) -> EffectPostponed:
        return EffectPostponed(
            f"{self._what} waits for a place under the rate limit {self._tool.rate_limit}: nothing was sent, "
            f"and the step comes back.",
            delay=delay,
        )

    def _execute(self) -> Any:
        return self._tool.execute(self._asked.value, key=self._key)

    def _intent(self) -> Intent:
        tool = self._tool
        return Intent(
            key=self._key, tool=tool.name, tool_version=tool.version, promise=tool.promise,
            request=self._asked.recorded, request_digest=self._asked.digest,
            send_within=settings().send_window,
        )  # fmt: skip

    def _describe(self, error: BaseException) -> str:
        """The error in words, without the secrets of the request."""
        return self._asked.strike(describe(error))

    @property
    def _what(self) -> str:
        return f"Effect {self._key} ({self._tool.name}) of step {self._claimed.step_key!r}"

    def _write(self, write: Callable[[], T]) -> T:
        """Every verb may be repeated: a write that failed is tried again, the call never."""
        return patience.recorded(write, confirmed=lambda: None, stoppable=True)


class Reading(Asking):
    """A call that changes nothing outside: no intent, any error is the body's, its answer is kept.

    An answer is given again to the same request only: another one is asked, since asking is harmless.
    """

    wanted = Wanted()
    read: Read[Any] | None = None  #: what came of it

    def perform(self) -> Any:
        self._attempt.require_trust()
        recalled = self._newest()
        if recalled is not None:
            self.read = Read(self._load(recalled), True, recalled.age, self._is_old(recalled))
            return self.read.value
        self._wait_for_place()
        call = Call(self._execute, check=self._attempt.require_trust, late=lambda _: None)
        try:
            answer = call.run(self._tool.promise.timeout)
        except BaseException:
            call.give_up()
            raise
        match answer:
            case Answered(value):
                kind = self._tool.result_type
                text, result = kind.opened(*kind.round_trip(value, limit=settings().output_limit))
                intent = self._intent()
                self._write(
                    lambda: effects.record_pure(
                        intent, self._claimed, self._attempt.sender, result=text
                    )
                )
                self.read = Read(result, False, 0.0, False)
                return result
            case Raised(error):
                raise self._as_failure(error) from error
            case None:
                raise Unanswered(
                    f"{self._what} gave no answer within {self._tool.promise.timeout:g} s"
                )

    def _newest(self) -> Recorded | None:
        """What is on record and young enough; where it is too old, the key under which to record anew."""
        found = self._recalled()
        if not isinstance(found, Recorded) or self._freshness is not Freshness.REFETCH:
            return found if isinstance(found, Recorded) else None
        first, number = self._key, 0
        while isinstance(found, Recorded):
            newest, number = found, number + 1
            self._key = reread_key(first, number)
            found = self._recalled()
        return None if newest.age > self._max_age else newest

    def _is_old(self, recorded: Recorded) -> bool:
        return self._freshness is Freshness.MARK and recorded.age > self._max_age

    @property
    def _freshness(self) -> Freshness:
        return self.wanted.freshness or self._tool.freshness

    @property
    def _max_age(self) -> float:
        longest = self._tool.max_age if self.wanted.max_age is None else self.wanted.max_age
        return longest.total_seconds()

    def _as_failure(self, error: BaseException) -> Exception:
        """An exit of the tool is not one of the worker, and a ``StopIteration`` would hang who awaits it."""
        if isinstance(error, Exception) and not isinstance(error, StopIteration):
            return error
        return Unanswered(f"{self._what} ended with {self._describe(error)}")
