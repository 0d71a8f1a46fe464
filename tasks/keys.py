"""Step keys: ``read``, ``read#2``, or one of the author's choice; each names one step of a run."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeAlias

from tasks.canvas import Signature
from tasks.errors import PlanCircle, PlanError

Taken: TypeAlias = Mapping[str, int] | Callable[[str], int]

ADVICE = "a plan has no circles: write a loop by returning Then(value, next_step.s()) from a step"
_SHOWN = 8  #: steps of a circle that its message names


class Placed(Protocol):
    """A step in a plan, as far as it is needed to see what leads to what."""

    @property
    def key(self) -> str: ...

    @property
    def before(self) -> "tuple[Placed, ...]": ...


class StepKeys:
    """Gives out the keys of one plan, or of what one step adds to a run."""

    def __init__(self, workflow: str, *, taken: Taken | None, after: str | None) -> None:
        self._workflow = workflow
        self._taken = taken if callable(taken) else (taken or {}).get
        self._after = after
        self._highest: dict[str, int] = {}

    def give(self, link: Signature, *, before: tuple[Placed, ...]) -> str:
        """The key of a step that follows ``before``. Generated ones count on."""
        if link.key is None:
            stem = link.step.local_name
            number = self._highest[stem] = self._count(stem) + 1
            return stem if number == 1 else f"{stem}#{number}"
        if self._taken(link.key):
            raise PlanCircle(
                f"step {self._after!r} adds a step with the key {link.key!r}, which this run "
                f"already has ({link.key} -> ... -> {self._after} -> {link.key}); {ADVICE}"
            )
        if link.key in self._highest:
            raise self._repeated(link.key, before)
        self._highest[link.key] = 1
        return link.key

    def _count(self, stem: str) -> int:
        return self._highest.get(stem) or self._taken(stem) or 0

    def _repeated(self, key: str, before: tuple[Placed, ...]) -> PlanError:
        trail = _trail(key, before)
        if trail is None:
            return PlanError(
                f"the plan of {self._workflow} has the step key {key!r} in two parallel branches; "
                "a key names one step of a run: choose two, or leave keys out"
            )
        shown = trail if len(trail) <= _SHOWN else [*trail[: _SHOWN - 2], "...", trail[-1]]
        circle = " -> ".join([*shown, key])
        return PlanCircle(f"the plan of {self._workflow} is a circle: {circle}; {ADVICE}")


def occurrences(step_keys: Iterable[str]) -> dict[str, int]:
    """Highest occurrence by stem: ``read``, ``read#3`` -> ``{"read": 3}``; a chosen key is one."""
    highest: dict[str, int] = {}
    for step_key in step_keys:
        stem, _, number = step_key.partition("#")
        highest[stem] = max(highest.get(stem, 0), int(number or 1))
    return highest


def _trail(key: str, before: tuple[Placed, ...]) -> list[str] | None:
    """Keys from the step ``key`` to where ``before`` ends, when the one leads to the other."""
    reached: dict[int, Placed | None] = {id(placed): None for placed in before}
    queue = deque(before)
    while queue:
        placed = queue.popleft()
        if placed.key == key:
            return _unwound(placed, reached)
        for earlier in placed.before:
            if id(earlier) not in reached:
                reached[id(earlier)] = placed
                queue.append(earlier)
    return None


def _unwound(start: Placed, reached: Mapping[int, Placed | None]) -> list[str]:
    trail: list[str] = []
    at: Placed | None = start
    while at is not None:
        trail.append(at.key)
        at = reached[id(at)]
    return trail
