"""Why a run does not move, in one word to search for and one sentence that says what to do. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from models.journal.stories import EffectView
from models.states import BlockReason, EffectState, Hold, RunState, StepState


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchFacts:
    """One branch in motion, as the journal shows it now. Times are seconds from now."""

    step_key: str
    state: str
    missing: int
    queue: str
    attempt: int
    failures: int
    due_in: float
    lease_left: float | None
    held_for: float | None
    worker: str | None
    publications: int
    block_reason: str | None
    error: str | None
    progress: str | None = None
    untracked: bool = False
    error_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubtFacts:
    """One effect of which it is not known whether it happened. Durations are seconds."""

    key: str
    step_key: str
    tool: str
    is_undo: bool
    person: str | None  #: why somebody has to decide
    since: datetime
    lasts: float
    due_in: float  #: until it is looked up next
    looking: bool
    checks: int
    last: str | None  #: what the last look found
    queue: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoFacts:
    """A compensation that is not over."""

    state: str
    doing: bool
    due_in: float
    queue: str
    error: str | None


@dataclass(frozen=True, slots=True)
class Reason:
    """A word and a sentence. ``stuck``: nothing changes until somebody acts."""

    word: str
    sentence: str
    stuck: bool = False


#: Blocks that end when a person has said what became of an effect.
_FOR_PERSON = (
    BlockReason.UNKNOWN_EFFECT,
    BlockReason.JOURNAL_REWOUND,
    BlockReason.COMPENSATION_FAILED,
    BlockReason.UNSERIALISABLE_OUTPUT,
)
_BOUND = (
    "When what it is bound to did not happen, `onward effects resolve KEY --absent` frees the key; when it did, "
    "cancel the run, or correct what the step asks for and `onward runs resume`."
)


def explain(
    *, state: str, hold: str | None, reason: str | None, detail: str | None,
    branches: Sequence[BranchFacts], served: Collection[str], doubts: Sequence[DoubtFacts] = (),
    undoing: UndoFacts | None = None,
) -> Reason:  # fmt: skip
    """The reason of the branch that matters most: what needs a person first, then what needs time."""
    if state in (RunState.BLOCKED, RunState.FAILED):
        stopped = _of_stopped(state, reason, detail=detail, doubts=doubts)
        if undoing is None or undoing.state != "blocked" or hold == Hold.COMPENSATE:
            return stopped
        beside = _of_undoing(undoing, [one for one in doubts if one.is_undo], served=served)
        return Reason(stopped.word, f"{stopped.sentence} {beside.sentence}", stuck=True)
    if undoing is not None:
        return _of_undoing(undoing, doubts, served=served)
    if state in (RunState.COMPLETED, RunState.CANCELLED, RunState.COMPENSATED):
        return Reason(state, f"The run is {state}.")
    if hold == Hold.CANCEL:
        return _of_cancelling(branches, doubts, served=served)
    moving = [branch for branch in branches if branch.missing == 0]
    if hold == Hold.FAILED:  # what is pending stays so: the reason is what failed, or still runs
        moving = [branch for branch in moving if branch.state != StepState.PENDING]
    found = [_of_branch(branch, served, doubts=doubts) for branch in moving]
    if not found:
        return Reason(
            "lost", "No branch of the run is in motion: run `onward runs verify`.", stuck=True
        )
    return min(found, key=lambda one: (not one.stuck, _URGENCY.index(one.word)))


def advice_on(effect: EffectView, *, conflict: bool = False) -> str | None:
    """What a person can do about an effect; None: nothing. ``conflict``: its run is stopped by one."""
    if effect.person is not None:
        return f"It needs a person ({effect.person}): {_resolving(effect.key)}."
    match EffectState(effect.state):
        case EffectState.UNKNOWN:
            return f"It is asked for by itself. Who knows already may say so: {_resolving(effect.key)}."
        case EffectState.INTENDED:
            return "It is under way: its answer, or the loss of its owner, says how it goes on."
        case EffectState.SETTLED | EffectState.ABANDONED if not conflict:
            return None
        case _:
            return _BOUND.replace("KEY", effect.key) if conflict else "It did not happen."


_URGENCY = (
    "no_worker",
    "compensation_failed",
    "unknown_effect",
    "unknown",
    "stale",
    "retry",
    "endpoint",
    "scheduled",
    "waiting",
    "failed",
    "queued",
    "running",
)


def _of_stopped(
    state: str, reason: str | None, *, detail: str | None, doubts: Sequence[DoubtFacts]
) -> Reason:
    word = reason or state
    waiting = [doubt for doubt in doubts if doubt.person is not None]
    if state == RunState.BLOCKED and reason in _FOR_PERSON and waiting:
        return Reason(word, f"blocked: {_for_person(waiting)}", stuck=True)
    told = f"{state}: {detail or 'see its history'}"
    if reason == BlockReason.IDEMPOTENCY_CONFLICT and "`onward " not in told:
        told = f"{told.rstrip('.')}. {_BOUND}"
    return Reason(word, told, stuck=True)


def _for_person(waiting: Sequence[DoubtFacts]) -> str:
    first, more = waiting[0], len(waiting) - 1
    told = f"needs a person: {_named(first)} ({first.person}) -> {_resolving(first.key)}"
    return told + (
        f"; and {more} more effects (`onward effects list --needs-person`)" if more else ""
    )


def _resolving(key: str) -> str:
    return f"`onward effects resolve {key} --found ID`, or --absent, or --abandon"


def _named(doubt: DoubtFacts) -> str:
    what = "undo" if doubt.is_undo else "effect"
    return (
        f"{what} {doubt.key} of {doubt.tool} in doubt since {doubt.since:%Y-%m-%d %H:%M:%S} "
        f"({doubt.lasts:.0f} s)"
    )


def _of_doubt(doubt: DoubtFacts, served: Collection[str]) -> Reason:
    if doubt.person is not None:
        return Reason("unknown_effect", _for_person([doubt]), stuck=True)
    if doubt.queue not in served:
        return Reason(
            "no_worker", f"{_named(doubt)} is looked up by a worker of queue {doubt.queue!r} and none is "
            "alive: start one that has this version of the workflow in ONWARD_AGENTS.", stuck=True,
        )  # fmt: skip
    when = "now" if doubt.looking or doubt.due_in <= 0 else f"in {doubt.due_in:.0f} s"
    last = f", last: {doubt.last}" if doubt.last else ""
    return Reason(
        "unknown_effect", f"{_named(doubt)}, next look {when} ({doubt.checks} looks{last})."
    )


def _of_cancelling(
    branches: Sequence[BranchFacts], doubts: Sequence[DoubtFacts], *, served: Collection[str]
) -> Reason:
    found = [_of_doubt(doubt, served) for doubt in doubts]
    found += [_unasked(one) for one in branches if _is_unasked(one, served)]
    asked = min(found, key=lambda one: not one.stuck, default=Reason("cancelling", ""))
    told = f"Cancelled; steps in the air end or are reconciled first. {asked.sentence}".rstrip()
    return Reason(asked.word if asked.stuck else "cancelling", told, asked.stuck)


def _of_undoing(
    undoing: UndoFacts, doubts: Sequence[DoubtFacts], *, served: Collection[str]
) -> Reason:
    if undoing.state == "blocked":
        waiting = [doubt for doubt in doubts if doubt.person is not None]
        told = _for_person(waiting) if waiting else str(undoing.error)
        return Reason("compensation_failed", f"Undoing its effects is blocked: {told}", stuck=True)
    if doubts:
        found = min((_of_doubt(one, served) for one in doubts), key=lambda one: not one.stuck)
        return Reason(found.word, f"Its effects are being undone; {found.sentence}", found.stuck)
    if undoing.queue not in served and not undoing.doing:
        return Reason(
            "no_worker", f"Its effects are undone by a worker of queue {undoing.queue!r} and none is alive: start "
            "one that has this version of the workflow in ONWARD_AGENTS.", stuck=True,
        )  # fmt: skip
    when = "now" if undoing.doing or undoing.due_in <= 0 else f"in {undoing.due_in:.0f} s"
    last = f" (last: {undoing.error})" if undoing.error else ""
    return Reason("compensating", f"Its effects are being undone, next {when}{last}.")


def _of_branch(
    branch: BranchFacts, served: Collection[str], *, doubts: Sequence[DoubtFacts]
) -> Reason:
    step = f"step {branch.step_key!r}"
    match StepState(branch.state):
        case StepState.RUNNING if (branch.lease_left or 0) <= 0:
            return Reason(
                "stale", f"{step} on {branch.worker} is silent; the next sweep takes it over."
            )
        case StepState.RUNNING:
            shown = f" ({branch.progress})" if branch.progress else ""
            return Reason(
                "running",
                f"{step} runs on {branch.worker} for {branch.held_for or 0:.0f} s{shown}.",
            )
        case StepState.UNKNOWN:
            return _of_unknown(branch, step, served=served, doubts=doubts)
        case StepState.FAILED:
            return Reason("failed", f"{step} failed ({branch.error}); its siblings are finishing.")
        case StepState.WAITING:
            return Reason("waiting", f"{step} waits for {branch.due_in:.0f} s more.")
        case _:
            return _of_pending(branch, step, served)


def _of_unknown(
    branch: BranchFacts, step: str, *, served: Collection[str], doubts: Sequence[DoubtFacts]
) -> Reason:
    own = [doubt for doubt in doubts if doubt.step_key == branch.step_key and not doubt.is_undo]
    if not own and _is_unasked(branch, served):
        return _unasked(branch)
    if not own:
        return Reason("unknown", f"{step} lost its owner ({branch.error}); the next sweep decides.")
    first = min(own, key=lambda doubt: (doubt.person is None, doubt.due_in))
    found = _of_doubt(first, served)
    more = f" And {len(own) - 1} more of its effects." if len(own) > 1 else ""
    return Reason(found.word, f"{step}: {found.sentence}{more}", found.stuck)


def _is_unasked(branch: BranchFacts, served: Collection[str]) -> bool:
    """An untracked step without a look-up is blocked by the sweep; one that has one is asked where its code is."""
    unknown = branch.state == StepState.UNKNOWN and branch.block_reason is None
    return unknown and branch.untracked and branch.queue not in served


def _unasked(branch: BranchFacts) -> Reason:
    return Reason(
        "no_worker", f"step {branch.step_key!r} lost its owner, and whether it was done is asked by a worker of queue "
        f"{branch.queue!r}; none is alive: start one that has this version of the workflow in ONWARD_AGENTS.",
        stuck=True,
    )  # fmt: skip


#: What a step that gave its place up waits for, by the error it left: its text says for whom, and since when.
_WAITING_FOR = {"call_postponed": "endpoint", "throttled": "scheduled"}


def _of_pending(branch: BranchFacts, step: str, served: Collection[str]) -> Reason:
    if branch.due_in > 0 and branch.error_type in _WAITING_FOR:
        word = _WAITING_FOR[branch.error_type]
        return Reason(word, f"{step} goes on in {branch.due_in:.0f} s: {branch.error}")
    if branch.due_in > 0 and branch.failures:
        return Reason(
            "retry", f"{step} is tried again in {branch.due_in:.0f} s after {branch.failures} failures: "
            f"{branch.error}",
        )  # fmt: skip
    if branch.due_in > 0:
        return Reason("scheduled", f"{step} is due in {branch.due_in:.0f} s.")
    if branch.queue not in served:
        return Reason(
            "no_worker", f"{step} waits for a worker of queue {branch.queue!r} and none is alive: start one that "
            "has this version of the workflow in ONWARD_AGENTS.", stuck=True,
        )  # fmt: skip
    how = (
        "its message is in the queue"
        if branch.publications
        else "its message is sent when the queue has room"
    )
    return Reason("queued", f"{step} waits for a free worker; {how}.")
