"""Workers are added to and taken from a batch under way: 1, 2, 4, 8 and back. Nothing lost, nothing doubled."""

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from itertools import count

import pytest

from models import database
from models.settings import settings
from tests.support.invariants import check_invariants
from tests.support.waiting import wait_until
from tests.support.world import World

SIZES = (1, 2, 4, 8)
NAMES = [f"worker-{number}" for number in range(1, max(SIZES) + 1)]


@pytest.fixture(scope="module", params=[False, True], ids=["hop", "sticky"])
def world(
    request: pytest.FixtureRequest, make_world: Callable[..., AbstractContextManager[World]]
) -> Iterator[World]:
    env = {"ONWARD_STICKY": str(request.param), "ONWARD_SHUTDOWN_GRACE": "2"}
    with make_world(agents="tests.agents.scaling", env=env) as world:
        world.cluster.recovery()
        yield world


def _unfinished(runs: list[str]) -> int:
    query = "SELECT count(*) FROM run WHERE run_id = ANY(%(ids)s) AND state <> 'completed'"
    return int(database.fetch(query, {"ids": runs})[0][0])


def _all_busy(names: list[str]) -> bool:
    return set(names) <= _busy()


def _any_busy(names: list[str]) -> bool:
    return bool(set(names) & _busy())


def _busy() -> set[str]:
    """The workers that hold a step now."""
    query = "SELECT DISTINCT split_part(worker, '@', 1) FROM live WHERE owner IS NOT NULL"
    return {row[0] for row in database.fetch(query, {})}


def _have_left(world: World, names: list[str]) -> bool:
    return not set(names) & set(world.cluster.pids)


def _start_workers(world: World, names: list[str]) -> None:
    world.cluster.start_together(
        *(world.cluster.services.worker(name, concurrency=1) for name in names)
    )


def test_workers_come_and_go_in_mid_batch(world: World) -> None:
    numbers = count(1)
    runs: dict[str, str] = {}

    def submit(more: int) -> None:
        for _ in range(more):
            intent = f"order-{next(numbers):04d}"
            runs[intent] = world.start("scaling", intent=intent)

    submit(10)
    for size in SIZES:
        submit(8 * size)
        _start_workers(world, NAMES[len(world.cluster.pids) - 2 : size])
        wait_until(partial(_all_busy, NAMES[:size]), what=f"{size} workers are at work")
        assert _unfinished(list(runs.values())), "the batch was over before workers were added"

    submit(60)
    for size in reversed(SIZES[:-1]):
        leaving = NAMES[size : 2 * size]
        wait_until(partial(_any_busy, leaving), what="they hold steps")
        for name in leaving:
            world.cluster.send_signal(name, signal.SIGTERM)
        assert _unfinished(list(runs.values())), "the batch was over before workers were taken away"
        submit(10)
        wait_until(
            partial(_have_left, world, leaving),
            timeout=30,
            what=f"{leaving} have left",
        )

    world.wait_runs(list(runs.values()), timeout=60)
    _once_each(world, runs)


def _once_each(world: World, runs: dict[str, str]) -> None:
    ordered = world.fx.all_effects("order-")
    assert ordered == dict.fromkeys(runs, 1), "an order was lost or doubled"
    assert world.fx.all_calls("order-") == ordered
    for run_id in runs.values():
        assert world.attempts(run_id) == {"fetch": 1, "order": 1, "confirm": 1}
        assert world.bodies(run_id) == 3
        check_invariants(settings().database_url, run_id)
    rows = database.fetch("SELECT DISTINCT split_part(worker, '@', 1) FROM step", {})
    assert {row[0] for row in rows} == set(NAMES), "a worker did nothing"
