"""Where kills land and which of them a run gets. A run's id spells out its kills: ``once-0007-aE4``."""

import random  # noqa: TID251 - seeded: the same seed plays the same kills in the same order
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What is hurt: the four effect classes, and steps with SQL of their own (``ctx.session``)."""

    IDEMPOTENT = "idempotent"
    QUERYABLE = "queryable"
    ONCE = "once"
    PURE = "pure"
    TRANSACTIONAL = "transactional"


class Instant(StrEnum):
    """When a process is killed. Named as in ``models.failpoints`` where one of them does it."""

    P3 = "P3"  #: applied; the service holds its answer, and the process is killed from outside
    ANY = "R"  #: the answer is let go, and the process killed from outside within milliseconds
    E4 = "E4"  #: answer in memory
    E5 = "E5"  #: COMMIT of the settlement sent
    P4 = "P4"  #: rows of the step's session written
    P5 = "P5"  #: COMMIT of these rows and of the step sent
    E1 = "E1"  #: intent committed, nothing sent
    P2 = "P2"  #: the service holds the request, and applies it after the death


BETWEEN: dict[Kind, tuple[Instant, ...]] = {
    Kind.IDEMPOTENT: (Instant.P3, Instant.ANY, Instant.E4, Instant.E5),
    Kind.QUERYABLE: (Instant.P3, Instant.ANY, Instant.E4, Instant.E5),
    Kind.ONCE: (Instant.P3, Instant.ANY, Instant.E4, Instant.E5),
    Kind.PURE: (Instant.P3, Instant.ANY),
    Kind.TRANSACTIONAL: (Instant.P3, Instant.P4, Instant.P5),
}
#: Before anything is applied: beside the others, since what is sent again then must be sent once.
BEFORE = (Instant.E1, Instant.P2)
CONTRAST = 5  #: one kill before the effect for so many after it, of what writes an intent

#: By the process itself, at a failpoint; the others from outside, while the service holds the request.
BY_ITSELF = frozenset({Instant.E1, Instant.E4, Instant.E5, Instant.P4, Instant.P5})

PLACES = ("a", "b")  #: the two effects of a run


@dataclass(frozen=True, slots=True)
class Kill:
    """One SIGKILL of the process that carries this effect of a run."""

    place: str
    instant: Instant

    def __str__(self) -> str:
        return f"{self.place}{self.instant}"


@dataclass(frozen=True, slots=True)
class Plan:
    """One run and its kills, in their order. Each hits another attempt: three deaths would block the step."""

    kind: Kind
    number: int
    kills: tuple[Kill, ...]

    @property
    def run_id(self) -> str:
        return "-".join((self.kind, f"{self.number:04}", *map(str, self.kills)))

    def name(self, place: str) -> str:
        """The business intent that the service counts by."""
        return f"{self.run_id}.{place}"

    @property
    def names(self) -> list[str]:
        return [self.name(place) for place in PLACES]


def kills_of(run_id: str) -> tuple[Kill, ...]:
    """What a run's id says is to happen to it."""
    return tuple(Kill(part[0], Instant(part[1:])) for part in run_id.split("-")[2:])


def plans(kind: Kind, lots: random.Random, *, kills: int, first: int) -> list[Plan]:
    """Runs with so many kills between effect and settlement, the instants even in number, in random order."""
    ways = BETWEEN[kind]
    contrast = kills // CONTRAST if Instant.E1 in ways or Instant.E4 in ways else 0
    instants = [ways[number % len(ways)] for number in range(kills)]
    instants += [BEFORE[number % len(BEFORE)] for number in range(contrast)]
    lots.shuffle(instants)
    groups = list(_dealt(kind, instants, lots))
    lots.shuffle(groups)
    return [Plan(kind, first + number, group) for number, group in enumerate(groups)]


def _dealt(
    kind: Kind, instants: Sequence[Instant], lots: random.Random
) -> Iterator[tuple[Kill, ...]]:
    """Two kills for a run, where a run outlives the first without a person.

    One at any moment has its run for itself: the other effect is where its process stands still.
    """
    rest = []
    for instant in instants:
        if instant is Instant.ANY:
            yield (Kill("a", instant),)
        elif kind is Kind.ONCE:
            yield (Kill(lots.choice(PLACES), instant),)
        else:
            rest.append(instant)
    for number in range(0, len(rest), 2):
        pair = rest[number : number + 2]
        yield tuple(Kill(*one) for one in zip(PLACES, pair, strict=False))
