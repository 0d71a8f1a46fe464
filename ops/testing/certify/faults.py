"""What can go wrong, where, and in which order it is tried: pure values, no I/O."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from models.errors import OnwardError


class CertifyError(OnwardError):
    """What was asked for cannot be certified; the message says why."""

    error_type = "certify"


class FaultKind(StrEnum):
    """One instant at which a process is killed, or one thing that happens to a request."""

    P0 = "P0"
    P1 = "P1"
    E1 = "E1"
    P2 = "P2"
    P3 = "P3"
    E4 = "E4"
    E5 = "E5"
    E6 = "E6"
    P4 = "P4"
    P5 = "P5"
    P6 = "P6"
    P7 = "P7"
    DROP = "drop"
    DELAY = "delay"
    ERROR = "500"
    DUPLICATE = "duplicate"


K = FaultKind

OF_A_STEP = (K.P0, K.P1, K.P4, K.P5, K.P6, K.P7, K.DUPLICATE)
OF_AN_EFFECT = (K.E1, K.E4, K.E5, K.E6)
OF_A_REQUEST = (K.P2, K.P3, K.DROP, K.DELAY, K.ERROR)

#: What happens, in the words of the report.
IN_WORDS = {
    K.P0: "killed with the message received and nothing claimed",
    K.P1: "killed with the step claimed and its body not entered",
    K.E1: "killed with the intent committed and nothing sent",
    K.P2: "killed with the request on its way and not applied",
    K.P3: "killed with the request applied and its answer not received",
    K.E4: "killed with the answer in memory and no settlement committed",
    K.E5: "killed with the settlement's COMMIT sent and not answered",
    K.E6: "killed with the settlement committed and the body going on",
    K.P4: "killed with the result in memory and not committed",
    K.P5: "killed with the result's COMMIT sent and not answered",
    K.P6: "killed with the result committed and what follows unpublished",
    K.P7: "killed with what follows published and the message unacked",
    K.DROP: "the request was applied and its answer dropped",
    K.DELAY: "the request was applied and its answer came after the time-out",
    K.ERROR: "the request was applied and answered with status 500",
    K.DUPLICATE: "the step's message came three times",
}


@dataclass(frozen=True, slots=True)
class Request:
    """One outgoing request of a step, so that another run's can be recognised.

    ``occurrence`` counts from 0 among those of one attempt with the same effect, method and host:
    addresses are no help, since they hold ids that are others in each run.
    """

    method: str
    host: str
    occurrence: int
    path: str  #: in the words of the report; recognises nothing

    def __str__(self) -> str:
        return f"{self.method} {self.host}{self.path}"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong once in one run."""

    kind: FaultKind
    step_key: str
    effect: str = ""  #: the effect's key without the run's id; empty: none
    request: Request | None = None

    def __str__(self) -> str:
        place = f"step {self.step_key}"
        if self.effect:
            place = f"effect {self.effect}"
        if self.request is not None:
            place += f", {self.request}"
        return f"{self.kind} at {place}"


@dataclass(frozen=True, slots=True)
class Surface:
    """Where a step can be hurt, as the run without faults showed."""

    step_key: str
    effects: tuple[str, ...] = ()
    requests: tuple[tuple[str, Request], ...] = ()  #: each with the effect it belongs to, or ""


def plan_faults(
    surfaces: Sequence[Surface], *, kinds: Collection[FaultKind], only: Collection[str]
) -> tuple[Fault, ...]:
    """Every fault of these kinds at every place of these steps (all when none is named).

    What waits for a time-out or a window comes first: the quick ones pass meanwhile. Raises
    ``CertifyError`` for a step that is not there.
    """
    known = {surface.step_key for surface in surfaces}
    if unknown := set(only) - known:
        raise CertifyError(
            f"There is no step {sorted(unknown)[0]!r} in the run without faults; there are "
            f"{', '.join(sorted(known))}."
        )
    found = [
        fault
        for surface in surfaces
        if not only or surface.step_key in only
        for fault in _of(surface)
        if fault.kind in kinds
    ]
    return tuple(sorted(found, key=lambda fault: fault.kind not in _SLOW))


_SLOW = frozenset({K.DELAY, K.E1, K.P2})


def _of(surface: Surface) -> Iterator[Fault]:
    yield from (Fault(kind, surface.step_key) for kind in OF_A_STEP)
    for effect in surface.effects:
        yield from (Fault(kind, surface.step_key, effect) for kind in OF_AN_EFFECT)
    for effect, request in surface.requests:
        yield from (Fault(kind, surface.step_key, effect, request) for kind in OF_A_REQUEST)


def parse_kinds(text: str) -> frozenset[FaultKind]:
    """``P3,drop`` as kinds; all of them when nothing is asked for."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    known = {kind.lower(): kind for kind in FaultKind}
    for name in names:
        if name.lower() not in known:
            raise CertifyError(f"There is no fault {name!r}; there are {', '.join(FaultKind)}.")
    return frozenset(known[name.lower()] for name in names) or frozenset(FaultKind)
