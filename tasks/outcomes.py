"""How a body ended, as a closed union, and how an exception is judged and put into words."""

from dataclasses import dataclass
from typing import TypeAlias

from models import messages
from models.artifacts.errors import ArtifactChanged, Withheld
from models.errors import OnwardError
from models.journal.errors import JournalUnavailable, LeaseLost, RolledBack
from models.journal.values import Output
from models.states import BlockReason
from tasks.errors import AttemptLost, EffectBlocked, EffectPostponed, Stop, cause_of, final_cause
from tasks.options import RetryPolicy, retry_delay
from tasks.step import Then

#: A transaction that Postgres undid is tried again whatever the step's own policy: it met another one.
_UNDONE = RetryPolicy(max_retries=5, retry_backoff=True)


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The body returned; ``then`` holds the steps it asks for."""

    output: Output
    then: Then[object] | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """A known failure: retried after ``delay`` seconds, or final when that is None."""

    error_type: str
    error: str
    delay: float | None


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The process is going away, or is in no state to go on; the step is not to blame for a shutdown."""

    error_type: str
    error: str
    crashed: bool
    decide_now: bool = False  #: the worker goes on, so recovery need not wait for the next sweep


@dataclass(frozen=True, slots=True)
class Blocked:
    """The step cannot go on until a person has removed the cause."""

    error_type: str
    error: str
    reason: BlockReason


@dataclass(frozen=True, slots=True)
class Postponed:
    """Something it needs is not to be had now: it comes back, and nothing is counted."""

    error_type: str
    error: str
    delay: float


@dataclass(frozen=True, slots=True)
class Displaced:
    """The step is no longer ours: nothing is written."""

    error: str


Unfinished: TypeAlias = Failed | Interrupted | Blocked | Postponed
Outcome: TypeAlias = Succeeded | Unfinished | Displaced


def judge(error: BaseException, *, retry: RetryPolicy, failures: int, seed: str) -> Outcome:
    """What an exception out of a body means. ``failures``: known failures so far, pardoned ones apart."""
    if isinstance(error, Stop):
        return _stopped(error)
    if isinstance(error, LeaseLost | JournalUnavailable):
        return Displaced(describe(error))
    if isinstance(error, MemoryError):
        return Interrupted("MemoryError", describe(error), crashed=True)
    if not isinstance(error, Exception):
        return Interrupted("shutdown", describe(error), crashed=False)
    if (withheld := cause_of(error, Withheld)) is not None:
        return _withheld(withheld)
    if (final := final_cause(error)) is not None:
        return refuse(final)
    retry = _UNDONE if isinstance(error, RolledBack) else retry
    if retry.retries(error) and failures < retry.max_retries:
        return Failed(name(error), describe(error), retry_delay(retry, failures + 1, seed=seed))
    return Failed(name(error), describe(error), None)


def _withheld(error: Withheld) -> Blocked:
    changed = isinstance(error, ArtifactChanged)
    reason = BlockReason.ARTIFACT_CHANGED if changed else BlockReason.ENVIRONMENT_CHANGED
    return Blocked(name(error), describe(error), reason)


def _stopped(stop: Stop) -> Outcome:
    match stop:
        case AttemptLost():
            return Displaced(str(stop))
        case EffectBlocked(reason=reason):
            return Blocked(str(reason), str(stop), reason)
        case EffectPostponed(delay=delay):
            return Postponed(stop.error_type, str(stop), delay)
        case _:
            return Interrupted(stop.error_type, str(stop), crashed=False, decide_now=True)


def refuse(error: OnwardError) -> Failed:
    """A value that cannot be bound or recorded: final at once, since another try would give it again."""
    return Failed(name(error), describe(error), None)


def name(error: BaseException) -> str:
    """The error's type, as the journal and ``--json`` spell it."""
    return error.error_type if isinstance(error, OnwardError) else type(error).__name__


def describe(error: BaseException) -> str:
    """The error in printable characters; our own errors are sentences already."""
    return str(error) if isinstance(error, OnwardError) else messages.describe(error)
