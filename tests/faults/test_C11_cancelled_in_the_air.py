"""C11: a run is cancelled while its second step is in the air: order placed, answer on its way."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from models import database
from models.journal import resolving
from models.journal.values import Wakeup
from models.settings import settings
from ops import client
from ops.undoing import preview
from recovery.sweep import sweep_once
from tasks.publishing import publish
from tests.support.in_the_air import SOON, caught, effect_of, happened_once, kill_holder
from tests.support.invariants import check_invariants
from tests.support.waiting import wait_until
from tests.support.world import World

QUEUE = "steps.ledgered@1"


@pytest.fixture(scope="module")
def world(make_world: Callable[..., AbstractContextManager[World]]) -> Iterator[World]:
    with make_world(agents="tests.agents.ledgered", env=SOON) as world:
        world.cluster.up()
        yield world


def _send_third_step(world: World, run_id: str) -> None:
    """Its message is with the broker though nothing has released it."""
    publish(world.app, [Wakeup(run_id, "0", "report", "ledgered.report", QUEUE, attempt=1)])


def _cancellation(run_id: str) -> tuple[object, ...]:
    row = database.fetch_one(
        "SELECT cancellation_id, cancelled_by, cancel_reason FROM run WHERE run_id = %(id)s",
        {"id": run_id},
    )
    assert row is not None
    return tuple(row)


def _let_it_end(world: World, run_id: str, name: str, how: str) -> None:
    """The answer comes, or is lost on its way, or finds nobody to hear it."""
    if how == "killed":
        kill_holder(world, run_id)
    else:
        assert world.fx.release(name) == 1


@pytest.mark.parametrize("how", ["answered", "dropped", "killed"])
def test_C11_cancelled_with_an_order_in_the_air(world: World, how: str) -> None:
    name = f"cancelled-{how}"
    if how == "dropped":
        world.fx.fault(name, "drop_response")
    run_id = caught(world, name, "after")
    _send_third_step(world, run_id)
    first = client.cancel(run_id, by="ada", reason="wrong customer")
    second = client.cancel(run_id, by="bob", reason="me too")
    _let_it_end(world, run_id, name, how)
    world.wait_run(run_id, "cancelled")
    third = client.cancel(run_id, by="cy", reason="still there?")
    _send_third_step(world, run_id)
    for _ in range(2):
        sweep_once(world.app)
    wait_until(lambda: world.queue_length(QUEUE) == 0, what="every message was taken")

    assert first.first
    for again in (second, third):
        assert (again.first, again.cancellation_id) == (False, first.cancellation_id)
    assert _cancellation(run_id) == (first.cancellation_id, "ada", "wrong customer")
    assert world.state(run_id) == "cancelled"
    assert world.bodies(run_id, "report") == 0
    assert world.bodies(run_id, "order") == 1
    _is_known_for_what_it_did(world, run_id, name, how)
    check_invariants(settings().database_url, run_id)
    client.compensate(run_id, by="ada", reason="wrong customer")
    world.wait_run(run_id, "compensated")
    assert (world.fx.effects(name), world.fx.deletes(name)) == (0, 1)


def _is_known_for_what_it_did(world: World, run_id: str, name: str, how: str) -> None:
    """The step is neither running nor a step that did nothing, and its order can be undone."""
    happened_once(world, name)
    effect = effect_of(run_id)
    assert effect.state == "settled"
    assert effect.source == ("answer" if how == "answered" else "lookup")
    assert effect.value["resource_id"] == world.fx.resources(name)[0]["id"]
    assert world.step(run_id, "order").state == ("completed" if how == "answered" else "cancelled")
    assert [line.key for line in preview(run_id).undo] == [effect.key]


def test_C11_what_nobody_can_ask_about_holds_the_cancellation_up(world: World) -> None:
    """It is not called cancelled while nobody knows what it did; with a person's word it is."""
    run_id = caught(world, "cancelled-blind", "after", tool="blind")
    client.cancel(run_id, by="ada", reason="wrong customer")
    kill_holder(world, run_id)
    world.wait_run(run_id, "blocked")
    assert effect_of(run_id).state == "unknown"
    assert [line.key for line in preview(run_id).asked_first] == [effect_of(run_id).key]
    happened_once(world, "cancelled-blind")

    resolving.found(
        effect_of(run_id).key, external_id="res-x", result='{"resource_id":"res-x"}', by="bob",
        reason="it is there",
    )  # fmt: skip
    world.wait_run(run_id, "cancelled")
    assert world.bodies(run_id, "order") == 1
    assert _cancellation(run_id)[1:] == ("ada", "wrong customer")
    check_invariants(settings().database_url, run_id)
