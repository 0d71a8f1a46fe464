"""C05: one long step whose message the broker hands out again and again, in two workers."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from models.ids import task_id
from models.journal.values import Wakeup
from models.settings import settings
from ops.testing.outside.client import Where
from tasks.publishing import publish
from tests.support.in_the_air import SOON, caught, happened_once
from tests.support.invariants import check_invariants
from tests.support.waiting import wait_until
from tests.support.world import World

QUEUE = "steps.ledgered@1"
#: Redis hands an unacked message out again after this long, and looks every second.
REDELIVERY = {"ONWARD_VISIBILITY_TIMEOUT": "1"}
SURPLUS_TIME = 1.0  #: seconds within which a surplus copy must be gone, journal and broker


@pytest.fixture(scope="module")
def world(make_world: Callable[..., AbstractContextManager[World]]) -> Iterator[World]:
    with make_world(agents="tests.agents.ledgered", env=SOON | REDELIVERY) as world:
        world.cluster.up(workers=2, concurrency=2)
        yield world


def _copy(run_id: str) -> Wakeup:
    return Wakeup(run_id, "0", "order", "ledgered.order", QUEUE, attempt=1)


def _unacked(world: World, run_id: str) -> int:
    """Messages of this run that some worker holds, as the broker knows it."""
    held = world.broker.hvals(f"{settings().key_prefix}unacked")
    return sum(run_id.encode() in message for message in held)


def _start_long_step(world: World, name: str, where: Where) -> str:
    run_id = caught(world, name, where)
    wait_until(
        lambda: world.duplicates(run_id) == 1,
        timeout=15,
        what="the broker handed the message out again, and the copy was dropped",
    )
    wait_until(lambda: _unacked(world, run_id) == 0, timeout=1, what="the copy was acked")
    return run_id


def test_C05_one_long_step_delivered_again_and_again(world: World) -> None:
    run_id = _start_long_step(world, "long", "before")
    before = world.step(run_id, "order")
    assert (before.state, before.attempt, before.token) == ("running", 1, 2)

    publish(world.app, [_copy(run_id), _copy(run_id)])
    wait_until(
        lambda: world.duplicates(run_id) == 3 and _unacked(world, run_id) == 0,
        timeout=SURPLUS_TIME,
        what="both copies were dropped and acked",
    )
    assert world.step(run_id, "order") == before, "a copy touched lease, attempt or state"
    assert world.queue_length(QUEUE) == 0

    world.fx.release("long")
    world.wait_run(run_id)
    publish(world.app, [_copy(run_id)])  # once more, after the end
    wait_until(
        lambda: world.duplicates(run_id) == 4 and _unacked(world, run_id) == 0,
        timeout=SURPLUS_TIME,
        what="the late copy was dropped and acked",
    )

    assert world.bodies(run_id, "order") == 1
    happened_once(world, "long")
    assert world.bodies(run_id, "report") == 1
    assert world.value(run_id, "report") == world.value(run_id, "order")["resource_id"]
    sent = f"{task_id(run_id, 'report', 1)}] received"
    received = [world.cluster.logs(name).count(sent) for name in ("worker-1", "worker-2")]
    assert sum(received) == 1, "the next step was enqueued more than once"
    check_invariants(settings().database_url, run_id)


def test_C05_the_owner_dies_when_no_message_of_the_step_is_left(world: World) -> None:
    run_id = _start_long_step(world, "orphaned", "after")
    assert world.queue_length(QUEUE) == 0
    owner = str(world.step(run_id, "order").worker).partition("@")[0]
    world.cluster.kill(owner)

    limit = settings().lease_ttl + 2 * settings().sweep_period  # I5
    wait_until(
        lambda: world.step(run_id, "order").attempt == 2,
        timeout=limit + settings().wake_period + 1,
        what="the step is recovered from the journal alone",
    )
    world.wait_run(run_id)
    assert world.attempts(run_id) == {"prepare": 1, "order": 2, "report": 1}
    happened_once(world, "orphaned")
    check_invariants(settings().database_url, run_id)
