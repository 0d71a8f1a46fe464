"""SIGKILL at every instant of a step, in hop and in sticky mode; the outside world counts what happened."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

import pytest

from models.failpoints import FailPoint
from models.settings import settings
from ops.testing.outside.client import Where
from tests.support.invariants import check_invariants
from tests.support.waiting import wait_until
from tests.support.world import World

MODES = ("hop", "sticky")
POINTS = tuple(point.value for point in FailPoint if point.startswith("P"))
#: Held by the outside service before or after its effect, and killed from outside.
IN_THE_BODY: dict[str, Where] = {"P2": "before", "P3": "after"}
#: How often `charge` is claimed, and requested from the outside world, after one kill at it.
CHARGED = {
    "P0": (1, 1), "P1": (2, 1), "P2": (2, 2), "P3": (2, 2), "P4": (2, 2), "P5": (1, 1), "P6": (1, 1),
    "P7": (1, 1),
}  # fmt: skip
#: From here on the result is committed, which in place claims `report` as well.
COMMITTED = ("P5", "P6", "P7")


@dataclass(frozen=True)
class Here:
    """A world in one of the modes."""

    mode: str
    world: World

    def attempts(self, point: str) -> dict[str, int]:
        """What one kill at ``point`` leaves in the journal."""
        again = self.mode == "sticky" and point in COMMITTED
        return {"prepare": 1, "charge": CHARGED[point][0], "report": 2 if again else 1}


@pytest.fixture(scope="module", params=MODES)
def here(
    request: pytest.FixtureRequest, make_world: Callable[..., AbstractContextManager[World]]
) -> Iterator[Here]:
    sticky = request.param == "sticky"
    # In place there is no message before `charge`, so nothing to be killed with it.
    targets = {point: "charge" for point in POINTS} | ({"P0": "prepare"} if sticky else {})
    armed = ",".join(
        f"{point}:kill@kill-{point}.{step}"
        for point, step in targets.items()
        if point not in IN_THE_BODY
    )
    with make_world(agents="tests.agents.effects", env={"ONWARD_STICKY": str(sticky)}) as world:
        world.cluster.recovery()
        world.cluster.worker(env={"ONWARD_FAILPOINTS": armed})
        yield Here(request.param, world)


@pytest.mark.parametrize("point", POINTS)
def test_kill_anywhere(here: Here, point: str) -> None:
    world, intent = here.world, f"{here.mode}-{point}"
    deaths = world.cluster.logs("worker-1").count("signal 9 (SIGKILL)")
    if point in IN_THE_BODY:
        run_id = _kill_in_the_body(world, intent, point)
    else:
        run_id = world.start(f"kill-{point}", intent=intent)
        world.wait_fired(point)
    before = world.results(run_id)

    world.wait_run(run_id)
    world.fx.release(intent)  # the request of the dead attempt lands now, after everything

    calls = CHARGED[point][1]
    wait_until(
        lambda: world.fx.calls(intent) == calls, what=f"{intent} was requested {calls} times"
    )
    assert world.fx.effects(intent) == 1
    assert len(world.fx.keys(intent)) == 1
    assert world.attempts(run_id) == here.attempts(point)
    assert (
        world.value(run_id, "report")["resource_id"] == world.value(run_id, "charge")["resource_id"]
    )
    check_invariants(settings().database_url, run_id, before=before)
    wait_until(
        lambda: world.cluster.logs("worker-1").count("signal 9 (SIGKILL)") > deaths,
        what="the parent saw its child die of SIGKILL",
    )


def _kill_in_the_body(world: World, intent: str, point: str) -> str:
    world.fx.hold(intent, IN_THE_BODY[point])
    run_id = world.start(f"kill-{point}", intent=intent)
    world.fx.wait_held(intent)
    assert world.fx.effects(intent) == (1 if point == "P3" else 0)
    pid = world.holder(run_id)
    assert pid != world.cluster.pids["worker-1"]
    os.kill(pid, signal.SIGKILL)
    return run_id
