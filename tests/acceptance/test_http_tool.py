"""HTTP tools in real workers: the answer is lost, late, an error or held up, and the order is made once."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from models.settings import settings
from tests.support.invariants import check_invariants
from tests.support.world import World


@pytest.fixture(scope="module")
def world(make_world: Callable[..., AbstractContextManager[World]]) -> Iterator[World]:
    with make_world(agents="tests.agents.http_tools", env={"ONWARD_LOOK_PAUSE": "0.3"}) as world:
        world.cluster.recovery()
        world.cluster.worker()
        yield world


def finished(world: World, run_id: str, name: str) -> None:
    """The run has ended well, knows the one order there is, and sent it with one key."""
    world.wait_run(run_id, timeout=60)
    [resource] = world.fx.resources(name)
    assert world.value(run_id, "order")["id"] == resource["id"]
    assert len(world.fx.keys(name)) == 1
    check_invariants(settings().database_url, run_id)


@pytest.mark.parametrize(
    ("fault", "options"),
    [
        ("drop_response", {}),
        ("5xx_after_apply", {"status": 502}),
        ("garbled", {}),
        ("apply_delay", {"seconds": 2.0}),  # lands after its caller gave up
        ("apply_delay", {"seconds": 2.0, "connection": "cut"}),
    ],
)
def test_C28_what_may_have_happened_is_looked_up_and_not_sent_again(
    world: World, fault: Any, options: dict[str, Any]
) -> None:
    name = f"open-{fault}-{options.get('connection', '')}"
    world.fx.fault(name, fault, **options)
    run_id = world.start("http-order", name=name)
    finished(world, run_id, name)
    assert world.fx.calls(name) == 1
    assert world.fx.lookups(name) >= 1


def test_what_certainly_did_not_happen_is_sent_again_with_the_same_key(world: World) -> None:
    world.fx.fault("refused", "429", times=2, retry_after=1)
    run_id = world.start("http-order", name="refused")
    finished(world, run_id, "refused")
    assert (world.fx.calls("refused"), world.fx.lookups("refused")) == (3, 0)


def test_what_is_nowhere_to_be_found_is_sent_again_when_nothing_can_land_any_more(
    world: World,
) -> None:
    world.fx.fault("nowhere", "drop_request")
    run_id = world.start("http-order", name="nowhere")
    finished(world, run_id, "nowhere")
    assert world.fx.calls("nowhere") == 2
    sent = [one["at"] for one in world.fx.requests("nowhere") if one["kind"] == "plain"]
    assert sent[1] - sent[0] >= 4, "request lifetime and consistency window"


def test_killed_while_the_answer_is_on_its_way(world: World) -> None:
    for place in range(60):
        world.fx.make("killed", key=f"somebody-elses-{place}")  # its order is on the second page
    world.fx.hold("killed", "after")
    run_id = world.start("http-order", name="killed")
    world.fx.wait_held("killed")
    os.kill(world.holder(run_id), signal.SIGKILL)
    world.wait_run(run_id, timeout=60)
    world.fx.release("killed")
    assert world.fx.calls("killed") == 1
    assert world.value(run_id, "order")["id"] == world.fx.resources("killed")[-1]["id"]
    check_invariants(settings().database_url, run_id)


def test_a_renamed_order_that_is_not_ready_is_waited_for(world: World) -> None:
    world.fx.fault("slow", "drop_response")
    world.fx.fault("slow", "hidden", seconds=1)
    world.fx.fault("slow", "provisioning", seconds=3)
    run_id = world.start("http-order", name="slow")
    finished(world, run_id, "slow")
    assert (world.fx.calls("slow"), world.fx.effects("slow")) == (1, 1)
    assert any("not ready yet" in one[2] for one in world.events(run_id, "effect_looked"))


def test_C28_a_read_back_that_fails_is_retried_alone(world: World) -> None:
    world.fx.fault("read", "429", on="lookup", times=2, retry_after=1)
    run_id = world.start("http-order-and-read", name="read")
    world.wait_run(run_id)
    assert world.value(run_id, "order_and_read") == {
        "id": world.fx.resources("read")[0]["id"], "status": "ready",
    }  # fmt: skip
    assert (world.fx.calls("read"), world.fx.lookups("read")) == (1, 3)
    assert world.bodies(run_id) == 3
    check_invariants(settings().database_url, run_id)


def test_an_order_is_undone_over_http_when_the_run_fails(world: World) -> None:
    world.fx.fault("undone", "drop_response", on="delete")
    run_id = world.start("http-undone", name="undone")
    world.wait_run(run_id, "compensated", timeout=60)
    assert (world.fx.made("undone"), world.fx.effects("undone")) == (1, 0)
    assert world.fx.deletes("undone") == 1, "its lost answer is looked up"
    check_invariants(settings().database_url, run_id)
