"""Plays the planned faults one after another, beside the batch, and keeps the record of each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from models.journal.errors import JournalUnavailable
from ops.demo import evidence
from ops.demo.aiming import Missed, Scene
from ops.demo.records import FaultRecord, Saved
from ops.demo.schedule import PlannedFault
from ops.demo.scripts import SCRIPTS, Blow, Healing, Script


@dataclass(slots=True)
class _Playing:
    record: FaultRecord
    script: Script
    blow: Blow | None = None


class Director:
    """One fault at a time: the next waits until the last one is overcome, so causes stay apart."""

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
        self._playing: _Playing | None = None

    @property
    def idle(self) -> bool:
        """Nothing is being played and nothing is left to play."""
        return self._playing is None and not self._planned

    @property
    def upcoming(self) -> PlannedFault | None:
        return self._planned[0] if self._planned else None

    def tick(self, completed: int, *, elapsed: float) -> None:
        """Go on with the fault that is played, or begin the next when it is due."""
        due = self._planned and (completed >= self._planned[0].document or self._scene.settled)
        if self._playing is None and due:
            self._begin(self._planned.pop(0), completed, elapsed=elapsed)
        if self._playing is not None:
            self._go_on(self._playing, completed, elapsed=elapsed)

    def close(self) -> None:
        """Break off; what was being played ends its own way."""
        if self._playing is not None:
            self._playing.script.close()
            self._playing = None

    def _begin(self, fault: PlannedFault, completed: int, *, elapsed: float) -> None:
        record = FaultRecord(kind=fault.kind, document=completed, at_seconds=elapsed, victim="")
        self._playing = _Playing(record, SCRIPTS[fault.kind](self._scene))

    def _go_on(self, playing: _Playing, completed: int, *, elapsed: float) -> None:
        try:
            blow = next(playing.script)
        except StopIteration as end:
            self._healed(playing, end.value)
        except Missed as missed:
            self._scene.stage.thaw_all()
            self._finish(replace(playing.record, problem=f"{playing.record.kind}: {missed}"))
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
            saved=replace(playing.record.saved, run_seconds=seconds, run_calls=calls),
        )
        self._scene.say(
            f"{record.kind}: recovered by {record.recovered_by} after {record.seconds:.1f} s"
        )
        self._finish(record)

    def _finish(self, record: FaultRecord) -> None:
        if record.problem:
            self._scene.say(record.problem)
        self._playing = None
        self.records.append(record)
        self._on_record(record)
