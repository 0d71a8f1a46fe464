"""Whether anything happened twice or was lost, and where each kill really fell. Pure.

Where a kill fell is not believed but read off three clocks that are one machine's: when the service had
applied the effect, when the process was killed, when the journal was given the settlement.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from tests.reliability.kills import PLACES, Instant, Kill, Kind
from tests.reliability.looking import Recorded, Seen, Witnessed


class Fell(StrEnum):
    """Where a kill fell, as seen from its effect."""

    BEFORE = "before the effect"
    BETWEEN = "between effect and settlement"
    AFTER = "after the settlement"


class Way(StrEnum):
    """What became of an effect whose process was killed between it and its settlement."""

    COMMIT = "its own COMMIT"
    AGAIN = "done again"
    LOOKUP = "look-up"
    LATE = "late answer"
    PERSON = "a person"
    WAITS = "waits for a person"


@dataclass(frozen=True, slots=True)
class Shot:
    """One kill that fired, and ``recovery``: seconds until a step of the run was claimed again or a person asked."""

    kill: Kill
    fell: Fell
    way: Way | None
    recovery: float | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """One run. The lists hold sentences, each with its intent; empty ones are good."""

    seen: Seen
    shots: tuple[Shot, ...]
    waiting: tuple[str, ...]  #: places that wait for a person
    twice: tuple[str, ...]
    lost: tuple[str, ...]
    wrong: tuple[str, ...]


def judge(seen: Seen, *, told: bool = False) -> Verdict:
    """``told``: a person has said what became of everything, so that nothing may wait any more."""
    twice, lost, wrong, waiting = [], [], [], []
    for place in PLACES:
        name, recorded = seen.plan.name(place), seen.recorded.get(place)
        witnessed = seen.witnessed[place]
        if len(witnessed.made) > 1:
            twice.append(f"{name} was made {len(witnessed.made)} times: {witnessed.made}")
        if (why := _lost(seen, recorded, witnessed)) is not None:
            lost.append(f"{name}: {why}")
        wrong += [f"{name}: {what}" for what in _wrong(seen, recorded, witnessed, told=told)]
        if recorded is not None and recorded.person is not None:
            waiting.append(place)
    wrong += _at_rest(seen, waiting=bool(waiting) and not told)
    return Verdict(
        seen, tuple(_shots(seen)), tuple(waiting), tuple(twice), tuple(lost), tuple(wrong)
    )


def _lost(seen: Seen, recorded: Recorded | None, witnessed: Witnessed) -> str | None:
    """Nobody has it and nobody is asked about it."""
    made = bool(witnessed.made or (seen.plan.kind is Kind.PURE and witnessed.asked))
    if recorded is None:
        if made:
            return "it happened, and the journal knows nothing of it"
        return "it was never asked for" if seen.state == "completed" else None
    if recorded.state == "settled":
        return None if made else "settled, and the service has nothing of it"
    if recorded.person is not None:
        return None
    return f"it is {recorded.state}, the run {seen.state}, and no person is asked"


def _wrong(
    seen: Seen, recorded: Recorded | None, witnessed: Witnessed, *, told: bool
) -> Iterator[str]:
    """What is neither twice nor lost, and still not as promised."""
    if len(witnessed.keys) > 1:
        yield f"it came under different keys: {sorted(witnessed.keys)}"
    if recorded is None:
        return
    ids = [made[0] for made in witnessed.made]
    if recorded.state == "settled" and len(ids) == 1 and recorded.result != ids[0]:
        yield f"its step was given {recorded.result}, and the service has {ids[0]}"
    if seen.plan.kind is Kind.ONCE and not told and len(witnessed.asked) > 1:
        yield f"it was sent {len(witnessed.asked)} times, and nobody but a person may do that"
    if recorded.person is not None and seen.plan.kind is not Kind.ONCE:
        yield f"a person was asked for no reason: {recorded.person}"


def _at_rest(seen: Seen, *, waiting: bool) -> Iterator[str]:
    expected = "blocked" if waiting else "completed"
    if seen.state != expected:
        yield f"run {seen.plan.run_id} is {seen.state}, not {expected}"
    lost = seen.died + seen.expired
    completing = sum(
        kill.instant is Instant.P5 for kill in seen.fired
    )  # nothing is left to be lost
    if not len(seen.fired) - completing <= lost <= len(seen.fired):
        yield f"run {seen.plan.run_id} lost {lost} owners by {len(seen.fired)} kills"


def _shots(seen: Seen) -> Iterator[Shot]:
    for kill, at in seen.fired.items():
        recorded, witnessed = seen.recorded.get(kill.place), seen.witnessed[kill.place]
        fell = _fell(seen, kill, at)
        way = None
        if fell is Fell.BETWEEN and recorded is not None:
            way = _way(recorded, sends=_sends(seen.plan.kind, recorded, witnessed))
        ends = [end - at for end in (*seen.claims, *seen.persons) if end > at]
        yield Shot(kill, fell, way, min(ends, default=None))


def _fell(seen: Seen, kill: Kill, at: float) -> Fell:
    """A transactional step's rows are gone with its death: what it asked with them written shows them."""
    recorded, witnessed = seen.recorded.get(kill.place), seen.witnessed[kill.place]
    unseen = seen.plan.kind in (Kind.PURE, Kind.TRANSACTIONAL)
    applied = witnessed.asked if unseen else [made_at for _, made_at in witnessed.made]
    if not any(moment <= at for moment in applied):
        return Fell.BEFORE
    if kill.instant is Instant.P5:
        return (
            Fell.BETWEEN
        )  # the completion bears the time of its statement; the COMMIT left after the kill's
    settled_at = recorded.settled_at if recorded else None
    return Fell.AFTER if settled_at is not None and settled_at <= at else Fell.BETWEEN


def _sends(kind: Kind, recorded: Recorded, witnessed: Witnessed) -> int:
    """Nobody writes down how often what changes nothing is asked."""
    return len(witnessed.asked) if kind is Kind.PURE else recorded.sends


def _way(recorded: Recorded, *, sends: int) -> Way:
    if recorded.state != "settled":
        return Way.WAITS
    if recorded.source == "answer":
        return Way.COMMIT if sends == 1 else Way.AGAIN
    return {"lookup": Way.LOOKUP, "late_answer": Way.LATE}.get(recorded.source or "", Way.PERSON)
