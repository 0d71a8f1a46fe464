"""What to do next about a compensation. Pure: the order of undoing and what stops it, on one screen.

Everything in doubt is reconciled first. Then the effect settled last is undone first. An undo that needs a
person stops those before it: what was done earlier may be what it stands on. A tool that cannot undo was
known to be so when the run began, and stops nothing: the rest is undone, and a person is asked in the end.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from models.journal.undoing import Standstill, Target

GOES = 5  #: in a row without progress; then a person is asked


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing can be undone yet."""

    why: str


@dataclass(frozen=True, slots=True)
class Try:
    """This is next."""

    target: Target


@dataclass(frozen=True, slots=True)
class Leave:
    """These cannot be undone, and nothing else is left to do: a person gives them up."""

    targets: tuple[Target, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """Nothing goes on before a person has decided."""


@dataclass(frozen=True, slots=True)
class End:
    """Everything is undone or given up."""


Next: TypeAlias = Wait | Try | Leave | Stop | End


def next_action(
    still: Standstill, targets: Sequence[Target], *, can_undo: Callable[[str], bool]
) -> Next:
    """``targets`` in the order of undoing; ``can_undo`` says of a tool's name whether it can."""
    if still.for_person:
        return Stop()
    if still.moving:
        return Wait("a step of the run is still in the air")
    if still.in_doubt:
        return Wait(f"{still.in_doubt} effects that may have happened are looked up first")
    left = []
    for target in targets:
        if can_undo(target.tool):
            return Try(target) if target.person is None else Stop()
        left.append(target)
    unasked = tuple(target for target in left if target.person is None)
    if unasked:
        return Leave(unasked)
    return Stop() if left else End()
