"""Look-ups that hang, raise, exit or end their process, on real workers; and lost workers and messages."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from models import database
from recovery.watch import why
from tests.support.reconciling import QUICK, check, kill_holder, only_effect, told, wait_effect
from tests.support.waiting import wait_until
from tests.support.world import World

QUEUE = "steps.desk@1"


@pytest.fixture(scope="module")
def world(make_world: Callable[..., AbstractContextManager[World]]) -> Iterator[World]:
    with make_world(agents="tests.agents.reconciling", env=QUICK) as world:
        world.cluster.recovery()
        yield world


@pytest.fixture(autouse=True)
def _workers_end(world: World) -> Iterator[None]:
    yield
    for name in [name for name in world.cluster.pids if name.startswith("worker")]:
        world.cluster.kill(name)


def lost(world: World, intent: str, **given: str) -> str:
    """A run whose effect was applied, and whose sender is dead."""
    world.fx.hold(intent, "after")
    run_id = world.start("desk", intent=intent, **given)
    world.fx.wait_held(intent)
    kill_holder(world, run_id)
    return run_id


@pytest.mark.parametrize(
    ("temper", "said"),
    [
        ("raises", "the desk does not answer"),
        ("exits", "SystemExit: 3"),
        ("dozes", "longer than 2 s"),
        ("hangs", "process is gone"),
        ("kills", "process is gone: Worker exited prematurely: signal 9"),
    ],
)
def test_a_look_up_takes_nobody_down(world: World, temper: str, said: str) -> None:
    pid = world.cluster.worker("worker-a", concurrency=3)
    run_id = lost(world, temper, temper=temper)
    healthy = [world.start("desk", intent=f"{temper}-healthy-{number}") for number in range(6)]
    world.wait_runs(healthy)
    world.wait_run(run_id)
    assert world.cluster.pids["worker-a"] == pid
    looked = [detail for _, _, detail in world.events(run_id, "effect_looked")]
    assert any(said in detail for detail in looked), looked
    found = only_effect(run_id)
    assert (found["state"], found["source"]) == ("settled", "lookup")
    assert (world.fx.calls(temper), world.fx.effects(temper)) == (1, 1)
    check(run_id)


def test_killed_between_the_look_and_the_writing_of_it(world: World) -> None:
    """C24, S3: the next look finishes it, and nothing is created a second time."""
    world.cluster.worker("worker-a", env={"ONWARD_FAILPOINTS": "S3:kill"})
    run_id = lost(world, "s3")
    world.wait_fired("S3")
    world.wait_run(run_id)
    assert (world.fx.calls("s3"), world.fx.effects("s3")) == (1, 1)
    assert world.fx.lookups("s3") >= 2
    assert told(world, run_id)[-1] == "effect_settled"
    check(run_id)


def test_a_whole_worker_is_killed_and_another_asks(world: World) -> None:
    world.cluster.worker("worker-a", concurrency=1)
    world.fx.hold("whole", "after")
    run_id = world.start("desk", intent="whole")
    world.fx.wait_held("whole")
    world.cluster.kill("worker-a")
    wait_effect(world, run_id, "unknown")
    reason = why(run_id)
    assert reason.word in ("unknown_effect", "no_worker")
    assert "desk.order" in reason.sentence
    world.cluster.worker("worker-b", concurrency=1)
    world.wait_run(run_id)
    assert (world.fx.calls("whole"), world.fx.effects("whole")) == (1, 1)
    check(run_id)


def test_a_message_that_the_broker_forgot_is_sent_again(world: World) -> None:
    world.cluster.worker("worker-a", concurrency=1)
    world.fx.hold("forgotten", "after")
    run_id = world.start("desk", intent="forgotten")
    world.fx.wait_held("forgotten")
    world.cluster.kill("worker-a")
    wait_effect(world, run_id, "unknown")
    wait_until(lambda: world.queue_length(QUEUE), what="a look-up is in the queue")
    world.broker.flushdb()
    wait_until(lambda: world.queue_length(QUEUE), what="it is there again")
    world.cluster.worker("worker-b", concurrency=1)
    world.wait_run(run_id)
    assert (world.fx.calls("forgotten"), world.fx.effects("forgotten")) == (1, 1)
    check(run_id)


def test_a_tool_that_was_renamed_says_so_until_it_is_back(world: World) -> None:
    world.cluster.worker("worker-a", concurrency=1)
    world.fx.hold("renamed", "after")
    run_id = world.start("desk", intent="renamed")
    world.fx.wait_held("renamed")
    world.cluster.kill("worker-a")
    wait_effect(world, run_id, "unknown")
    _rename(run_id, "desk.renamed")
    world.cluster.worker("worker-b", concurrency=1)
    wait_until(lambda: world.events(run_id, "effect_looked"), what="it was looked up in vain")
    assert "no tool called 'desk.renamed'" in str(only_effect(run_id)["error"])
    assert "no tool called" in why(run_id).sentence
    _rename(run_id, "desk.order")
    world.wait_run(run_id)
    assert (world.fx.calls("renamed"), world.fx.effects("renamed")) == (1, 1)
    check(run_id)


def _rename(run_id: str, tool: str) -> None:
    database.fetch(
        "UPDATE effect SET tool = %(tool)s, revision = revision + 1 WHERE run_id = %(id)s",
        {"tool": tool, "id": run_id},
    )
