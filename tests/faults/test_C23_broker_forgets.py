"""C23: the broker forgets, refuses, evicts, or comes back with an older state. Nobody repairs anything."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import pytest
import redis

from models import database
from models.settings import settings
from ops.stack import Servers
from tests.support.invariants import check_invariants
from tests.support.waiting import wait_until
from tests.support.world import World

#: seconds a Celery worker may need to find a broker that was away
RECONNECT = 8.0
QUEUE = "steps.effects@1"


@pytest.fixture(scope="module")
def world(make_world: Callable[..., AbstractContextManager[World]]) -> Iterator[World]:
    with make_world(agents="tests.agents.effects,tests.agents.plain") as world:
        world.cluster.recovery()
        yield world


@pytest.fixture(autouse=True)
def _no_worker_left(world: World) -> Iterator[None]:
    yield
    for name in list(world.cluster.pids):
        if name not in ("control", "beat-1"):
            world.cluster.kill(name)


def _recovery_limit() -> float:
    return settings().lease_ttl + 3 * settings().sweep_period + RECONNECT


def _ran_once(world: World, runs: dict[str, str]) -> None:
    for intent, run_id in runs.items():
        assert world.attempts(run_id) == {"prepare": 1, "charge": 1, "report": 1}, intent
        assert [world.bodies(run_id, key) for key in ("prepare", "charge", "report")] == [1, 1, 1]
        assert (world.fx.calls(intent), world.fx.effects(intent)) == (1, 1)
        check_invariants(settings().database_url, run_id)


def _nothing_left_in_the_broker(world: World) -> None:
    wait_until(
        lambda: world.queue_length(QUEUE) == 0 and not world.broker.exists("onward:unacked"),
        what="no message is left over",
    )


def test_C23_flushall_and_restart(world: World, servers: Servers) -> None:
    armed = "P6:kill@kill-P6.charge,P7:kill@kill-P7.charge"
    world.cluster.worker("worker-1", concurrency=7, env={"ONWARD_FAILPOINTS": armed})
    killed = {
        point: world.start(f"kill-{point}", intent=f"forgot-{point}") for point in ("P6", "P7")
    }
    running = {f"running-{number}": "" for number in range(7)}
    for intent in running:
        world.fx.hold(intent, "after")
        running[intent] = world.start("effects", intent=intent)
        world.fx.wait_held(intent)
    queued = {f"queued-{n}": world.start("effects", intent=f"queued-{n}") for n in range(5)}
    for point in killed:
        world.wait_fired(point)
    assert world.queue_length(QUEUE) > 0

    world.broker.flushall()
    servers.restart("valkey")
    back_at = time.monotonic()
    for intent in running:
        world.fx.release(intent)
    every = {**running, **queued, **{f"forgot-{point}": run for point, run in killed.items()}}
    world.wait_runs(list(every.values()), timeout=_recovery_limit())
    assert time.monotonic() - back_at < _recovery_limit()
    _ran_once(world, every)
    _nothing_left_in_the_broker(world)
    assert {"worker-1", "control", "beat-1"} <= set(world.cluster.pids), "a process left"


@contextmanager
def _configured(world: World, **options: object) -> Iterator[None]:
    names = {name.replace("_", "-"): value for name, value in options.items()}
    before = {name: str(world.broker.config_get(name)[name]) for name in names}
    for name, value in names.items():
        world.broker.config_set(name, str(value))
    try:
        yield
    finally:
        for name, value in before.items():
            world.broker.config_set(name, value)


def test_C23_a_full_broker_refuses_every_write(world: World) -> None:
    world.cluster.worker("worker-1", concurrency=3)
    pids = dict(world.cluster.pids)
    running = {f"full-{number}": "" for number in range(3)}
    for intent in running:
        world.fx.hold(intent, "after")
        running[intent] = world.start("effects", intent=intent)
        world.fx.wait_held(intent)
    queued = {
        f"queued-full-{n}": world.start("effects", intent=f"queued-full-{n}") for n in range(3)
    }
    with _configured(world, maxmemory="1mb"):
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            world.broker.set("refused", "x")
        for intent in running:
            world.fx.release(intent)
        wait_until(
            lambda: all("charge" in world.results(run_id) for run_id in running.values()),
            what="results are recorded while the broker refuses",
        )
        late = {f"late-{n}": world.start("effects", intent=f"late-{n}") for n in range(3)}
        refused_until = time.monotonic() + 3 * settings().publish_grace
        wait_until(
            lambda: time.monotonic() > refused_until, what="several publications were refused"
        )
        for run_id in running.values():
            assert world.step(run_id, "report").state == "pending"
            assert world.attempts(run_id) == {"prepare": 1, "charge": 1}
    every = {**running, **queued, **late}
    world.wait_runs(list(every.values()), timeout=_recovery_limit())
    _ran_once(world, every)
    assert dict(world.cluster.pids) == pids, "a process left"


def test_C23_the_queue_is_evicted(world: World) -> None:
    runs = {f"evicted-{n}": world.start("effects", intent=f"evicted-{n}") for n in range(5)}
    key = f"{settings().key_prefix}{QUEUE}"
    assert world.broker.exists(key)
    used = int(world.broker.info("memory")["used_memory"])
    with _configured(world, maxmemory_policy="allkeys-lru", maxmemory=used + 2_000_000):
        number = 0
        while world.broker.exists(key):
            number += 1
            assert number < 100_000, "the queue was not evicted"
            world.broker.set(f"junk-{number}", "x" * 10_000)
    for junk in world.broker.scan_iter("junk-*", count=1000):
        world.broker.delete(junk)
    world.cluster.worker("worker-1")
    world.wait_runs(list(runs.values()), timeout=_recovery_limit())
    _ran_once(world, runs)


def test_C23_an_older_state_of_the_broker_returns(world: World) -> None:
    runs = {f"rewound-{n}": world.start("effects", intent=f"rewound-{n}") for n in range(3)}
    old = {key: world.broker.dump(key) or b"" for key in world.broker.keys(f"*{QUEUE}*")}
    assert old
    for intent in runs:
        world.fx.hold(intent, "after")
    world.cluster.worker("worker-1", concurrency=3)
    for intent in runs:
        world.fx.wait_held(intent)

    world.broker.flushdb()  # what was sent since is lost ...
    for key, value in old.items():
        world.broker.restore(key, 0, value, replace=True)
    for intent in runs:
        world.fx.release(intent)

    world.wait_runs(list(runs.values()), timeout=_recovery_limit())
    _ran_once(world, runs)
    for run_id in runs.values():  # ... and what was done already came again, and was dropped
        wait_until(partial(world.duplicates, run_id), what="the old message is counted")
    _nothing_left_in_the_broker(world)
    rows = database.fetch("SELECT count(*) FROM live", {})
    assert rows == [(0,)]
