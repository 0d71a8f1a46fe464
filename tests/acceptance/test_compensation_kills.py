"""Doers of a compensation that are killed at every instant of an undo, counted by the outside world."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from models import database
from models.settings import settings
from ops import client
from recovery.verify import verify
from tests.support.invariants import check_invariants
from tests.support.world import World

#: How each undo is known to have happened after one kill at the point.
SOURCES = {
    "E1": ["answer", "answer", "answer"],  # never sent: looked up, not undone, sent again
    "E4": ["lookup", "answer", "answer"],  # sent, and the answer lost
    "E5": ["answer", "answer", "answer"],  # recorded, and nobody heard
    "E6": ["answer", "answer", "answer"],
    "S3": ["lookup", "answer", "answer"],  # looked up, and the finding lost with its process
}


@pytest.fixture(scope="module")
def world(make_world: Callable[..., AbstractContextManager[World]]) -> Iterator[World]:
    env = {"ONWARD_LOOK_PAUSE": "0.3", "ONWARD_SEND_WINDOW": "1", "ONWARD_LOOKUP_TIME_LIMIT": "5"}
    with make_world(agents="tests.agents.undoing", env=env) as world:
        world.cluster.recovery()
        yield world


def failed(world: World, trip: str) -> str:
    run_id = world.start("trip", trip=trip)
    world.wait_run(run_id, "failed")
    assert len(world.fx.all_effects(f"{trip}-")) == 3
    return run_id


def undone_once(world: World, run_id: str, trip: str) -> None:
    world.wait_run(run_id, "compensated", timeout=90)
    assert world.fx.all_effects(f"{trip}-") == {}
    kinds = [(one["kind"], one["name"]) for one in world.fx.requests(f"{trip}-")]
    deletes = [name.removeprefix(f"{trip}-") for kind, name in kinds if kind == "delete"]
    assert deletes == ["room", "hotel", "flight"]
    check_invariants(settings().database_url, run_id)
    assert verify(run_id) == []


def sources(run_id: str) -> list[str]:
    rows = database.fetch(
        "SELECT source FROM effect_settlement WHERE run_id = %(id)s AND undoes IS NOT NULL ORDER BY position",
        {"id": run_id},
    )
    return [row[0] for row in rows]


@pytest.mark.parametrize("point", SOURCES)
def test_killed_around_an_undo_it_happens_once(world: World, point: str) -> None:
    trip = f"killed-{point}"
    armed = f"{point}:kill" if point == "S3" else f"{point}:kill@undo.desk.book"
    world.cluster.worker(f"worker-{point}", env={"ONWARD_FAILPOINTS": armed})
    run_id = failed(world, trip)
    if point == "S3":
        world.fx.fault(f"{trip}-room", "drop_response", on="delete")
    client.compensate(run_id, by="ada", reason="no more")
    world.wait_fired(point)
    undone_once(world, run_id, trip)
    assert sources(run_id) == SOURCES[point]
    world.cluster.kill(f"worker-{point}")


def test_a_whole_worker_killed_in_an_undo_is_taken_over_by_another(world: World) -> None:
    world.cluster.worker("worker-first")
    run_id = failed(world, "whole")
    world.fx.hold("whole-hotel", "after", on="delete")
    client.compensate(run_id, by="ada", reason="no more")
    world.fx.wait_held("whole-hotel")
    world.cluster.kill("worker-first")
    world.cluster.worker("worker-second")
    world.fx.release("whole-hotel")
    undone_once(world, run_id, "whole")
    assert sources(run_id) == ["answer", "lookup", "answer"]
