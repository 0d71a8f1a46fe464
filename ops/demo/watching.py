"""Watching what a fault hit until all of it is done: shared by the scripts of the faults."""

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from models.settings import settings
from ops.demo import evidence
from ops.demo.aiming import AIM_TIMEOUT, Aimed, Missed, Scene, Waiting, patiently
from ops.demo.evidence import Fate, HeldStep
from ops.demo.records import Mechanism, mechanism_of, named

T = TypeVar("T")

RECOVERY_TIMEOUT = 60.0  #: seconds; many leases, so that only a real failure runs into it


@dataclass(frozen=True, slots=True, kw_only=True)
class Blow:
    """A fault at the moment it fell; yielded once by each script, before the watching begins."""

    victim: str
    moment: datetime  #: by the database's clock
    held: tuple[HeldStep, ...] = ()  #: steps of the processes that were hit
    runs: tuple[str, ...] = ()  #: affected


@dataclass(frozen=True, slots=True, kw_only=True)
class Healing:
    """How it was overcome."""

    recovered_by: str
    until: datetime
    steps_lost: int = 0
    late_results_rejected: int = 0
    problem: str = ""


#: Yields None while it waits and its Blow when it has struck.
Script = Generator[Blow | None, None, Healing]


def ready(scene: Scene, aimed: Aimed) -> Waiting[Blow]:
    runs = tuple({one.run_id for one in aimed.held})
    return (yield from blow(scene, aimed.victim, aimed.held, runs))


def blow(
    scene: Scene, victim: str, held: tuple[HeldStep, ...], runs: tuple[str, ...]
) -> Waiting[Blow]:
    yield from patiently(scene.keepsake.take)
    moment = yield from patiently(evidence.clock)
    return Blow(victim=victim, moment=moment, held=held, runs=runs)


def some(scene: Scene, look: Callable[[], Waiting[list[T]]], *, what: str) -> Waiting[list[T]]:
    deadline = time.monotonic() + AIM_TIMEOUT
    while time.monotonic() < deadline and not scene.settled:
        if found := (yield from look()):
            return found
        yield
    when = "until the batch was over" if scene.settled else f"for {AIM_TIMEOUT:.0f} s"
    raise Missed(f"{what} was found {when}, so the fault would have hit nothing")


def until_done(held: Sequence[HeldStep]) -> Waiting[Healing]:
    return healing(held, (yield from fates(held, done, what="every step it had held")))


def healing(held: Sequence[HeldStep], fates: Sequence[Fate]) -> Healing:
    both = list(zip(fates, held, strict=True))
    mechanisms = [mechanism_of(fate, one.token) for fate, one in both]
    unknown = [one for one, by in zip(held, mechanisms, strict=True) if by is Mechanism.UNKNOWN]
    return Healing(
        recovered_by=named(mechanisms),
        until=max(fate.finished_at for fate in fates if fate.finished_at is not None),
        steps_lost=sum(fate.finished_token != one.token for fate, one in both),
        late_results_rejected=sum(fate.rejected for fate in fates),
        problem=f"nobody knows who recovered {'; '.join(map(str, unknown))}" if unknown else "",
    )


def fates(
    held: Sequence[HeldStep],
    reached: Callable[[Sequence[Fate]], bool],
    *,
    what: str,
    meanwhile: Callable[[], None] = lambda: None,
) -> Waiting[list[Fate]]:
    deadline = time.monotonic() + RECOVERY_TIMEOUT + settings().lease_ttl
    while time.monotonic() < deadline:
        fates = yield from patiently(lambda: evidence.fates(held))
        yield from patiently(meanwhile)
        if reached(fates):
            return fates
        yield
    raise Missed(not_within(what))


def done(fates: Sequence[Fate]) -> bool:
    return all(fate.finished_at is not None for fate in fates)


def taken_over(fates: Sequence[Fate]) -> bool:
    """Every claim has ended without its owner."""
    return all(fate.outcome is not None for fate in fates)


def latest(fates: Sequence[Fate], moment: datetime) -> datetime:
    return max((fate.finished_at for fate in fates if fate.finished_at is not None), default=moment)


def not_within(what: str) -> str:
    return f"waited {RECOVERY_TIMEOUT:.0f} s in vain for {what}"
