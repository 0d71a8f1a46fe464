"""Untracked steps with a look-up of their own, on real workers that are killed in them."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from tests.support.reconciling import QUICK, check, effects, kill_holder
from tests.support.world import World


@pytest.fixture(scope="module")
def world(make_world: Callable[..., AbstractContextManager[World]]) -> Iterator[World]:
    with make_world(agents="tests.agents.reconciling", env=QUICK) as world:
        world.cluster.up(workers=1, concurrency=3)
        yield world


def test_done_and_its_owner_killed_the_step_is_completed_and_not_repeated(world: World) -> None:
    world.fx.hold("raw-done", "after")
    run_id = world.start("desk", intent="raw-done", by="raw")
    world.fx.wait_held("raw-done")
    kill_holder(world, run_id)
    world.wait_run(run_id)
    assert world.bodies(run_id, "raw") == 1
    assert (world.fx.calls("raw-done"), world.fx.effects("raw-done")) == (1, 1)
    assert effects(run_id) == []
    assert world.value(run_id, "report") == f"reported {world.value(run_id, 'raw')}"
    told = [kind for kind, step_key, _ in world.events(run_id) if step_key == "raw"]
    assert told == ["lease_died", "step_look_begun", "step_looked"]
    check(run_id)


def test_not_done_the_step_runs_again(world: World) -> None:
    world.fx.fault("raw-lost", "drop_request")
    world.fx.hold("raw-lost", "before")
    run_id = world.start("desk", intent="raw-lost", by="raw")
    world.fx.wait_held("raw-lost")
    kill_holder(world, run_id)
    world.fx.release("raw-lost")
    world.wait_run(run_id)
    assert world.bodies(run_id, "raw") == 2
    assert world.fx.effects("raw-lost") == 1
    check(run_id)


def test_where_nobody_can_tell_a_person_decides(world: World) -> None:
    world.fx.hold("raw-two", "after")
    run_id = world.start("desk", intent="raw-two", by="raw")
    world.fx.wait_held("raw-two")
    world.fx.make("raw-two")
    kill_holder(world, run_id)
    world.wait_run(run_id, "blocked")
    seen = world.step(run_id, "raw")
    assert seen.block_reason == "untracked_step"
    assert "there are 2 of them" in str(seen.error)
    assert world.fx.calls("raw-two") == 1


@pytest.mark.parametrize("temper", ["raises", "hangs", "kills"])
def test_its_look_up_takes_nobody_down(world: World, temper: str) -> None:
    intent = f"raw-{temper}"
    world.fx.hold(intent, "after")
    run_id = world.start("desk", intent=intent, by="raw", temper=temper)
    world.fx.wait_held(intent)
    kill_holder(world, run_id)
    world.wait_run(run_id, timeout=60)
    assert world.bodies(run_id, "raw") == 1
    assert (world.fx.calls(intent), world.fx.effects(intent)) == (1, 1)
    check(run_id)
