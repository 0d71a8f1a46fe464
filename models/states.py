"""The state machines of steps and runs, as data. CHECK constraints and the README are tested against it."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class StepState(StrEnum):
    """Where one step of a run stands. ``*`` marks a terminal state."""

    PENDING = "pending"  #: reached and safe to run, perhaps with a due time
    RUNNING = "running"  #: claimed under a lease
    WAITING = "waiting"  #: parked until a condition is met; no worker is held
    UNKNOWN = "unknown"  #: the owner is gone; something may have happened
    COMPLETED = "completed"  #: * result recorded; reused for ever
    FAILED = "failed"  #: out of retries, or refused by policy; a person may send it back
    CANCELLED = "cancelled"  #: * stopped by a person, with nothing of it in doubt


class RunState(StrEnum):
    """Where a run stands as a whole. ``*`` marks a terminal state."""

    PENDING = "pending"  #: submitted, no step claimed yet
    RUNNING = "running"
    WAITING = "waiting"
    BLOCKED = "blocked"  #: stopped until a named cause is removed
    COMPENSATING = "compensating"
    COMPLETED = "completed"  #: *
    FAILED = "failed"
    CANCELLED = "cancelled"  #: *
    COMPENSATED = "compensated"  #: *


class BlockReason(StrEnum):
    """Why a run is blocked: the word an operator sees, searches for and alerts on."""

    UNKNOWN_EFFECT = "unknown_effect"
    UNTRACKED_STEP = "untracked_step"
    VERSION_INCOMPATIBLE = "version_incompatible"
    NO_WORKER = "no_worker"
    ENVIRONMENT_CHANGED = "environment_changed"
    ARTIFACT_CHANGED = "artifact_changed"
    BUDGET_EXCEEDED = "budget_exceeded"
    POISON_STEP = "poison_step"
    UNSERIALISABLE_OUTPUT = "unserialisable_output"
    IDEMPOTENCY_CONFLICT = "idempotency_conflict"
    REPLAY_MISMATCH = "replay_mismatch"
    APPROVAL_EXPIRED = "approval_expired"
    COMPENSATION_FAILED = "compensation_failed"
    LLM_UNAVAILABLE = "llm_unavailable"
    JOURNAL_REWOUND = "journal_rewound"


class EffectClass(StrEnum):
    """What a tool promises about being asked twice; decides what may follow an unknown outcome."""

    PURE = "pure"  #: changes nothing outside: simply asked again
    IDEMPOTENT = (
        "idempotent"  #: the provider honours the key for a declared time: sent again within it
    )
    QUERYABLE = "queryable"  #: can be looked up: asked before anything is sent again
    ONCE = "once"  #: neither: a person decides


class EffectState(StrEnum):
    """Where one effect stands. ``*`` marks a terminal state: its row is then a settlement."""

    INTENDED = "intended"  #: the intent is durable; the request may have left
    UNKNOWN = "unknown"  #: it may have happened; nothing is sent before the world was asked
    REFUSED = "refused"  #: a definite answer, or proof that it never left: it did not happen
    ABSENT = "absent"  #: looked up, and not there: it did not happen
    SETTLED = "settled"  #: * it happened, and its result is recorded
    ABANDONED = "abandoned"  #: * a person gave it up: neither answered nor sent again


class Hold(StrEnum):
    """What keeps every branch of a run from being claimed; tested by each claim."""

    CANCEL = "cancel"  #: a person cancelled the run
    FAILED = "failed"  #: a step failed for good; its running siblings may finish
    COMPENSATE = "compensate"  #: what the run did is being undone


TERMINAL_STEP_STATES = frozenset({StepState.COMPLETED, StepState.CANCELLED})
TERMINAL_RUN_STATES = frozenset({RunState.COMPLETED, RunState.CANCELLED, RunState.COMPENSATED})
#: A run in one of these needs nothing more from Onward unless a person acts.
SETTLED_RUN_STATES = TERMINAL_RUN_STATES | {RunState.FAILED, RunState.BLOCKED}

_S = StepState
#: Every edge a step may take. ``None`` is "not reached yet".
TRANSITIONS: Mapping[StepState, frozenset[StepState]] = MappingProxyType(
    {
        _S.PENDING: frozenset({_S.RUNNING, _S.CANCELLED}),
        _S.RUNNING: frozenset(
            {_S.COMPLETED, _S.PENDING, _S.WAITING, _S.UNKNOWN, _S.FAILED, _S.CANCELLED}
        ),
        _S.WAITING: frozenset({_S.PENDING, _S.FAILED, _S.CANCELLED}),
        _S.UNKNOWN: frozenset({_S.PENDING, _S.COMPLETED, _S.FAILED, _S.CANCELLED}),
        _S.FAILED: frozenset({_S.PENDING, _S.CANCELLED}),
        _S.COMPLETED: frozenset(),
        _S.CANCELLED: frozenset(),
    }
)


def is_edge(before: StepState, after: StepState) -> bool:
    """Whether a step may go from one state straight to another (staying is no edge)."""
    return after in TRANSITIONS[before]


def mermaid() -> str:
    """The step states as the README draws them; a test compares the two."""
    lines = ["stateDiagram-v2", "    [*] --> pending"]
    lines += [
        f"    {before} --> {after}"
        for before in StepState
        for after in StepState
        if is_edge(before, after)
    ]
    lines += [f"    {state} --> [*]" for state in StepState if state in TERMINAL_STEP_STATES]
    return "\n".join(lines)
