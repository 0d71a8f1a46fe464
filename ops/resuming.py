"""Going on with stopped runs: first what would happen, then doing it.

What is reused is every completed step; what runs again is every step that stopped; nothing else is
touched. Counters stay: what was counted is pardoned, so limits start anew and the history keeps all.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from models.journal import history, overview, resolving, runs, stories
from models.journal.errors import Refused
from models.journal.history import RunView, StepView
from models.journal.stories import EffectView
from models.states import BlockReason, EffectClass, RunState, StepState
from ops import client
from recovery import wake
from recovery.sweep import sweep_once
from tasks.errors import AgentsError

_EVERY_RUN = 1_000_000
_OVER = (RunState.COMPLETED, RunState.CANCELLED, RunState.COMPENSATED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What resuming a run would do, by step key."""

    run_id: str
    state: str
    reused: tuple[str, ...]  #: completed; their results are used as they are
    again: tuple[
        str, ...
    ]  #: stopped; run again, ``(untracked)`` where Onward cannot see what they did
    asked: tuple[str, ...]  #: the outside world is asked about their effects first
    questions: tuple[str, ...]  #: what it is asked, effect by effect
    left: tuple[str, ...]  #: stay stopped, with the reason
    moving: tuple[str, ...]  #: under way or due; not touched
    ahead: int  #: planned and not reached yet

    @property
    def acts(self) -> bool:
        return bool(self.again or self.asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPreview:
    """What going on with a batch would do, by run id."""

    batch_id: str
    reused: tuple[str, ...] = ()  #: completed runs
    steps_reused: int = 0  #: completed steps of all runs
    again: tuple[str, ...] = ()  #: stopped runs that go on from their last completed step
    asked: tuple[
        str, ...
    ] = ()  #: stopped runs about whose effects the outside world is asked first
    questions: tuple[str, ...] = ()  #: what it is asked, effect by effect
    unseen: tuple[str, ...] = ()  #: untracked steps among ``again``: run again, whatever they did
    left: tuple[str, ...] = ()  #: stay stopped, with the reason
    moving: tuple[str, ...] = ()


@dataclass(slots=True)
class Resumed:
    """What was done: the steps sent back, by run id, and why other runs were not."""

    sent_back: dict[str, list[str]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


def preview(run_id: str) -> Preview:
    """What ``resume`` would do with this run now. Raises ``UnknownRun``."""
    run, steps = history.get_run(run_id), history.list_steps(run_id)
    over = run.state in _OVER
    stopped = [] if over else [step for step in steps if _is_stopped(step)]
    doubtful = [step for step in stopped if step.block_reason in _DOUBTFUL]
    doubts = [] if over else stories.in_doubt([run_id])
    asked = {effect.step_key for effect in doubts if _can_be_asked(effect)}
    moving = [step for step in steps if step.state in _MOVING and step not in stopped]
    return Preview(
        run_id=run_id, state=run.state,
        reused=tuple(step.step_key for step in steps if step.state == StepState.COMPLETED),
        again=tuple(
            f"{step.step_key}{' (untracked)' * step.untracked}"
            for step in stopped if step not in doubtful
        ),
        asked=tuple(step.step_key for step in doubtful if step.step_key in asked),
        questions=_questions(doubts),
        left=(f"the run is {run.state}",) if over else _for_person(doubts),
        moving=() if over else tuple(step.step_key for step in moving),
        ahead=0 if over else sum(step.state == "not_reached" for step in steps),
    )  # fmt: skip


def resume(run_id: str, *, by: str) -> list[str]:
    """Send a run's stopped steps back and their messages out; returns their keys. Raises ``Refused``.

    What waits for a person is looked up once more where it can be: its step goes on with what is found.
    """
    asked = resolving.ask_again(run_id, by=by)
    try:
        keys = runs.send_back(run_id, by=by)
    except Refused:
        if not asked:
            raise
        keys = []
    _send(run_id)
    return list(dict.fromkeys([*keys, *asked.values()]))


def preview_recovery(batch_id: str) -> BatchPreview:
    """What ``recover_batch`` would do: blocked runs go on, failed ones stay for ``retry_failed``."""
    return _preview(
        batch_id, again=RunState.BLOCKED, advice="`onward batch retry-failed` tries again"
    )


def preview_retry(batch_id: str) -> BatchPreview:
    """What ``retry_failed`` would do: failed runs go on, and nothing else is touched."""
    return _preview(
        batch_id, again=RunState.FAILED, advice="`onward batch recover` goes on with it"
    )


def recover_batch(plan: BatchPreview, *, by: str) -> Resumed:
    """Take over what lost its owner, everywhere; send the batch's blocked runs on, asking what is in doubt."""
    sweep_once(client.app())
    return retry_runs([*plan.again, *plan.asked], by=by)


def retry_batch(plan: BatchPreview, *, by: str) -> Resumed:
    """Send the stopped steps of the batch's stopped runs back."""
    return retry_runs(plan.again, by=by)


def retry_runs(run_ids: Iterable[str], *, by: str) -> Resumed:
    """Send the stopped steps of these runs back. One that cannot be is reported, and the others go on."""
    done = Resumed()
    for run_id in dict.fromkeys(run_ids):
        try:
            done.sent_back[run_id] = resume(run_id, by=by)
        except Refused as error:
            done.refused[run_id] = str(error)
    return done


_MOVING = (StepState.PENDING, StepState.RUNNING, StepState.WAITING, StepState.UNKNOWN)


#: Blocks about which the outside world, or a person, knows more.
_DOUBTFUL = (BlockReason.UNKNOWN_EFFECT, BlockReason.JOURNAL_REWOUND)


def _can_be_asked(effect: EffectView) -> bool:
    """What can neither be repeated nor asked about is a person's."""
    return effect.person is None or effect.effect_class != EffectClass.ONCE


def _questions(doubts: Sequence[EffectView]) -> tuple[str, ...]:
    return tuple(
        f"{effect.tool}: did {effect.key} happen?" for effect in doubts if _can_be_asked(effect)
    )


def _for_person(doubts: Sequence[EffectView]) -> tuple[str, ...]:
    return tuple(
        f"{effect.step_key}: effect {effect.key} of {effect.tool} needs a person ({effect.person}): "
        f"`onward effects resolve {effect.key}`"
        for effect in doubts
        if not _can_be_asked(effect)
    )


def _is_stopped(step: StepView) -> bool:
    """Failed on a branch that is still there (a tolerated failure has ended its own), or blocked."""
    failed = step.state == StepState.FAILED and step.finished_at is None
    return failed or step.block_reason is not None


def _preview(batch_id: str, *, again: RunState, advice: str) -> BatchPreview:
    overview.get_batch(batch_id)
    found = history.list_runs(batch_id=batch_id, limit=_EVERY_RUN)[::-1]
    undoing = [run for run in found if run.reason == BlockReason.COMPENSATION_FAILED]
    found = [run for run in found if run not in undoing]
    asked = [run for run in found if run.state == again and run.reason in _DOUBTFUL]
    doubts = stories.in_doubt([run.run_id for run in found if run.state not in _OVER])

    def ids(*states: RunState) -> tuple[str, ...]:
        return tuple(run.run_id for run in found if run.state in states and run not in asked)

    stays = {RunState.FAILED, RunState.BLOCKED, RunState.CANCELLED} - {again}
    return BatchPreview(
        batch_id=batch_id, reused=ids(RunState.COMPLETED),
        steps_reused=sum(run.completed_steps for run in found), again=ids(again),
        asked=tuple(run.run_id for run in asked), questions=_questions(doubts),
        unseen=tuple(
            f"{run_id}: {step_key}" for run_id, step_key in overview.untracked_stopped(
                [run.run_id for run in found if run.state == again]
            )
        ),
        left=(
            *_left(found, stays, advice=advice),
            *_left(undoing, {RunState.BLOCKED}, advice="`onward runs compensate` tries again"),
            *_for_person(doubts),
        ),
        moving=ids(RunState.PENDING, RunState.RUNNING, RunState.WAITING, RunState.COMPENSATING),
    )  # fmt: skip


def _left(found: Sequence[RunView], stays: set[RunState], *, advice: str) -> tuple[str, ...]:
    return tuple(
        f"{run.run_id}: {run.state}"
        + (f" ({run.reason}); {advice}" if run.state != RunState.CANCELLED else "")
        for run in found
        if run.state in stays
    )


def _send(run_id: str) -> None:
    """Send what is due now. Without the agents here, the next ``wake`` does so within a second."""
    try:
        app = client.app()
    except AgentsError:
        return
    wake.publish_due(app, run_id=run_id)
