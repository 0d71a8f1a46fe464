"""What to do with a step whose owner is gone. Pure: the whole safety policy on one screen."""

from dataclasses import dataclass
from typing import TypeAlias

from models.journal.values import StaleStep
from models.settings import settings
from models.states import BlockReason

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 300.0  #: seconds
_DOUBLINGS_MAX = 30  #: far above the longest pause, and within what a float holds


@dataclass(frozen=True, slots=True)
class Requeue:
    """Nothing is in doubt: run it again, ``after`` seconds from now."""

    after: float


@dataclass(frozen=True, slots=True)
class Reconcile:
    """Something may have happened outside: ask before anything is repeated."""


@dataclass(frozen=True, slots=True)
class LookUp:
    """What it does cannot be seen, but it says how to ask: ask before it is repeated or given up."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Its run was cancelled and nothing of the step is in doubt."""


@dataclass(frozen=True, slots=True)
class Block:
    """Stop until a person has removed the cause."""

    reason: BlockReason
    detail: str


Decision: TypeAlias = Requeue | Reconcile | LookUp | Cancel | Block


def decide(
    step: StaleStep, *, crash_limit: int | None = None, lost_limit: int | None = None
) -> Decision:
    """Ask the world first; obey a person; repeat only what is safe; never loop on a poison step."""
    if step.unsettled_effects:
        return Reconcile()
    if step.untracked and step.has_lookup:
        return LookUp()
    if step.cancel_requested:
        return Cancel()
    if step.untracked:
        return Block(
            BlockReason.UNTRACKED_STEP,
            f"step {step.step_key!r} does I/O that Onward cannot see, and its owner is gone ({step.cause}): "
            "look at the outside world, then `onward runs resume` repeats it",
        )
    if step.crashes >= (crash_limit or settings().crash_limit):
        return Block(
            BlockReason.POISON_STEP,
            f"step {step.step_key!r} was running at {step.crashes} deaths of its process "
            f"(last: {step.reason}); fix its input or code, then `onward runs retry`",
        )
    if step.lost >= (lost_limit or settings().lost_limit):
        return Block(
            BlockReason.POISON_STEP,
            f"step {step.step_key!r} lost {step.lost} owners without a trace; look at the workers that ran "
            "it, then `onward runs retry`",
        )
    return Requeue(after=backoff(max(step.crashes + step.lost, step.sends)))


def backoff(losses: int) -> float:
    """At once after the first loss, then doubling: a host that dies again and again is given time.

    So is a provider that leaves the same request unanswered again and again.
    """
    if losses <= 1:
        return 0.0
    return min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(losses - 2, _DOUBLINGS_MAX))
