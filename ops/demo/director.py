"""Plays the planned faults one after another, beside the batch, and keeps the record of each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from models.journal.errors import JournalUnavailable
from ops.demo import evidence
from ops.demo.aiming import Missed, Scene
from ops.demo.evidence import Progress
from ops.demo.records import FaultRecord, Saved
from ops.demo.schedule import PlannedFault
from ops.demo.scripts import SCRIPTS
from ops.demo.watching import Blow, Healing, Script


@dataclass(slots=True)
class _Playing:
    record: FaultRecord
    script: Script
    blow: Blow | None = None


#: Of the batch: how far behind its time a fault may fall before it no longer waits for the last one.
_PATIENCE = 0.015


class Director:
    """Faults in their order: one waits until the last is overcome, unless it falls behind its time.

    Causes stay apart all the same: what undid a fault is read from the claims that it hit.
    """

    def __init__(
        self,
        scene: Scene,
        planned: Sequence[PlannedFault],
        *,
        tokens: Callable[[], int],
        on_record: Callable[[FaultRecord], None],
    ) -> None:
        self.records: list[FaultRecord] = []
        self._scene = scene
        self._planned = list(planned)
        self._tokens = tokens
        self._on_record = on_record
        self._playing: list[_Playing] = []

    @property
    def idle(self) -> bool:
        """Nothing is being played and nothing is left to play."""
        return not self._playing and not self._planned

    def tick(self, progress: Progress, *, elapsed: float) -> None:
        """Go on with the faults that are played, and begin the next when it is due."""
        if self._planned and self._is_due(self._planned[0], progress):
            self._begin(self._planned.pop(0), progress.completed, elapsed=elapsed)
        for playing in list(self._playing):
            self._go_on(playing, progress.completed, elapsed=elapsed)

    def close(self) -> None:
        """Break off; what was being played ends its own way."""
        while self._playing:
            self._playing.pop().script.close()

    def _is_due(self, fault: PlannedFault, progress: Progress) -> bool:
        if any(playing.blow is None for playing in self._playing):
            return False  # two that take aim would disturb each other
        overdue = fault.document + max(1, round(_PATIENCE * progress.documents))
        return progress.settled or progress.completed >= (
            overdue if self._playing else fault.document
        )

    def _begin(self, fault: PlannedFault, completed: int, *, elapsed: float) -> None:
        record = FaultRecord(kind=fault.kind, document=completed, at_seconds=elapsed, victim="")
        self._playing.append(_Playing(record, SCRIPTS[fault.kind](self._scene)))

    def _go_on(self, playing: _Playing, completed: int, *, elapsed: float) -> None:
        try:
            blow = next(playing.script)
        except StopIteration as end:
            self._healed(playing, end.value)
        except Missed as missed:
            self._scene.stage.thaw_all(but=self._scene.paused)
            problem = f"{playing.record.kind}: {missed}"
            self._finish(playing, replace(playing.record, problem=problem))
        else:
            if blow is not None:
                self._struck(playing, blow, completed, elapsed=elapsed)

    def _struck(self, playing: _Playing, blow: Blow, completed: int, *, elapsed: float) -> None:
        playing.blow = blow
        playing.record = replace(
            playing.record,
            document=completed,
            at_seconds=elapsed,
            victim=blow.victim,
            leases_held=len(blow.held),
            held=tuple(map(str, blow.held)),
            saved=Saved(batch_seconds=elapsed, batch_tokens=self._tokens()),
        )
        holding = f", holding {'; '.join(playing.record.held)}" if blow.held else ""
        self._scene.say(f"{playing.record.kind}: {blow.victim}{holding}")

    def _healed(self, playing: _Playing, healing: Healing) -> None:
        blow = playing.blow
        assert blow is not None  # noqa: S101 - every script strikes before it returns
        try:
            seconds, calls = evidence.done_before(blow.runs, blow.moment)
        except JournalUnavailable:  # what was saved is a figure for people; no verdict hangs on it
            seconds, calls = 0.0, 0
        record = replace(
            playing.record,
            recovered_by=healing.recovered_by,
            seconds=max(0.0, (healing.until - blow.moment).total_seconds()),
            steps_lost=healing.steps_lost,
            late_results_rejected=healing.late_results_rejected,
            problem=f"{playing.record.kind}: {healing.problem}" if healing.problem else "",
            saved=replace(playing.record.saved, run_seconds=seconds, run_calls=calls),
        )
        self._scene.say(
            f"{record.kind}: recovered by {record.recovered_by} after {record.seconds:.1f} s"
        )
        self._finish(playing, record)

    def _finish(self, playing: _Playing, record: FaultRecord) -> None:
        if record.problem:
            self._scene.say(record.problem)
        self._playing.remove(playing)
        self.records.append(record)
        self._on_record(record)
