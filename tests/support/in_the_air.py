"""A run's effects as the journal shows them while their owners are hurt, and what hurts them."""

import os
import signal
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from models import database
from models.values import decode
from tests.support.waiting import wait_until
from tests.support.world import World

#: So that what was lost is looked for at once, and what never left is believed absent within seconds.
SOON = {"ONWARD_LOOK_PAUSE": "0.3", "ONWARD_SEND_WINDOW": "2"}


@dataclass(frozen=True, slots=True)
class EffectSeen:
    """One effect, open or settled."""

    key: str
    state: str
    source: str | None
    sends: int
    token: int
    person: str | None
    result: str | None

    @property
    def value(self) -> Any:
        """The recorded result, as structures."""
        return decode(self.result or "null")


def effects_of(run_id: str) -> list[EffectSeen]:
    """Every effect of a run, oldest first."""
    rows = database.fetch(
        "SELECT key, state, source, sends, token, person, result FROM effects WHERE run_id = %(id)s"
        " AND effect_class <> 'pure' ORDER BY created_at",
        {"id": run_id},
    )
    return [EffectSeen(*row) for row in rows]


def effect_of(run_id: str) -> EffectSeen:
    """The only effect of a run."""
    (one,) = effects_of(run_id)
    return one


def start_armed(world: World, armed: str, *, concurrency: int = 2) -> None:
    """Start ``worker-1`` with failpoints armed, and what recovers without any, all at once."""
    services = world.cluster.services
    hurt = replace(services, environment={**world.cluster.env, "ONWARD_FAILPOINTS": armed})
    world.cluster.start_together(
        services.control_worker(), services.beat(), hurt.worker("worker-1", concurrency=concurrency)
    )


def deaths(world: World, name: str = "worker-1") -> int:
    """How many children this worker's main process has seen die of SIGKILL."""
    return world.cluster.logs(name).count("exited with 'signal 9 (SIGKILL)'")


def wait_effect(run_id: str, state: str, *, timeout: float = 20.0) -> EffectSeen:
    """Wait until the only effect of a run has this state."""
    return wait_until(
        lambda: next((one for one in effects_of(run_id) if one.state == state), None),
        timeout=timeout,
        what=f"the effect of {run_id} is {state}",
        details=lambda: str(effects_of(run_id)),
    )


def wait_looked(world: World, run_id: str) -> None:
    """Wait until a look-up has found nothing that can be believed."""
    wait_until(
        lambda: any("nothing is there" in one[2] for one in world.events(run_id, "effect_looked")),
        timeout=20,
        what=f"the effect of {run_id} was looked up, and nothing was there",
        details=lambda: world.history(run_id),
    )


def caught(world: World, name: str, where: Any, *, workflow: str = "ledgered", **given: object) -> str:  # fmt: skip
    """A run whose request the outside world holds before or after its effect."""
    world.fx.hold(name, where)
    run_id = world.start(workflow, name=name, **given)
    world.fx.wait_held(name)
    return run_id


def kill_holder(world: World, run_id: str) -> None:
    """SIGKILL the process that holds a step of this run, which is no main process of a worker."""
    pid = world.holder(run_id)
    assert pid not in world.cluster.pids.values()
    os.kill(pid, signal.SIGKILL)


def pause(pid: int) -> None:
    """SIGSTOP, and wait until it stands still."""
    os.kill(pid, signal.SIGSTOP)
    wait_paused(pid)


def wait_paused(pid: int) -> None:
    stat = Path(f"/proc/{pid}/stat")
    wait_until(
        lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", what=f"{pid} is paused"
    )


def rearm(point: str) -> None:
    """Let a failpoint fire once more."""
    (Path(os.environ["ONWARD_FAILPOINT_DIR"]) / point).unlink(missing_ok=True)


def disarm(point: str) -> None:
    """Let a failpoint fire no more."""
    (Path(os.environ["ONWARD_FAILPOINT_DIR"]) / point).touch()


def happened_once(world: World, name: str, *, calls: int = 1) -> None:
    """As the outside world counts it."""
    assert (world.fx.calls(name), world.fx.made(name)) == (calls, 1)
    assert len(world.fx.keys(name)) == 1
