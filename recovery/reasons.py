"""Why a run does not move, in one word to search for and one sentence that says what to do. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from models.states import Hold, RunState, StepState


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


@dataclass(frozen=True, slots=True)
class Reason:
    """A word and a sentence. ``stuck``: nothing changes until somebody acts."""

    word: str
    sentence: str
    stuck: bool = False


def explain(
    *, state: str, hold: str | None, reason: str | None, detail: str | None,
    branches: Sequence[BranchFacts], served: Collection[str],
) -> Reason:  # fmt: skip
    """The reason of the branch that matters most: what needs a person first, then what needs time."""
    if state in (RunState.COMPLETED, RunState.CANCELLED):
        return Reason(state, f"The run is {state}.")
    if state in (RunState.BLOCKED, RunState.FAILED):
        return Reason(reason or state, f"{state}: {detail or 'see its history'}", stuck=True)
    if hold == Hold.CANCEL:
        return Reason("cancelling", "Cancelled; steps in the air end or are reconciled first.")
    moving = [branch for branch in branches if branch.missing == 0]
    if hold == Hold.FAILED:  # what is pending stays so: the reason is what failed, or still runs
        moving = [branch for branch in moving if branch.state != StepState.PENDING]
    found = [_of_branch(branch, served) for branch in moving]
    if not found:
        return Reason(
            "lost", "No branch of the run is in motion: run `onward runs verify`.", stuck=True
        )
    return min(found, key=lambda one: (not one.stuck, _URGENCY.index(one.word)))


_URGENCY = (
    "no_worker",
    "unknown",
    "stale",
    "retry",
    "scheduled",
    "waiting",
    "failed",
    "queued",
    "running",
)


def _of_branch(branch: BranchFacts, served: Collection[str]) -> Reason:
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
            return Reason(
                "unknown", f"{step} lost its owner ({branch.error}); the next sweep decides."
            )
        case StepState.FAILED:
            return Reason("failed", f"{step} failed ({branch.error}); its siblings are finishing.")
        case StepState.WAITING:
            return Reason("waiting", f"{step} waits for {branch.due_in:.0f} s more.")
        case _:
            return _of_pending(branch, step, served)


def _of_pending(branch: BranchFacts, step: str, served: Collection[str]) -> Reason:
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
