"""One call of a tool: from its intent to what became of it.

    place under the rate limit -> intent -> last look at lease and clock -> execute -> settle | refuse | doubt

Two durable commits: the intent before anything leaves, and what the answer said. From the first to the
second the effect is *open*: whatever cuts in between, short of the process's end, is written down as a doubt.
"""

import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar

from billiard.exceptions import SoftTimeLimitExceeded

from models.errors import OnwardError
from models.failpoints import FailPoint, failpoint
from models.journal import effects, loose_ends
from models.journal.effect_values import (
    Conflict,
    Declined,
    Exhausted,
    GivenUp,
    Granted,
    InDoubt,
    Intent,
    Recorded,
    Standing,
    Withheld,
)
from models.journal.errors import JournalError
from models.messages import safe_repr
from models.settings import settings
from models.states import BlockReason, EffectState
from tasks.asking import Asking, Attempt
from tasks.calling import Answer, Answered, Call, Raised
from tasks.errors import (
    EffectBlocked,
    EffectExhausted,
    EffectGivenUp,
    EffectPostponed,
    EffectUnknown,
    EffectWithheld,
    Stop,
)
from tasks.tool_base import NotSent, Refused, Tool, refusal
from tasks.tool_requests import Asked

_log = logging.getLogger("onward.engine")

_WINDOWS = 3  #: intents of one call that were overtaken by their own send window
_SHOWN = 600  #: characters of a result that cannot be recorded

T = TypeVar("T")


class WindowOver(NotSent):
    """The time in which the request might start to leave went by: it did not."""


class Sending(Asking):
    """One effect, on the thread that asked for it."""

    def __init__(self, attempt: Attempt, tool: Tool[Any, Any], asked: Asked, *, key: str) -> None:
        super().__init__(attempt, tool, asked, key=key)
        self._note = attempt.note
        self._sent_at = 0.0

    def perform(self) -> Any:
        self._attempt.require_trust()
        met = self._recalled()
        if met is not None:
            return self._meet(met)
        if not self._stands_refused():
            self._attempt.before_effect()
        self._wait_for_place()
        for _ in range(_WINDOWS):
            call = Call(self._execute, check=self._look_once_more, late=self._file_late)
            standing, answer = self._send(call)
            if not isinstance(standing, Granted):
                return self._meet(standing)
            if call.has_left:
                return _undisturbed(lambda: self._conclude(call, answer))  # noqa: B023 - called at once
            _undisturbed(lambda: self._stay(answer))  # noqa: B023 - called at once
        raise EffectPostponed(
            f"{self._what} was about to be sent {_WINDOWS} times and each time later than "
            f"{settings().send_window:g} s after its intent: nothing was sent. The step comes back.",
            delay=settings().send_window,
        )

    def _stands_refused(self) -> bool:
        """Whether the body went past a refusal of it before: nothing is sent, and answers may follow it."""
        return self._claimed.attempt > 1 and loose_ends.was_passed(self._key)

    def _send(self, call: Call) -> tuple[Standing, Answer | None]:
        """Write the intent down and, when it is granted, call."""
        intent = self._intent()
        self.is_open = True
        try:
            self._sent_at = time.monotonic()
            standing = self._write(lambda: self._intend(intent))
            if not isinstance(standing, Granted):
                self.is_open = False
                return standing, None
            failpoint(FailPoint.E1, self._claimed.step_name, self._key)
            return standing, call.run(self._tool.promise.timeout)
        except JournalError:
            raise  # nothing was granted, so nothing left
        except BaseException as cut:
            self._cut(call, cut)
            raise

    def _intend(self, intent: Intent) -> Standing:
        return effects.intend(intent, self._claimed, self._attempt.sender)

    def _cut(self, call: Call, cut: BaseException) -> None:
        """A time limit or a shutdown struck the waiting thread: what is known now is written down."""
        answer = call.give_up()
        try:
            if call.has_left:
                _undisturbed(lambda: self._conclude(call, answer, because=self._describe(cut)))
            else:
                self._refuse(f"never sent: {self._describe(cut)}")
        except Stop:
            if isinstance(cut, Exception):
                raise  # a shutdown goes on instead; the stop is noted

    def _stay(self, answer: Answer | None) -> None:
        """The last look kept it from leaving."""
        error = (
            answer.error if isinstance(answer, Raised) else WindowOver("not sent: no thread for it")
        )
        self._refuse(self._describe(error))
        if not isinstance(error, WindowOver):
            raise error

    def _conclude(self, call: Call, answer: Answer | None, *, because: str | None = None) -> Any:
        match answer:
            case Answered(value):
                return self._settle(value)
            case Raised(Refused() as error):
                self._refuse(self._describe(error))
                raise error
            case Raised(error):
                raise self._doubt(self._describe(error), call_over=True) from error
            case None:
                silence = because or f"no answer within {self._tool.promise.timeout:g} s"
                try:
                    raise self._doubt(silence, call_over=False)
                finally:
                    call.noted()

    def _settle(self, value: Any) -> Any:
        try:
            kind = self._tool.result_type
            text, result = kind.opened(*kind.round_trip(value, limit=settings().output_limit))
        except OnwardError as error:
            if isinstance(error.__cause__, SoftTimeLimitExceeded):
                raise error.__cause__ from None  # it says nothing about the value
            raise self._unrecordable(value, error) from error
        self._write(lambda: effects.settle(self._key, self._claimed, result=text))
        self.is_open = False
        return result

    def _refuse(self, error: str) -> None:
        """It did not happen this time; with an earlier send in doubt, that settles nothing."""
        happened_not = self._write(lambda: effects.refuse(self._key, self._claimed, error=error))
        if not happened_not:
            self._end_call(error)
            raise self._note(self._unknown(f"an earlier send of it may have happened ({error})"))
        self.is_open = False

    def _doubt(self, error: str, *, call_over: bool) -> Stop:
        stop = self._note(self._unknown(error))
        written = self._write(
            lambda: effects.doubt(self._key, self._claimed, error=error, call_over=call_over)
        )
        if call_over and not written:
            self._end_call(error)
        self.is_open = False
        return stop

    def _end_call(self, error: str) -> None:
        """A displaced owner's process lives on: unless it says that it is done, they wait for it to die."""
        self._write(lambda: effects.end_call(self._key, self._claimed, error=error))

    def _unrecordable(self, value: Any, error: OnwardError) -> Stop:
        """It happened and can be neither recorded nor asked for again: a person says what it came to."""
        shown = self._asked.strike(safe_repr(value, limit=_SHOWN))
        why = f"it happened, but its result cannot be recorded: {error} It was {shown}"
        stop = self._note(
            EffectBlocked(
                f"{self._what}: {why}. Nothing is sent again. Correct the tool, then tell Onward the "
                f"result: `onward effects resolve {self._key} --found ID --result JSON`, and the step goes on.",
                reason=BlockReason.UNSERIALISABLE_OUTPUT,
            )
        )
        self._write(lambda: loose_ends.ask_person(self._key, self._claimed, reason=why))
        self.is_open = False
        return stop

    def _meet(self, standing: Standing) -> Any:
        if isinstance(standing, Recorded):
            return self._load(standing)
        raise self._why_not(standing)

    def _why_not(self, standing: Standing) -> BaseException:
        match standing:
            case Declined(error):
                return refusal(error)
            case Conflict(state):
                return self._conflict(state)
            case InDoubt(detail):
                return self._unknown(detail)
            case Withheld(hold):
                return EffectWithheld(f"{self._what} was not sent: the run is held ({hold}).")
            case GivenUp(reason):
                return EffectGivenUp(f"{self._what} was abandoned by a person: {reason}")
            case Exhausted(sends):
                return EffectExhausted(
                    f"{self._what} was sent {sends} times and is not there: look at the service, then "
                    f"`onward runs retry`."
                )
            case Granted() | Recorded():
                raise AssertionError("a grant is sent and a result is read, not met")

    def _conflict(self, state: EffectState) -> EffectBlocked:
        happened = state in (EffectState.SETTLED, EffectState.ABANDONED)
        freed = f"When that one did not happen, `onward effects resolve {self._key} --absent` frees the key; else "
        return EffectBlocked(
            f"{self._what} is bound to another request, which is {state}: neither is that one's result given nor "
            f"this one sent. {'' if happened else freed}cancel the run, or correct what the step asks for and "
            f"`onward runs resume` (`onward effects show {self._key}`).",
            reason=BlockReason.IDEMPOTENCY_CONFLICT,
        )

    def _look_once_more(self) -> None:
        """Directly before the call: is the step still ours, and does what the intent promised still hold?"""
        self._attempt.require_trust()
        late = time.monotonic() - self._sent_at - settings().send_window
        if late > 0:
            raise WindowOver(f"not sent: its send window was over {late:.1f} s ago")

    def _file_late(self, answer: Answer) -> None:
        """A call that was given up has ended, on its own thread: whoever looks is told what it brought."""
        try:
            self._write(lambda: self._file(answer))
        except JournalError as error:
            _log.warning("The late end of %s was not filed: %s", self._key, error)

    def _file(self, answer: Answer) -> None:
        match answer:
            case Raised(error):
                effects.end_call(self._key, self._claimed, error=self._describe(error))
            case Answered(value):
                try:
                    text = self._recorded(value)
                except OnwardError as error:
                    effects.end_call(self._key, self._claimed, error=f"answered late: {error}")
                else:
                    effects.keep_evidence(self._key, self._claimed, result=text)

    def _recorded(self, value: Any) -> str:
        kind = self._tool.result_type
        return kind.open_part(kind.dump(value, limit=settings().output_limit))

    def _unknown(self, cause: str) -> EffectUnknown:
        return EffectUnknown(
            f"{self._what} may have happened: {cause}. The outside world is asked before anything is sent again."
        )


def _undisturbed(act: Callable[[], T]) -> T:
    """Do this to its end though a soft time limit strikes meanwhile, which it does once; then raise it."""
    try:
        return act()
    except Exception as error:
        if not isinstance(error, SoftTimeLimitExceeded):
            raise
        act()
        raise
