"""Workers are added to and taken from a batch under way: 1, 2, 4, 8 and back. Nothing lost, nothing doubled."""

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from itertools import pairwise

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


class Batch:
    """Orders that come in as long as workers come and go."""

    def __init__(self, world: World) -> None:
        self.runs: dict[str, str] = {}
        self._world = world

    def unfinished(self) -> int:
        query = "SELECT count(*) FROM run WHERE run_id = ANY(%(ids)s) AND state <> 'completed'"
        return int(database.fetch(query, {"ids": list(self.runs.values())})[0][0])

    def fill(self, wanted: int) -> None:
        """Submit until so many orders are under way."""
        for _ in range(wanted - self.unfinished()):
            intent = f"order-{len(self.runs) + 1:04d}"
            self.runs[intent] = self._world.start("scaling", intent=intent)

    def keeps_busy(self, names: list[str]) -> bool:
        """Whether each of these workers holds a step now; submits more while they do not."""
        query = "SELECT DISTINCT split_part(worker, '@', 1) FROM live WHERE owner IS NOT NULL"
        if set(names) <= {row[0] for row in database.fetch(query, {})}:
            return True
        self.fill(3 * len(names))
        return False


def _have_left(world: World, names: list[str]) -> bool:
    return not set(names) & set(world.cluster.pids)


def _start_workers(world: World, names: list[str]) -> None:
    services = world.cluster.services
    world.cluster.start_together(*(services.worker(name, concurrency=1) for name in names))


def test_workers_come_and_go_in_mid_batch(world: World) -> None:
    batch = Batch(world)
    for before, size in pairwise((0, *SIZES)):
        batch.fill(4 * size)
        _start_workers(world, NAMES[before:size])
        wait_until(
            partial(batch.keeps_busy, NAMES[:size]), timeout=30, what=f"{size} workers are at work"
        )

    for size in reversed(SIZES[:-1]):
        leaving = NAMES[size : 2 * size]
        wait_until(partial(batch.keeps_busy, leaving), timeout=30, what="they hold steps")
        for name in leaving:
            world.cluster.send_signal(name, signal.SIGTERM)
        assert batch.unfinished(), "the batch was over when workers were taken away"
        batch.fill(4 * size)
        wait_until(partial(_have_left, world, leaving), timeout=30, what=f"{leaving} have left")

    world.wait_runs(list(batch.runs.values()), timeout=60)
    _once_each(world, batch.runs)


def _once_each(world: World, runs: dict[str, str]) -> None:
    ordered = world.fx.all_effects("order-")
    assert ordered == dict.fromkeys(runs, 1), "an order was lost or doubled"
    assert world.fx.all_calls("order-") == ordered
    for run_id in runs.values():
        assert world.attempts(run_id) == {"fetch": 1, "order": 1, "confirm": 1}
        check_invariants(settings().database_url, run_id)
    assert world.bodies_by_run() == dict.fromkeys(runs.values(), 3)
    rows = database.fetch("SELECT DISTINCT split_part(worker, '@', 1) FROM step", {})
    assert {row[0] for row in rows} == set(NAMES), "a worker did nothing"
