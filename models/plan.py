"""The plan: what a run will do, compiled once at submission and stored as it is.

A plan is a set of nodes, one per step, each knowing what follows it. A *branch* is a path being
walked: the root branch is ``"0"``; the members of a group get branches below the branch of the step
that opened it (``"0/2.1"``: second group of the plan, member 1). A group always ends in a *join*:
the step that follows it on the parent branch and receives the members' results in input order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

ROOT_BRANCH = "0"


class InputKind(StrEnum):
    """Where a step's first argument comes from."""

    NONE = "none"  #: nothing is piped in (a first step, or ``.si``)
    PREVIOUS = "previous"  #: the result of the step before it on its branch
    GATHER = "gather"  #: the list of its group's member results, in input order
    EMPTY = "empty"  #: ``[]``: the group before it had no members


@dataclass(frozen=True, slots=True)
class Successor:
    """What follows a step on its branch.

    Neither field set: the branch ends here. ``fork`` set: the branch waits at ``next_key`` (the
    join) while every member head in ``fork`` starts on a branch of its own.
    """

    next_key: str | None = None
    fork: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanNode:
    """One step of a plan."""

    step_key: str  #: unique in the run, stable over restarts: ``read``, ``think#2``
    step_name: str  #: the Celery task: ``contract-review.read``
    queue: str  #: full name of the Celery queue: ``steps.contract-review@3``
    kind: str  #: label for views and metrics: ``llm``, ``tool``, ``write``, ``step``
    branch: str
    input: InputKind
    arguments: (
        str  #: canonical JSON ``{"args": [...], "kwargs": {...}}`` of the values bound by ``.s``
    )
    successor: Successor
    joins: str | None = None  #: set on a group member's last step: the join it reports to
    join_index: int | None = None  #: the member's place in the join's input
    tolerant: bool = (
        False  #: of a join: a failed member arrives as an error value instead of ending the run
    )
    untracked: bool = False  #: does I/O that Onward cannot see; never repeated blindly
    has_lookup: bool = False  #: of an untracked step: it can be asked whether it was done
    rate_limit: float | None = None  #: claims a second, over the whole cluster
    throttle: str | None = None  #: name of the token bucket that rate_limit draws from


@dataclass(frozen=True, slots=True)
class Plan:
    """Nodes in the order they were written, and where the run (or an insertion) begins."""

    entry: Successor
    nodes: Sequence[PlanNode]
