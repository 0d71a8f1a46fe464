"""Queues carry the version: old workers drain old runs, and new ones do not touch them."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from recovery.watch import why
from tests.support.waiting import wait_until
from tests.support.world import World


@pytest.fixture(scope="module")
def world(make_world: Callable[..., AbstractContextManager[World]]) -> Iterator[World]:
    with make_world(agents="tests.agents.versioned,tests.agents.plain") as world:
        world.cluster.recovery()
        yield world


def test_a_worker_of_another_version_leaves_a_run_alone(world: World) -> None:
    run_id = world.start("versioned")
    world.cluster.worker("new", env={"ONWARD_TEST_VERSION": "2"})
    probe = world.start("plain-one", value=1)
    world.wait_run(probe)  # the new worker works
    reason = wait_until(
        lambda: found if (found := why(run_id)).word == "no_worker" else None, what="a reason"
    )
    assert "versioned@1" in reason.sentence
    assert world.state(run_id) == "pending"
    assert world.bodies(run_id) == 0

    world.cluster.worker("old")
    world.wait_run(run_id)
    assert {one["version"] for one in world.notes(run_id)} == {"1"}
    assert set(world.attempts(run_id).values()) == {1}
