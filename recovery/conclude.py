"""What follows from looking up an effect that may have happened. Pure: when absence may be believed, on one screen.

An effect that is not there is believed not to have happened only when nothing of it can arrive any more (its
last request, the time it may take, and the time that a look-up may miss it are over), whoever sent it can
send no more, and two looks in a row found nothing then. Everything else is asked again, or of a person.
"""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from models.journal.effect_values import OpenEffect
from models.journal.untracked import StepInDoubt
from models.settings import settings
from models.states import EffectClass

LOOKS = 2  #: in a row, each when nothing could still arrive
_DOUBLINGS_MAX = 30  #: far above the longest pause, and within what a float holds
_AGAIN_MAX = 86_400.0  #: seconds; what is to be ready in a year is looked at tomorrow as well


@dataclass(frozen=True, slots=True)
class Seen:
    """It happened, and this is its result as it is recorded."""

    result: str
    source: Literal["lookup", "late_answer"]


@dataclass(frozen=True, slots=True)
class Nothing:
    """Nothing of it is there."""


@dataclass(frozen=True, slots=True)
class CannotTell:
    """The tool was asked and cannot tell, or not yet."""

    reason: str
    again_in: float | None = None


@dataclass(frozen=True, slots=True)
class NotAskable:
    """The tool has no look-up."""


@dataclass(frozen=True, slots=True)
class CheckFailed:
    """There is no answer: it raised, took too long, or ended its process."""

    error: str


@dataclass(frozen=True, slots=True)
class Misfit:
    """It happened, but what the look-up gave is not what the tool's result may be."""

    problem: str


Finding: TypeAlias = Seen | Misfit | Nothing | CannotTell | NotAskable | CheckFailed


@dataclass(frozen=True, slots=True)
class Settle:
    """Record that it happened."""

    result: str
    source: Literal["lookup", "late_answer"]
    said: str


@dataclass(frozen=True, slots=True)
class BelieveAbsent:
    """It did not happen, and may be sent again."""

    said: str


@dataclass(frozen=True, slots=True)
class LookAgain:
    """In ``after`` seconds. ``counts``: nothing was there when nothing could still arrive."""

    after: float
    counts: bool
    said: str


@dataclass(frozen=True, slots=True)
class TryAgain:
    """In ``after`` seconds: this look-up says nothing."""

    after: float
    said: str


@dataclass(frozen=True, slots=True)
class AskPerson:
    """Nobody else can tell."""

    said: str


Conclusion: TypeAlias = Settle | BelieveAbsent | LookAgain | TryAgain | AskPerson


def conclude(
    effect: OpenEffect, finding: Finding, *, sender_gone: bool, consistency_window: float = 0.0
) -> Conclusion:
    """What follows from a finding. ``sender_gone``: proven before the tool was asked.

    ``consistency_window``: how long the tool says that a look-up may miss what exists.
    """
    match finding:
        case Seen(result, "late_answer"):
            return Settle(result, "late_answer", "its late answer says that it happened")
        case Seen(result, source):
            return Settle(result, source, f"look-up {effect.checks} found it")
        case Nothing():
            return _absent(effect, sender_gone=sender_gone, consistency_window=consistency_window)
        case NotAskable():
            return _unaskable(effect)
        case Misfit() | CannotTell() | CheckFailed():
            return _undecided(finding, failed_checks=effect.failed_checks)


def pause(count: int) -> float:
    """Before the look-up after the ``count``-th: doubling, and bounded."""
    doublings = min(max(count, 1) - 1, _DOUBLINGS_MAX)
    return float(min(settings().look_pause * 2.0**doublings, settings().look_pause_max))


def can_send_no_more(effect: OpenEffect, *, sender_gone: bool) -> bool:
    """Whether whoever may have sent it is at its end: seen, proven, or silent for long enough.

    What is known of the last sender says nothing of others: of an earlier one whose send was in doubt as
    well, or of one that the journal has forgotten.
    """
    known = not (effect.rewound or effect.earlier_doubt) and (effect.call_over or sender_gone)
    return known or effect.silent_for >= settings().presume_dead_after


def conclude_step(step: StepInDoubt, finding: Finding, *, owner_gone: bool) -> Conclusion:
    """The same of an untracked step and its own look-up, which vouches for what may still arrive.

    Only whether the lost attempt can still act is ours to judge.
    """
    gone = owner_gone or step.silent_for >= settings().presume_dead_after
    match finding:
        case Seen(result, source):
            return Settle(result, source, "its look-up says that it was done")
        case Nothing() if gone:
            return BelieveAbsent("its look-up says that nothing of it was done")
        case Nothing():
            left = settings().presume_dead_after - step.silent_for
            so_long = max(step.silent_for, settings().look_pause)  # as long again: pauses double
            after = min(left, so_long, settings().look_pause_max)
            said = f"nothing of it is done, and its owner is not proven gone; next {_in(after)}"
            return LookAgain(after, False, said)
        case Misfit() | CannotTell() | CheckFailed():
            return _undecided(finding, failed_checks=step.failed_looks)
        case NotAskable():
            return AskPerson("it has no look-up any more")


def _absent(effect: OpenEffect, *, sender_gone: bool, consistency_window: float) -> Conclusion:
    nothing = "nothing is there" if effect.undoes is None else "it is still there"
    if effect.absent_in is None:
        left = consistency_window - effect.silent_for
        if left > 0:
            return _later(effect, left, f"{nothing}, and a look-up may still miss it")
        return AskPerson(
            f"{nothing}, and its tool does not declare how long a request can still arrive "
            "(max_request_lifetime)"
        )
    if effect.absent_in > 0:
        return _later(effect, effect.absent_in, f"{nothing}, and it may still arrive")
    if not can_send_no_more(effect, sender_gone=sender_gone):
        left = settings().presume_dead_after - effect.silent_for
        return _later(effect, left, f"{nothing}, and its sender is not proven gone")
    if effect.looks + 1 < LOOKS:
        after = settings().look_pause
        return LookAgain(after, True, f"{nothing}; looked up once more {_in(after)}")
    if effect.effect_class is EffectClass.ONCE:
        return AskPerson(f"{nothing}, and its tool is never asked twice (ONCE)")
    return BelieveAbsent(f"{LOOKS} look-ups: {nothing}, and nothing of it can arrive any more")


def _later(effect: OpenEffect, left: float, why: str) -> LookAgain:
    """Before the time has come as well: what arrives meanwhile is found sooner."""
    after = min(pause(effect.checks), max(left, settings().look_pause))
    return LookAgain(after, False, f"{why} for {left:.0f} s; looked up again {_in(after)}")


def _unaskable(effect: OpenEffect) -> Conclusion:
    if effect.resendable:
        after = settings().look_pause_max
        return LookAgain(after, False, "the next attempt sends it again under its key")
    if effect.effect_class is EffectClass.IDEMPOTENT:
        return AskPerson(
            "it is not sent again (its key may be forgotten by now, it was sent too often, or its run does not "
            "go on), and its tool has no look-up"
        )
    return AskPerson("its tool can neither be asked twice nor asked what happened")


def _undecided(finding: Misfit | CannotTell | CheckFailed, *, failed_checks: int) -> Conclusion:
    match finding:
        case Misfit(problem):
            return AskPerson(f"its look-up found it, with a result that cannot be used: {problem}")
        case CannotTell(reason, again_in) if again_in is not None and math.isfinite(again_in):
            after = min(max(again_in, settings().look_pause), _AGAIN_MAX)
            return LookAgain(
                after, False, f"not decided yet: {reason}; looked up again {_in(after)}"
            )
        case CannotTell(reason, _):
            return AskPerson(f"its look-up cannot tell: {reason}")
        case CheckFailed(error):
            count = failed_checks + 1
            if count >= settings().lookup_failure_limit:
                return AskPerson(f"its look-up failed {count} times in a row: {error}")
            after = pause(count)
            return TryAgain(
                after, f"the look-up failed ({count} in a row): {error}; next {_in(after)}"
            )


def _in(seconds: float) -> str:
    return f"in {max(seconds, 0.0):.0f} s"
