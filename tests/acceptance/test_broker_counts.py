"""What a step costs broker and database on real workers, in counts, which do not depend on the machine."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from models import database
from tests.support.waiting import wait_until
from tests.support.world import World

RUNS, STEPS = 40, 10
#: What a client says of itself when it connects, and what this test asks.
OVERHEAD = {"auth", "client", "command", "config", "hello", "info", "ping", "select"}
#: Redis commands and durable commits a step; the last ones of a run are spread over its steps. 11 and 1.5
#: commands are asked for; with a MULTI around each delivery they would be 10 and 1.
LIMITS = {"hop": (7.0, 2.2), "sticky": (0.9, 1.3)}


@pytest.fixture(scope="module", params=["hop", "sticky"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def world(mode: str, make_world: Callable[..., AbstractContextManager[World]]) -> Iterator[World]:
    env = {
        "ONWARD_TASK_EVENTS": "false",
        "ONWARD_STICKY": str(mode == "sticky"),
        # However slow the machine: no budget that runs out, no renewal that commits in between.
        "ONWARD_STICKY_SECONDS": "60",
        "ONWARD_LEASE_TTL": "60",
        "ONWARD_HEARTBEAT": "20",
    }
    with make_world(agents="benchmarks.agent", env=env) as world:
        world.cluster.worker(concurrency=4)
        yield world


def test_a_step_costs_few_broker_commands_and_commits(world: World, mode: str) -> None:
    complete(world, runs=8)  # connections are open, statements prepared
    world.broker.config_resetstat()
    commits = transactions()

    complete(world, runs=RUNS)

    per_step = RUNS * STEPS
    commands, durable = LIMITS[mode]
    told = broker_commands(world)
    assert sum(told.values()) / per_step <= commands, told
    assert (transactions() - commits) / per_step <= durable


def complete(world: World, *, runs: int) -> None:
    """Submit runs one after another and wait until all are completed."""
    ids = [world.start("bench", steps=STEPS) for _ in range(runs)]
    wait_until(
        lambda: world.count_in_state(ids, "completed") == runs,
        timeout=90,
        what=f"{runs} runs are completed",
    )


def broker_commands(world: World) -> dict[str, int]:
    """Commands served since the reset, by name; MULTI and EXEC count."""
    served: dict[str, int] = {}
    for name, told in world.broker.info("commandstats").items():
        command = name.removeprefix("cmdstat_")
        if command.partition("|")[0] not in OVERHEAD:
            served[command] = told["calls"]
    return served


def transactions() -> int:
    """Ids given out so far: one to every transaction that wrote."""
    row = database.fetch_one("SELECT pg_snapshot_xmax(pg_current_snapshot())::text", {})
    assert row is not None
    return int(row[0])
