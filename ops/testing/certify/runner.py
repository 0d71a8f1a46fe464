"""Plays a certification: one run without faults, then one run for each fault, many side by side."""

import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from models.ids import new_nonce
from models.states import SETTLED_RUN_STATES, RunState
from ops import client
from ops.demo.stage import is_news
from ops.stack import Home, ProcessEvent, StackError
from ops.stack.stopping import StopRequests
from ops.testing.certify import bench, observing, target
from ops.testing.certify.bench import Bench
from ops.testing.certify.counting import subjects_of
from ops.testing.certify.faults import CertifyError, Fault, FaultKind, plan_faults
from ops.testing.certify.judging import Witnessed, sightings, subjects, uncounted
from ops.testing.certify.measure import Measure, surfaces, undeclared
from ops.testing.certify.observing import Standing
from ops.testing.certify.records import Records
from ops.testing.certify.report import Case, Report
from ops.testing.certify.target import Counter, Target
from recovery.watch import why

AT_ONCE = 3 * bench.WORKERS * bench.CONCURRENCY  #: runs; most of them wait for something
TICK = 0.1  #: seconds between two looks
SETTLE = 1.5  #: seconds for which a run must stay where it came to rest, and late requests may come
LONG_WINDOW = 120.0  #: seconds; a certification that takes longer says why
START_LIMIT = 120.0  #: seconds; the run without faults waits for the workers' imports


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a user may choose."""

    kinds: Collection[FaultKind] = field(default_factory=lambda: frozenset(FaultKind))
    only: Collection[str] = ()  #: steps; empty: all
    counter: Counter | None = None
    setup: Callable[[str], object] | None = None  #: given the address of the stack's own database
    reads: Sequence[str] = ()  #: beginnings of addresses to which nothing but questions go
    tool_timeout: float = 10.0  #: seconds for one call of a tool that declares none
    patience: float | None = None  #: seconds for one run; None: from what its tools declare
    keep: bool = False  #: leave the home with its logs where it is


@dataclass(slots=True)
class _Playing:
    fault: Fault | None
    run_id: str
    began: float
    before: Mapping[str, int]
    standing: Standing
    ended: float | None = None
    stuck: bool = False


def certify(
    asked: Target, options: Options, *, say: Callable[[str], None] = lambda _: None
) -> Report:
    """Certify a workflow on a stack of its own. Raises ``CertifyError`` when there is nothing to go by."""
    bench.load(asked.agents)
    asked.workflow.plan_of(
        asked.workflow.bind(asked.input_for("certify"))
    )  # refused before anything starts
    began = time.monotonic()
    home = Home.at(tempfile.mkdtemp(prefix="onward-certify-"))
    stop = StopRequests(home.log("onward"))
    try:
        with stop, Bench(
            home, asked.agents, tool_timeout=options.tool_timeout, stop=stop,
            on_event=lambda event: _tell(say, event),
        ) as stack:  # fmt: skip
            stack.adopt()
            if options.setup is not None:
                options.setup(stack.servers.database_url)
            try:
                report = _Session(stack, asked, options, stop=stop, say=say).run()
            finally:
                bench.release()
    finally:
        if options.keep:
            say(f"everything is kept in {home.path}")
        else:
            shutil.rmtree(home.path, ignore_errors=True)
    return replace(report, seconds=round(time.monotonic() - began, 1))


class _Session:
    """One certification on a running stack."""

    def __init__(
        self,
        stack: Bench,
        asked: Target,
        options: Options,
        *,
        stop: StopRequests,
        say: Callable[[str], None],
    ) -> None:
        self._stack, self._asked, self._options = stack, asked, options
        self._stop, self._say = stop, say
        self._batch = f"certify-{new_nonce()[:8]}"
        self._number = 0

    def run(self) -> Report:
        measure = self._measure()
        faults = plan_faults(surfaces(measure), kinds=self._options.kinds, only=self._options.only)
        if not faults:
            raise CertifyError("None of these faults has a place in this workflow.")
        self._say(
            f"{self._asked.workflow.name}: {len(measure.steps)} steps, "
            f"{len(subjects(measure.witnessed(self._reads())))} effects; "
            f"{len(faults)} faults to play"
        )
        self._announce(measure)
        played = self._play(faults, patience=self._patience(measure, len(faults)))
        return self._report(measure, played)

    def _measure(self) -> Measure:
        """The run without faults: everything later is held against it."""
        playing = self._begin(None)
        while not self._rest([playing], patience=self._options.patience or START_LIMIT):
            self._wait()
        if playing.standing.state != RunState.COMPLETED:
            raise CertifyError(self._not_completed(playing))
        records = self._stack.notebook.read()
        return Measure(
            run_id=playing.run_id, seconds=(playing.ended or 0) - playing.began,
            steps=observing.steps(playing.run_id), effects=observing.effects(playing.run_id),
            exchanges=records.of(playing.run_id), unseen=records.unseen(playing.run_id),
            counted=self._counted(playing),
        )  # fmt: skip

    def _play(self, faults: Sequence[Fault], *, patience: float) -> list[_Playing]:
        waiting, playing, done = list(faults), [], 0
        under_way: list[_Playing] = []
        while waiting or under_way:
            while waiting and len(under_way) < AT_ONCE:
                under_way.append(self._begin(waiting.pop(0)))
                playing.append(under_way[-1])
            for one in self._rest(under_way, patience=patience):
                under_way.remove(one)
                done += 1
                if done % 10 == 0 or done == len(faults):
                    self._say(f"{done} of {len(faults)} faults played")
            self._wait()
        until = time.monotonic() + SETTLE
        while time.monotonic() < until:
            self._wait()
        return playing

    def _begin(self, fault: Fault | None) -> _Playing:
        run_id = f"{self._batch}-{self._number:04}"
        self._number += 1
        before = target.count(self._options.counter, run_id)
        if fault is not None:
            self._stack.notebook.schedule(run_id, fault)
        began = time.monotonic()
        client.submit(
            self._asked.workflow, self._asked.input_for(run_id), run_id=run_id,
        )  # fmt: skip
        return _Playing(fault, run_id, began, before, Standing(RunState.PENDING))

    def _rest(self, under_way: list[_Playing], *, patience: float) -> list[_Playing]:
        """Look where these runs stand; those that are over: at rest for a while, or out of time."""
        found = observing.standings([one.run_id for one in under_way])
        now, over = time.monotonic(), []
        for one in under_way:
            standing = found.get(one.run_id, one.standing)
            if standing != one.standing or standing.state not in SETTLED_RUN_STATES:
                one.ended = None
            one.standing = standing
            if standing.state in SETTLED_RUN_STATES:
                one.ended = one.ended or now
            if one.ended is not None and now - one.ended >= self._still(standing):
                over.append(one)
            elif one.ended is None and now - one.began > patience:
                one.stuck = True
                over.append(one)
        return over

    @staticmethod
    def _still(standing: Standing) -> float:
        """A completed run stays so; a blocked one may be on its way to a look-up that frees it."""
        return 0.0 if standing.state == RunState.COMPLETED else SETTLE

    def _wait(self) -> None:
        if self._stop.requested:
            raise StackError("certify was stopped; nothing of it is left running")
        self._stack.poll()
        time.sleep(TICK)

    def _patience(self, measure: Measure, faults: int) -> float:
        """What a run may take: the longest window of its tools decides, since nothing is sent before."""
        window, _ = measure.longest_window()
        queueing = faults * measure.slowest_rate()
        return self._options.patience or 60.0 + 10 * measure.seconds + 2 * window + queueing

    def _announce(self, measure: Measure) -> None:
        window, tool = measure.longest_window()
        if window > LONG_WINDOW:
            self._say(
                f"after some faults {tool} waits for {window:.0f} s, as it declares, before anything is sent "
                "again; --points leaves E1, P2 and the like out"
            )

    def _not_completed(self, playing: _Playing) -> str:
        standing = playing.standing
        told = f"Without any fault run {playing.run_id} is {standing.state}"
        if standing.detail:
            told += f": {standing.detail.rstrip('.')}"
        if standing.state not in SETTLED_RUN_STATES:
            log = self._stack.home.log("worker-1").read_text(errors="replace").splitlines()
            told += f". {why(playing.run_id).sentence} The end of a worker's log: {' | '.join(log[-5:])}"
        return f"{told}. Only a workflow whose run completes can be certified."

    def _counted(self, one: _Playing) -> dict[str, int]:
        after = target.count(self._options.counter, one.run_id)
        return {name: number - one.before.get(name, 0) for name, number in after.items()}

    def _report(self, measure: Measure, played: list[_Playing]) -> Report:
        records, reads = self._stack.notebook.read(), self._reads()
        expected = measure.witnessed(reads)
        return Report(
            workflow=self._asked.workflow.name,
            version=self._asked.workflow.version,
            seconds=0.0,
            steps=tuple(step.step_key for step in measure.steps),
            subjects=subjects(expected),
            cases=tuple(self._case(one, records, expected, reads=reads) for one in played),
            undeclared=undeclared(measure, reads),
            uncounted=uncounted(expected),
        )

    def _case(
        self, one: _Playing, records: Records, expected: Witnessed, *, reads: Sequence[str]
    ) -> Case:
        assert one.fault is not None  # noqa: S101 - only the run without faults has none
        seen = observing.effects(one.run_id)
        known = {effect.name: effect.subject for effect in seen}
        witnessed = Witnessed(
            subjects_of(records.of(one.run_id), known, reads=reads),
            seen,
            self._counted(one),
            observing.blocked_steps(one.run_id),
        )
        return Case(
            fault=one.fault, run_id=one.run_id, fired=one.run_id in records.fired, rested=not one.stuck,
            state=one.standing.state, reason=one.standing.reason,
            seconds=round((one.ended or time.monotonic()) - one.began, 1),
            sightings=sightings(witnessed, expected, standing=one.standing),
        )  # fmt: skip

    def _reads(self) -> tuple[str, ...]:
        """Without their scheme, as the recorder writes addresses down."""
        return tuple(
            parts.netloc + parts.path
            for parts in map(urlsplit, (*self._stack.reads, *self._options.reads))
        )


def _tell(say: Callable[[str], None], event: ProcessEvent) -> None:
    """No fault here ends a whole worker: one that ends has a reason of its own."""
    if is_news(event):
        say(str(event))
