"""Which fault comes at which document: the only place of the demo that draws lots."""

import random  # noqa: TID251 - the schedule is the one thing that --seed decides
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

FIRST, LAST = 0.06, 0.78  #: fractions of the batch between which faults come
LANDMARK = 0.65  #: document 89 of 137, where a worker fault is due
DOCUMENTS_PER_FAULT = 8  #: a fault and its recovery take about as long as that many documents
DOCUMENTS_PER_DROP = 45
_JITTER = 0.2  #: of the distance between two faults


class FaultKind(StrEnum):
    """What can be done to a running deployment."""

    CHILD_SIGKILL = "child_sigkill"  #: one pool child
    ANSWERED_SIGKILL = (
        "answered_sigkill"  #: one pool child, as soon as its LLM's answer is on record
    )
    RESPONSE_DROPPED = "response_dropped"  #: the registry files, and its answer is lost
    WORKER_SIGKILL_RETURNS = "worker_sigkill_returns"  #: a whole worker, started again
    WORKER_SIGKILL_GONE = "worker_sigkill_gone"  #: a whole worker, never seen again
    WORKER_SIGSTOP = "worker_sigstop"  #: a whole worker, paused past its leases, then woken
    BEAT_SIGKILL = "beat_sigkill"
    VALKEY_SIGKILL = "valkey_sigkill"  #: the broker, its data kept
    VALKEY_WIPED = "valkey_wiped"  #: the broker, its data lost
    POSTGRES_RESTART = "postgres_restart"


#: Faults that hit a process while it holds a running step, or the demo fails.
WORKER_FAULTS = (
    FaultKind.CHILD_SIGKILL,
    FaultKind.ANSWERED_SIGKILL,
    FaultKind.WORKER_SIGKILL_RETURNS,
    FaultKind.WORKER_SIGKILL_GONE,
    FaultKind.WORKER_SIGSTOP,
)


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """One fault and when it is due."""

    kind: FaultKind
    document: int  #: comes once this many documents are completed


def fitting(documents: int) -> tuple[FaultKind, ...]:
    """The faults a batch of this size has room for, those of workers first."""
    return tuple(FaultKind)[: max(1, documents // DOCUMENTS_PER_FAULT)]


def drops(documents: int) -> int:
    """How many answers one dropping of responses takes away."""
    return max(1, documents // DOCUMENTS_PER_DROP)


def plan_faults(
    documents: int, *, seed: int, kinds: Collection[FaultKind]
) -> tuple[PlannedFault, ...]:
    """Spread faults over the batch in an order that the seed decides.

    The one nearest to the landmark is moved there and is a worker fault, where there is any.
    """
    lots = random.Random(seed)  # noqa: S311 - an order to repeat, not a secret
    shuffled = sorted(set(kinds))
    lots.shuffle(shuffled)
    places = _places(documents, len(shuffled), lots)
    if not places:
        return ()
    landmark = round(LANDMARK * documents)
    nearest = min(range(len(places)), key=lambda index: abs(places[index] - landmark))
    workers = [index for index, kind in enumerate(shuffled) if kind in WORKER_FAULTS]
    if workers:
        places[nearest] = landmark
        chosen = lots.choice(workers)
        shuffled[nearest], shuffled[chosen] = shuffled[chosen], shuffled[nearest]
    return tuple(map(PlannedFault, shuffled, places))


def _places(documents: int, count: int, lots: random.Random) -> list[int]:
    """Evenly spaced, each but the first a little early or late."""
    distance = (LAST - FIRST) * documents / max(1, count - 1)
    first = (FIRST if count > 1 else (FIRST + LAST) / 2) * documents
    moved = [lots.uniform(-_JITTER, _JITTER) * distance for _ in range(count)]
    return [
        int(min(LAST * documents, max(first, first + distance * index + moved[index])))
        for index in range(count)
    ]
