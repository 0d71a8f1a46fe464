"""Effects of whole clusters as tests of look-ups want them: killed at will, and their story."""

import os
import signal
from typing import Any

from models import database
from models.settings import settings
from tests.support.invariants import check_invariants
from tests.support.waiting import wait_until
from tests.support.world import World

#: Pauses so short that several looks take seconds; a silent sender is believed gone after a few.
QUICK = {
    "ONWARD_SEND_WINDOW": "1", "ONWARD_TOOL_TIMEOUT": "5", "ONWARD_LOOK_PAUSE": "0.3",
    "ONWARD_LOOK_PAUSE_MAX": "1", "ONWARD_LOOKUP_TIME_LIMIT": "2", "ONWARD_PRESUME_DEAD_AFTER": "600",
}  # fmt: skip


def kill_holder(world: World, run_id: str, number: signal.Signals = signal.SIGKILL) -> int:
    """Send a signal to the process that holds a step of the run; its pid."""
    pid = world.holder(run_id)
    os.kill(pid, number)
    return pid


def effects(run_id: str) -> list[dict[str, Any]]:
    """A run's effects as the view shows them, in the order they were made."""
    columns = ("tool", "state", "source", "sends", "checks", "person", "error", "result", "token")
    rows = database.fetch(
        "SELECT tool, state, source, sends, checks, person, error, result, token FROM effects"
        " WHERE run_id = %(id)s ORDER BY created_at",
        {"id": run_id},
    )
    return [dict(zip(columns, row, strict=True)) for row in rows]


def only_effect(run_id: str) -> dict[str, Any]:
    (found,) = effects(run_id)
    return found


def wait_effect(world: World, run_id: str, state: str, *, timeout: float = 20.0) -> None:
    """Wait until the run's one effect is in this state."""
    wait_until(
        lambda: [one["state"] for one in effects(run_id)] == [state],
        timeout=timeout,
        what=f"the effect of {run_id} is {state}",
        details=lambda: f"{effects(run_id)}\n{world.history(run_id)}",
    )


def told(world: World, run_id: str) -> list[str]:
    """What happened to the run's effects, as its history has it."""
    return [kind for kind, _, _ in world.events(run_id) if kind.startswith("effect_")]


def check(run_id: str) -> None:
    """The run is at rest, and every promise held."""
    check_invariants(settings().database_url, run_id)
