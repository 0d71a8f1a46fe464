"""Plays runs side by side, each on a thread: orders holds, submits, kills from outside, waits for rest."""

import os
import random  # noqa: TID251 - seeded: see ``kills``
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from models import database
from tests.reliability import markers
from tests.reliability.kills import BY_ITSELF, Instant, Kill, Plan
from tests.support.world import World

AT_ONCE = 14  #: runs; most of them wait for a look-up, a back-off or a new child
PATIENCE = 120.0  #: seconds for one run; what was never sent takes 17 of them to be believed absent
LOOK = 0.05  #: seconds between two looks at one run
A_MOMENT = (
    0.03  #: seconds; in which an answer that is let go is read, recorded, and the next request sent
)
LATE = 0.5  #: seconds after a death within which what was held goes on

_RESTED = """
SELECT r.state, NOT EXISTS (SELECT 1 FROM effect e WHERE e.run_id = r.run_id AND e.person IS NULL
                            AND e.state IN ('intended', 'unknown'))
FROM run r WHERE r.run_id = %(id)s"""


class Player:
    """Plays plans against one world. ``tool``: instead of that of a plan's kind."""

    def __init__(
        self, world: World, *, seed: int, say: Callable[[str], None], tool: str | None = None
    ) -> None:
        self._world, self._seed, self._say, self._tool = world, seed, say, tool
        self._submitting = threading.Lock()
        self._stopped = threading.Event()

    def play(self, plans: Sequence[Plan]) -> None:
        """All of them, some at a time. What does not rest in time is left to the judge."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            under_way = [pool.submit(self._play, plan) for plan in plans]
            try:
                for done, one in enumerate(as_completed(under_way), start=1):
                    one.result()
                    if done % 50 == 0 and done < len(plans):
                        self._say(f"{plans[0].kind}: {done} of {len(plans)} runs")
            except BaseException:
                self._stopped.set()
                pool.shutdown(cancel_futures=True)
                raise

    def _play(self, plan: Plan) -> None:
        lots = random.Random(f"{self._seed} {plan.run_id}")  # noqa: S311 - see ``kills``
        try:
            for kill in plan.kills:
                self._order(plan, kill)
            self._submit(plan)
            for kill in plan.kills:
                if not self._make(plan, kill, lots):
                    break
            self.wait_rest(plan)
        finally:
            database.close()  # of this thread

    def _submit(self, plan: Plan) -> None:
        given = {"names": plan.names, "of": self._tool or plan.kind.value}
        with self._submitting:  # one client for all threads
            self._world.submit("reliability", given, run_id=plan.run_id)

    def wait_rest(self, plan: Plan) -> bool:
        """Until it is done, or stopped with nothing that anybody is about to look up."""

        def look() -> bool:
            row = database.fetch_one(_RESTED, {"id": plan.run_id})
            state, looked = row or ("gone", False)
            return state in ("completed", "failed") or (state == "blocked" and looked)

        return self._until(look, PATIENCE)

    def _order(self, plan: Plan, kill: Kill) -> None:
        """Let the service hold what is to be killed in, before there is a request."""
        fx, name = self._world.fx, plan.name(kill.place)
        match kill.instant:
            case Instant.P2:
                fx.hold(name, "before")
            case Instant.P3:
                fx.hold(name, "after")
            case Instant.ANY:
                fx.hold(name, "after")
                fx.hold(
                    plan.name("b"), "before"
                )  # no further: the process has no other run meanwhile

    def _make(self, plan: Plan, kill: Kill, lots: random.Random) -> bool:
        """Kill, or wait until the process has killed itself; False when neither came about in time."""
        if kill.instant in BY_ITSELF:
            return self._until(lambda: markers.fired_at(plan.run_id, kill) is not None, PATIENCE)
        fx, name = self._world.fx, plan.name(kill.place)
        if not self._until(lambda: fx.held(name) > 0, PATIENCE):
            return False
        pid = self._holder(plan.run_id)
        if kill.instant is Instant.ANY:
            self._kill_at_any_moment(plan, kill, pid, delay=lots.uniform(0, A_MOMENT))
        else:
            _kill(plan.run_id, kill, pid)
            time.sleep(lots.uniform(0, LATE))
            fx.release(name)
        return True

    def _kill_at_any_moment(self, plan: Plan, kill: Kill, pid: int, *, delay: float) -> None:
        fx, following = self._world.fx, plan.name("b")
        killer = threading.Timer(delay, _kill, (plan.run_id, kill, pid))
        killer.start()
        fx.release(plan.name("a"))
        killer.join()
        fx.hold(following, "before", times=0)
        fx.release(following)

    def _holder(self, run_id: str) -> int:
        """The pool child that carries this run; it stands still in the request that is held."""
        pid = self._world.holder(run_id)
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        assert parent in self._world.cluster.pids.values(), f"{pid} is no child of a worker"
        return pid

    def _until(self, look: Callable[[], bool], timeout: float) -> bool:
        """Whether it came about in time."""
        deadline = time.monotonic() + timeout
        while not look():
            if time.monotonic() > deadline or self._stopped.wait(LOOK):
                return False
        return True


def _kill(run_id: str, kill: Kill, pid: int) -> None:
    if markers.take(run_id, kill):
        os.kill(pid, signal.SIGKILL)
