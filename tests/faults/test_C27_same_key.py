"""C27: the same key with another request, the same request in other words, and a record whose owner is dead."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from models import database
from models.settings import settings
from recovery.sweep import sweep_once
from recovery.watch import why
from tests.agents.ledgered import SPELLINGS
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
    wait_effect,
    wait_paused,
)
from tests.support.invariants import check_invariants
from tests.support.waiting import wait_until
from tests.support.world import World

ARMED = "E1:kill@ledgered-enlarged.enlarge,E4:stop@ledgered-E4.order"


@pytest.fixture(scope="module")
def world(make_world: Callable[..., AbstractContextManager[World]]) -> Iterator[World]:
    with make_world(agents="tests.agents.ledgered", env=SOON) as world:
        start_armed(world, ARMED, concurrency=len(SPELLINGS))
        yield world


def _conflicts(world: World, run_id: str) -> None:
    world.wait_run(run_id, "blocked")
    sweep_once(world.app)
    step = world.step(run_id, "enlarge")
    assert (step.state, step.block_reason) == ("failed", "idempotency_conflict")
    assert world.state(run_id) == "blocked"
    assert why(run_id).word == "idempotency_conflict"
    assert why(run_id).stuck
    assert "enlarge" not in world.results(run_id), (
        "the first result was given for the second request"
    )
    check_invariants(settings().database_url, run_id)


@pytest.mark.parametrize("tool", ["brisk", "keyed"])
def test_C27_ten_servers_after_one_that_was_never_sent(world: World, tool: str) -> None:
    name, before = f"ten-{tool}", deaths(world)
    rearm("E1")
    run_id = world.start("ledgered-enlarged", name=name, tool=tool)
    world.wait_fired("E1")
    wait_until(lambda: deaths(world) > before, what="it was killed with its intent written down")
    _conflicts(world, run_id)
    assert (world.fx.calls(name), world.fx.made(name)) == (0, 0)


@pytest.mark.parametrize("tool", ["place", "keyed"])
def test_C27_ten_servers_after_one_that_was_made(world: World, tool: str) -> None:
    name = f"ten-after-{tool}"
    disarm("E1")
    run_id = caught(world, name, "after", workflow="ledgered-enlarged", tool=tool)
    kill_holder(world, run_id)
    _conflicts(world, run_id)
    happened_once(world, name)
    world.fx.release(name)
    assert [one["request"]["servers"] for one in world.fx.resources(name)] == [1]


@pytest.fixture(scope="module")
def respelled(world: World) -> dict[str, str]:
    """A run for each spelling, all killed with their order placed and its answer on its way."""
    run_ids = {}
    for spelling in SPELLINGS:
        run_ids[spelling] = caught(
            world, spelling, "after", workflow="ledgered-respelled", spelling=spelling
        )
    for run_id in run_ids.values():
        kill_holder(world, run_id)
    return run_ids


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_C27_the_same_in_other_words_is_one_effect(
    world: World, respelled: dict[str, str], spelling: str
) -> None:
    run_id = respelled[spelling]
    world.wait_run(run_id)
    happened_once(world, spelling)
    assert world.attempts(run_id) == {"respell": 2}, "the second spelling was never asked for"
    effect = effect_of(run_id)
    assert (effect.state, effect.sends) == ("settled", 1)
    assert world.value(run_id, "respell") == world.fx.resources(spelling)[0]["id"]
    check_invariants(settings().database_url, run_id)


def test_C27_a_record_whose_owner_is_dead_is_taken_over_by_its_lease(world: World) -> None:
    """No death is seen here: the whole worker is gone, and only the lease can tell."""
    world.cluster.worker("worker-2", env={"ONWARD_FAILPOINTS": ARMED})
    run_id = caught(world, "in-progress", "after")
    assert effect_of(run_id).state == "intended"
    world.cluster.kill(str(world.step(run_id, "order").worker).partition("@")[0])
    limit = settings().lease_ttl + 2 * settings().sweep_period
    wait_effect(run_id, "settled", timeout=limit + 2)
    world.wait_run(run_id)
    happened_once(world, "in-progress")
    assert world.ended(run_id, "order") == [("expired", "the owner fell silent")]
    assert effect_of(run_id).source == "lookup"
    check_invariants(settings().database_url, run_id)


def test_C27_an_old_owner_neither_completes_nor_deletes_it(world: World) -> None:
    run_id = world.start("ledgered-E4", name="old-owner", tool="keyed")
    world.wait_fired("E4")
    old = world.holder(run_id)
    wait_paused(old)
    world.fx.hold("old-owner", "after")  # the next owner's request
    world.fx.wait_held("old-owner")
    before = effect_of(run_id)
    assert (before.state, before.token, before.sends) == ("intended", 3, 2)

    os.kill(old, signal.SIGCONT)
    wait_until(lambda: world.events(run_id, "effect_late_answer"), what="the old owner answers")
    assert effect_of(run_id) == before, "an old owner touched what is another's"
    world.fx.release("old-owner")
    world.wait_run(run_id)
    happened_once(world, "old-owner", calls=2)
    assert (effect_of(run_id).token, effect_of(run_id).source) == (3, "answer")
    evidence = database.fetch(
        "SELECT token FROM effect_evidence WHERE key = %(key)s", {"key": before.key}
    )
    assert evidence == [(2,)]
    assert world.value(run_id, "order")["by"] == "attempt 2"
    check_invariants(settings().database_url, run_id)
