"""C24, of those who look up: killed after the look, killed after writing it down, and three of them at once."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from models import database
from models.settings import settings
from recovery import sending
from tests.support.in_the_air import (
    SOON,
    caught,
    deaths,
    disarm,
    effect_of,
    happened_once,
    kill_holder,
    rearm,
    start_armed,
)
from tests.support.invariants import check_invariants
from tests.support.waiting import wait_until
from tests.support.world import World

ARMED = "S3:kill,S4:kill"
LOOKERS = ("worker-1", "worker-2", "worker-3")
MESSAGES = 9


@pytest.fixture(scope="module")
def world(make_world: Callable[..., AbstractContextManager[World]]) -> Iterator[World]:
    """Look-ups run where the tools are: in the workers of steps."""
    with make_world(agents="tests.agents.ledgered", env=SOON) as world:
        start_armed(world, ARMED, concurrency=1)
        yield world


@pytest.mark.parametrize("how", ["in the air", "its own tool"])
def test_C24_c_killed_after_the_look_and_after_writing_it_down(world: World, how: str) -> None:
    for point in ("S3", "S4"):
        rearm(point)
    before = deaths(world)
    run_id = _lose_the_answer(world, how)
    for point in ("S3", "S4"):
        world.wait_fired(point)
    world.wait_run(run_id)

    name = how.replace(" ", "-")
    assert deaths(world) - before == (3 if how == "in the air" else 2)
    happened_once(world, name)
    assert world.fx.lookups(name) == 2, "the look that nobody wrote down, and one more"
    effect = effect_of(run_id)
    assert (effect.state, effect.source, effect.sends) == ("settled", "lookup", 1)
    looked = [detail for _, _, detail in world.events(run_id, "effect_looked")]
    assert len(looked) == 1
    assert "process is gone" in looked[0]
    assert world.attempts(run_id) == {"prepare": 1, "order": 2, "report": 1}
    check_invariants(settings().database_url, run_id)


def _lose_the_answer(world: World, how: str) -> str:
    """A run whose order was placed and whose sender is dead, or has been told nothing of it."""
    name = how.replace(" ", "-")
    if how == "in the air":
        run_id = caught(world, name, "after")
        kill_holder(world, run_id)
        return run_id
    world.fx.fault(name, "drop_response")
    return world.start("ledgered", name=name)


def test_C24_a_three_reconcilers_look_once(world: World) -> None:
    for point in ("S3", "S4"):
        disarm(point)
    world.fx.hold("three", "before", on="lookup", times=MESSAGES)
    world.fx.fault("three", "drop_response")
    services = world.cluster.services
    world.cluster.start_together(*(services.worker(name, concurrency=1) for name in LOOKERS[1:]))
    run_id = world.start("ledgered", name="three")
    world.fx.wait_held("three")
    key, queue = _effect(run_id)
    job = sending.look_up(run_id, key, queue)
    seen = _looks_ended(world)
    assert sending.send(world.app, [job] * MESSAGES) == MESSAGES
    wait_until(
        lambda: _looks_ended(world) >= seen + MESSAGES,
        timeout=20,
        what="the other two have taken every other message, and found somebody at it",
    )
    assert world.fx.held("three") == 1
    assert world.fx.lookups("three") == 1
    world.fx.release("three")
    world.wait_run(run_id)

    happened_once(world, "three")
    assert world.fx.lookups("three") == 1
    assert world.attempts(run_id) == {"prepare": 1, "order": 2, "report": 1}
    assert len(world.events(run_id, "effect_settled")) == 1
    assert len(world.events(run_id, "step_requeued")) == 1
    check_invariants(settings().database_url, run_id)


def _effect(run_id: str) -> tuple[str, str]:
    row = database.fetch_one("SELECT key, queue FROM effect WHERE run_id = %(id)s", {"id": run_id})
    assert row is not None
    return row[0], row[1]


def _looks_ended(world: World) -> int:
    logs = "".join(world.cluster.logs(name) for name in LOOKERS)
    return sum("recovery.reconcile[" in line and "succeeded" in line for line in logs.splitlines())
