"""C09: a step that kills its process each time stops after three bodies and harms nobody else."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

import pytest

from models.journal import runs
from models.settings import settings
from recovery.watch import why
from tests.support.in_the_air import SOON, effect_of, happened_once
from tests.support.invariants import check_invariants
from tests.support.waiting import wait_until
from tests.support.world import World

#: How the body ends, and what the run's reason must name.
DEATHS = {"kill": "signal 9 (SIGKILL)", "segv": "signal 11 (SIGSEGV)", "memory": "MemoryError"}
SLOTS = 2
#: Of a step that died with a request in the air: the world is asked before it runs again.
STORY = ["lease_died", "effect_unknown", "effect_settled", "step_requeued"]


@dataclass(frozen=True)
class Poisoned:
    """What one world of poison steps and healthy runs came to."""

    world: World
    runs: Mapping[str, str]
    healthy: list[str]
    flushed: bool


@pytest.fixture(scope="module")
def poisoned(make_world: Callable[..., AbstractContextManager[World]]) -> Iterator[Poisoned]:
    agents = "tests.agents.rough,tests.agents.plain,tests.agents.effects,tests.agents.ledgered"
    with make_world(agents=agents, env=SOON) as world:
        world.cluster.worker(concurrency=SLOTS)
        started = {how: world.start("rough-die", how=how) for how in DEATHS}
        started["encode"] = world.start("rough-encode", size=1)
        # No recovery runs yet, so this is between attempts 1 and 2 of every one.
        wait_until(
            lambda: (
                all(world.bodies(run_id) == 1 for run_id in started.values())
                and all(
                    world.step(run_id, _key(world, run_id)).state == "unknown"
                    for run_id in started.values()
                )
            ),
            timeout=30,
            what="every first attempt is dead",
        )
        flushed = bool(world.broker.flushall())
        world.cluster.recovery()
        healthy = [world.start("plain-one", value=number) for number in range(10)]
        yield Poisoned(world, started, healthy, flushed)


def _key(world: World, run_id: str) -> str:
    return str(world.notes(run_id)[0]["step_key"])


@pytest.mark.parametrize("how", [*DEATHS, "encode"])
def test_C09_three_bodies_and_then_a_person(poisoned: Poisoned, how: str) -> None:
    world, run_id = poisoned.world, poisoned.runs[how]
    assert poisoned.flushed
    world.wait_run(run_id, "blocked")
    step = world.step(run_id, _key(world, run_id))
    assert world.bodies(run_id) == 3, (
        "the attempt is counted before the body, and outlives FLUSHALL"
    )
    assert (step.attempt, step.crashes, step.block_reason) == (3, 3, "poison_step")
    assert DEATHS.get(how, "MemoryError") in str(step.error)
    assert why(run_id).word == "poison_step"
    assert why(run_id).stuck
    check_invariants(settings().database_url, run_id)


def test_C09_healthy_runs_complete_beside_it(poisoned: Poisoned) -> None:
    poisoned.world.wait_runs(poisoned.healthy)
    assert all(poisoned.world.bodies(run_id) == 1 for run_id in poisoned.healthy)


def test_C09_every_slot_still_works(poisoned: Poisoned) -> None:
    world = poisoned.world
    for run_id in poisoned.runs.values():
        world.wait_run(run_id, "blocked")
    intents = [f"slot-{number}" for number in range(SLOTS)]
    for intent in intents:
        world.fx.hold(intent, "before")
    probes = [world.start("effects", intent=intent) for intent in intents]
    for intent in intents:
        world.fx.wait_held(intent)  # both at once, so in two processes
    pids = {world.holder(run_id) for run_id in probes}
    assert len(pids) == SLOTS
    for intent in intents:
        world.fx.release(intent)
    world.wait_runs(probes)


def test_C09_leaving_quarantine_takes_a_person(poisoned: Poisoned) -> None:
    world, run_id = poisoned.world, poisoned.runs["kill"]
    world.wait_run(run_id, "blocked")
    bodies = world.bodies(run_id)
    assert runs.send_back(run_id, by="operator@example.org") == ["die"]
    wait_until(lambda: world.bodies(run_id) == bodies + 1, what="it runs again when told to")
    wait_until(lambda: world.bodies(run_id) == bodies + 3, what="with a fresh limit")
    world.wait_run(run_id, "blocked")
    assert [key for _, key, _ in world.events(run_id, "step_sent_back")] == ["die"]
    assert world.step(run_id, "die").crashes == 6, "what was counted stays counted"


def test_C09_past_sending_it_is_reconciled_and_not_run_blindly(poisoned: Poisoned) -> None:
    world, name = poisoned.world, "asked-poison"
    run_id = world.start("ledgered-fatal", name="asked", tool="place")
    world.wait_run(run_id, "blocked")

    assert world.bodies(run_id) == 3
    assert why(run_id).word == "poison_step"
    happened_once(world, name)
    assert world.fx.lookups(name) == 1, "a second body was not to wait for a second look"
    effect = effect_of(run_id)
    assert (effect.state, effect.source, effect.sends) == ("settled", "lookup", 1)
    told = [kind for kind, _, _ in world.events(run_id) if kind in STORY]
    assert told == [*STORY, "lease_died", "step_requeued", "lease_died"]
    check_invariants(settings().database_url, run_id)


def test_C09_past_sending_what_cannot_be_asked_is_left_to_a_person(poisoned: Poisoned) -> None:
    world, name = poisoned.world, "blind-poison"
    run_id = world.start("ledgered-fatal", name="blind", tool="blind")
    world.wait_run(run_id, "blocked")

    assert world.bodies(run_id) == 1
    assert why(run_id).word == "unknown_effect"
    assert world.step(run_id, "fatal").state == "unknown"
    assert effect_of(run_id).state == "unknown"
    happened_once(world, name)
    check_invariants(settings().database_url, run_id)
