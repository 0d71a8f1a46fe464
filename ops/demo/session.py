"""One sitting of the demo: submit, play the faults while the batch runs, count at the end."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from models.journal.errors import JournalUnavailable
from ops.demo import batch, doubts, evidence
from ops.demo.aiming import Scene
from ops.demo.director import Director
from ops.demo.evidence import HeldStep, Progress
from ops.demo.keepsake import Keepsake
from ops.demo.memory import Memory
from ops.demo.records import FaultRecord
from ops.demo.replays import compare, on_record
from ops.demo.report import Report
from ops.demo.schedule import PlannedFault
from ops.demo.stage import Stage
from ops.demo.view import View, WorkerRow
from ops.demo.witnesses import Witnessed
from ops.stack.stopping import StopRequests

TICK = 0.1  #: seconds between two looks
STALL = 90.0  #: seconds without a finished step after which waiting longer makes no sense
_CLOSING = 30.0  #: seconds the witnesses and the journal get to answer at the end


@dataclass(slots=True)
class Session:
    """Runs one batch to its end on a stage."""

    stage: Stage
    view: View
    stop: StopRequests
    memory: Memory
    began: float = field(default_factory=time.monotonic)
    tokens: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def elapsed(self) -> float:
        """Seconds that this batch has taken, earlier sessions included."""
        return self.memory.seconds + time.monotonic() - self.began

    def run(self, planned: Sequence[PlannedFault]) -> Report | None:
        """Bring the batch to its end. None: someone asked to stop before that."""
        keepsake = Keepsake(self.memory.batch_id)
        keepsake.take()
        scene = Scene(
            self.stage, self.memory.batch_id, keepsake, self.view.say, self.memory.documents
        )
        director = Director(scene, planned, tokens=self._spent, on_record=self._keep)
        try:
            progress = self._watch(scene, director)
        finally:
            director.close()
        self._remember(finished=progress is not None and progress.settled)
        return None if progress is None else self._report(progress, director, keepsake)

    def _watch(self, scene: Scene, director: Director) -> Progress | None:
        progress = evidence.progress(self.memory.batch_id)
        moved, first_told = time.monotonic(), progress.completed > 0
        while not (progress.settled and director.idle):
            if self.stop.requested:
                return None
            self.stage.poll()
            before, progress = progress, self._look(progress)
            if progress.steps_done > before.steps_done or not director.idle:
                moved = time.monotonic()
            elif time.monotonic() - moved > STALL:
                self.problems.append(_stalled(progress, self.stage))
                break
            if progress.completed and not first_told:
                first_told = True
                self.view.say(f"first contract reviewed and filed after {self.elapsed:.1f} s")
            scene.settled = progress.settled
            director.tick(progress, elapsed=self.elapsed)
            time.sleep(TICK)
        return progress

    def _look(self, known: Progress) -> Progress:
        """Where the batch stands; as known while the journal is away."""
        try:
            progress = evidence.progress(self.memory.batch_id)
            held = evidence.held(self.memory.batch_id)
        except JournalUnavailable:
            return known
        self.view.show(progress, elapsed=self.elapsed, workers=self._workers(held))
        return progress

    def _workers(self, held: Sequence[HeldStep]) -> list[WorkerRow]:
        pids = self.stage.supervisor.pids
        return [
            WorkerRow(name, pids[name], [one.step_key for one in held if one.worker == name])
            for name in sorted(self.stage.worker_names())
        ]

    def _spent(self) -> int:
        try:
            self.tokens = self.stage.outside.testify().tokens
        except OSError as error:  # a figure of the report; no verdict hangs on it
            self.view.say(f"the outside world did not answer: {error}")
        return self.tokens

    def _keep(self, record: FaultRecord) -> None:
        self.memory = self.memory.with_fault(record.to_json(), leases_held=record.leases_held)
        self._remember(finished=False)

    def _remember(self, *, finished: bool) -> None:
        self.memory.ended(self.elapsed, finished=finished).save(self.stage.home)

    def _report(self, progress: Progress, director: Director, keepsake: Keepsake) -> Report:
        earlier = self.memory.faults[: len(self.memory.faults) - len(director.records)]
        return Report(
            documents=self.memory.documents,
            progress=progress,
            testimony=self._testimony(),
            steps_executed=evidence.claims(self.memory.batch_id),
            leases_held=self.memory.leases_held,
            doubts=doubts.doubts(self.memory.batch_id),
            doubts_open=doubts.still_open(self.memory.batch_id),
            results_kept=len(keepsake),
            results_changed=keepsake.changed(),
            seconds=self.elapsed,
            faults=tuple(sorted(director.records, key=lambda record: record.at_seconds)),
            earlier=earlier,
            problems=tuple(self.problems),
            replays=compare(on_record(self.memory.batch_id), self.stage.outside.model_calls()),
        )

    def _testimony(self) -> Witnessed:
        deadline = time.monotonic() + _CLOSING
        while True:
            try:
                return self.stage.outside.testify()
            except OSError:
                if time.monotonic() > deadline:
                    raise
            self.stage.poll()
            time.sleep(TICK)


def begin(stage: Stage, view: View, stop: StopRequests) -> Session:
    """Submit what is missing of the batch."""
    memory = stage.memory
    if stage.lost_before > memory.leases_held:
        memory = memory.charged(stage.lost_before)
    memory.save(stage.home)
    memory.forget_others(stage.home)
    session = Session(stage, view, stop, memory)
    made = batch.submit(memory.batch_id, batch.documents(memory.documents))
    if made:
        view.say(f"{made} contracts submitted as {memory.batch_id}")
    return session


def _stalled(progress: Progress, stage: Stage) -> str:
    return (
        f"nothing moved for {STALL:.0f} s with {progress.completed} of {progress.documents} documents "
        f"completed; the logs are in {stage.home.path / 'logs'}"
    )
