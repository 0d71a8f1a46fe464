"""C24: the rescuer stopped, doubled, or itself dead. Real control workers, real beats, real SIGKILLs."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import psycopg
import pytest

from models import database
from models.ids import new_nonce
from models.journal import reads, steps
from models.journal.values import Carrier
from models.settings import settings
from recovery.watch import sweep_health
from tasks.publishing import queue
from tasks.worker import CONTROL_QUEUE
from tests.support.invariants import check_invariants
from tests.support.waiting import wait_until
from tests.support.world import World

#: A lease short enough to see it run out, four times over.
BRIEF = {"ONWARD_LEASE_TTL": "1.5", "ONWARD_HEARTBEAT": "0.5", "ONWARD_TRUST_MARGIN": "0.3"}
#: Where the rows stand after the sweep was killed there. S3 lies in a look-up, which is no part of a sweep.
LEFT_BEHIND = {"S1": "running", "S2": "unknown", "S4": "pending", "S5": "pending"}


@pytest.fixture(scope="module")
def world(
    request: pytest.FixtureRequest, make_world: Callable[..., AbstractContextManager[World]]
) -> Iterator[World]:
    """In hop mode, unless a test asks for the other one as well."""
    sticky = getattr(request, "param", "hop") == "sticky"
    agents = "tests.agents.effects,tests.agents.plain"
    with make_world(agents=agents, env={"ONWARD_STICKY": str(sticky)}) as world:
        yield world


@pytest.fixture(autouse=True)
def _nobody_left(world: World) -> Iterator[None]:
    yield
    for name in list(world.cluster.pids):
        world.cluster.kill(name)


def _sweep_now(world: World) -> None:
    world.app.send_task("recovery.sweep", queue=queue(CONTROL_QUEUE))


def _wait_stale(world: World, run_ids: list[str]) -> None:
    query = (
        "SELECT count(*) FROM live WHERE run_id = ANY(%(ids)s) AND lease_expires_at <= onward_now()"
    )
    wait_until(
        lambda: database.fetch(query, {"ids": run_ids})[0][0] == len(run_ids),
        what="every lease is over",
    )


def _states(run_ids: list[str]) -> set[str]:
    rows = database.fetch("SELECT state FROM live WHERE run_id = ANY(%(ids)s)", {"ids": run_ids})
    return {row[0] for row in rows}


def _lose_a_worker(world: World, label: str, *, count: int = 3) -> dict[str, str]:
    """Runs whose step was in a worker that was killed; by intent. Their leases are over."""
    world.cluster.worker("lost", concurrency=count, env=BRIEF)
    runs = {}
    for number in range(count):
        intent = f"{label}-{number}"
        world.fx.hold(intent, "after")
        runs[intent] = world.start("effects", intent=intent)
        world.fx.wait_held(intent)
    world.cluster.kill("lost")
    _wait_stale(world, list(runs.values()))
    return runs


def _all_recovered(world: World, runs: dict[str, str]) -> None:
    for intent, run_id in runs.items():
        world.wait_run(run_id)
        assert world.attempts(run_id) == {"prepare": 1, "charge": 2, "report": 1}
        assert (world.fx.calls(intent), world.fx.effects(intent)) == (2, 1)
        assert len(world.events(run_id, "lease_expired")) == 1
        assert len(world.events(run_id, "step_requeued")) == 1
        check_invariants(settings().database_url, run_id)


@pytest.mark.parametrize("world", ["hop", "sticky"], indirect=True)
@pytest.mark.parametrize("point", LEFT_BEHIND)
def test_C24_c_the_sweep_is_killed(world: World, point: str) -> None:
    runs = _lose_a_worker(world, f"sweep-{point}")
    deaths = world.cluster.logs("control").count("signal 9 (SIGKILL)")
    world.cluster.control_worker(env={"ONWARD_FAILPOINTS": f"{point}:kill"})
    _sweep_now(world)
    world.wait_fired(point)
    wait_until(
        lambda: world.cluster.logs("control").count("signal 9 (SIGKILL)") > deaths,
        what="the sweep was killed",
    )
    assert _states(list(runs.values())) == {LEFT_BEHIND[point]}
    passed = reads.pass_age("sweep")

    _sweep_now(world)  # no beat runs: this is the next sweep, and it finishes each row

    wait_until(
        lambda: (age := reads.pass_age("sweep")) is not None and (passed is None or age < passed),
        what="the next sweep completes, so no lock outlived its holder",
    )
    world.cluster.worker("rescuer")
    if point == "S5":  # published before the kill: the rows' messages are waiting
        assert _states(list(runs.values())) <= {"pending", "running"}
    _all_recovered(world, runs)


def test_C24_b_a_stopped_rescuer_is_noticed_and_catches_up(world: World) -> None:
    runs = _lose_a_worker(world, "no-beat", count=1)
    world.cluster.control_worker()
    _sweep_now(world)
    wait_until(lambda: sweep_health()[0], what="health is green after a sweep")
    with _clock_of_this_process("30 minutes"):
        healthy, sentence = sweep_health()
    assert not healthy
    assert "180" in sentence, sentence  # the age, 1,800 s and a little, by name
    assert "beat" in sentence

    world.cluster.beat()
    world.cluster.worker("rescuer")
    _all_recovered(world, runs)
    assert sweep_health()[0]


@contextmanager
def _clock_of_this_process(ahead: str) -> Iterator[None]:
    """The journal's clock as this connection sees it, and no other, stands later."""
    set_clock = "SELECT set_config('onward.now', (onward_now() + %(ahead)s::interval)::text, false)"
    database.fetch(set_clock, {"ahead": ahead})
    try:
        yield
    finally:
        database.fetch("SELECT set_config('onward.now', '', false)", {})


def test_C24_d_a_deleted_registration_hides_nothing(world: World) -> None:
    runs = _lose_a_worker(world, "unregistered")
    with psycopg.connect(database.conninfo(), autocommit=True) as link:
        deleted = link.execute("DELETE FROM worker WHERE name LIKE 'lost@%'").rowcount
    assert deleted
    world.cluster.recovery()
    world.cluster.worker("rescuer")
    _all_recovered(world, runs)


def test_C24_a_two_beats_and_three_sweeps_requeue_each_row_once(world: World) -> None:
    runs = [world.start("plain-one", value=number) for number in range(50)]
    owner = Carrier("start-gone", "gone@nowhere", "task", pid=0, pid_started=0)
    for run_id in runs:
        claimed = steps.claim(
            run_id, "0", "noted", workflow="plain-one", versions=["1"], carrier=owner,
            nonce=new_nonce(),
        )  # fmt: skip
        assert claimed is not None
    _wait_stale(world, runs)

    services = world.cluster.services
    for _ in range(6):
        _sweep_now(world)
    world.cluster.start_together(
        *(services.control_worker(f"control-{number}") for number in (1, 2, 3)),
        *(services.beat(number) for number in (1, 2)),
        services.worker("rescuer", concurrency=2),
    )
    world.wait_runs(runs)

    for run_id in runs:
        assert world.attempts(run_id) == {"noted": 2}
        assert world.step(run_id, "noted").token == 2
        assert world.bodies(run_id) == 1
        assert [kind for kind, _, _ in world.events(run_id)].count("step_requeued") == 1
        check_invariants(settings().database_url, run_id)


def test_C24_e_a_backlog_of_steps_does_not_starve_the_sweep(world: World) -> None:
    period = 2.0
    run_id = world.start("plain-wide", width=5000)
    world.cluster.control_worker(env={"ONWARD_SWEEP_PERIOD": str(period)})
    world.cluster.beat()
    world.cluster.worker("busy", concurrency=2)
    wait_until(lambda: _done(run_id) > 50, what="the backlog is being worked on")
    started = _sweep_started()
    for _ in range(3):
        started = wait_until(
            partial(_sweep_started_after, started),
            timeout=2 * period,
            what="a sweep starts within two periods",
        )
    assert _done(run_id) < 4990, "the backlog was gone before the sweeps were timed"
    assert world.queue_length("steps.plain-wide@1") > 0


def _done(run_id: str) -> int:
    return int(
        database.fetch("SELECT count(*) FROM step WHERE run_id = %(id)s", {"id": run_id})[0][0]
    )


def _sweep_started_after(last: str | None) -> str | None:
    return found if (found := _sweep_started()) != last else None


def _sweep_started() -> str | None:
    row = database.fetch_one("SELECT started_at::text FROM pass WHERE name = 'sweep'", {})
    return row[0] if row else None
