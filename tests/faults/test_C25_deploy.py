"""C25: a deploy in the middle: SIGTERM, a grace, and a new worker under the old name."""

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest

from models import database
from models.settings import settings
from tests.support.in_the_air import SOON, effects_of
from tests.support.invariants import check_invariants
from tests.support.waiting import wait_until
from tests.support.world import World

PEOPLE, CAUGHT = 50, 20


@pytest.fixture(scope="module")
def world(make_world: Callable[..., AbstractContextManager[World]]) -> Iterator[World]:
    with make_world(agents="tests.agents.ledgered", env=SOON) as world:
        world.cluster.recovery()
        yield world


@pytest.fixture(autouse=True)
def _no_worker_left(world: World) -> Iterator[None]:
    yield
    for name in [name for name in world.cluster.pids if name.startswith("worker")]:
        world.cluster.kill(name)


def _caught(world: World, batch: str, *, people: int = PEOPLE) -> str:
    """A run whose step waits for the outside world's answer to the twentieth mail."""
    world.fx.hold(f"{batch}-{CAUGHT}", "after")
    run_id = world.start("ledgered-mailing", batch=batch, people=people)
    world.fx.wait_held(f"{batch}-{CAUGHT}")
    return run_id


def _sigterm(world: World, name: str) -> None:
    leaving = world.cluster.logs(name).count("Leaving:")
    world.cluster.send_signal(name, signal.SIGTERM)
    wait_until(
        lambda: world.cluster.logs(name).count("Leaving:") > leaving, what=f"{name} is leaving"
    )


def _start_again(world: World, name: str, *, by: str) -> None:
    """A new process under a Celery name that is still in use, as a deploy does it."""
    program = world.cluster.services.worker(name, concurrency=2)
    log = program.log.with_name(f"{by}.log")
    world.cluster.start(replace(program, name=by, log=log))


def _lease(run_id: str) -> tuple[str, float]:
    """(owner, end of the lease as seconds since 1970) of the run's running step."""
    row = database.fetch_one(
        "SELECT owner, extract(epoch FROM lease_expires_at)::float8 FROM live"
        " WHERE run_id = %(id)s AND owner IS NOT NULL",
        {"id": run_id},
    )
    assert row is not None, "nobody holds the step"
    return row[0], row[1]


def _expired_at(run_id: str) -> float:
    """When the sweep took the step away, in seconds since 1970."""
    row = wait_until(
        lambda: database.fetch_one(
            "SELECT extract(epoch FROM at)::float8 FROM event"
            " WHERE run_id = %(id)s AND kind = 'lease_expired'",
            {"id": run_id},
        ),
        what="the lease is over",
    )
    return float(row[0])


def _mailed_once_each(world: World, batch: str, people: int = PEOPLE) -> None:
    """By a service that mails as often as it is asked to."""
    everyone = {f"{batch}-{number:02}": 1 for number in range(1, people + 1)}
    assert world.fx.all_made(f"{batch}-") == everyone
    assert world.fx.all_calls(f"{batch}-") == everyone


def _caught_one_was_looked_up(world: World, run_id: str, batch: str) -> None:
    """And no other: the one in flight was in doubt."""
    sources = [(effect.source, effect.sends) for effect in effects_of(run_id)]
    assert sources == [("answer", 1)] * (CAUGHT - 1) + [("lookup", 1)] + [("answer", 1)] * (
        PEOPLE - CAUGHT
    )
    assert world.fx.lookups(f"{batch}-{CAUGHT}") == 1


def test_C25_a_step_that_ends_within_the_grace_is_executed_once(world: World) -> None:
    world.cluster.worker("worker-1")
    run_id = _caught(world, "in-time")
    _sigterm(world, "worker-1")
    waiting = world.start("ledgered-mailing", batch="later", people=3)
    assert world.fx.release(f"in-time-{CAUGHT}") == 1
    wait_until(
        lambda: not world.cluster.is_running("worker-1"),
        timeout=settings().shutdown_grace / 2,
        what="the worker leaves when its step has ended, and does not sit out the grace",
    )

    assert set(world.results(run_id)) == {"mail"}, "the step did not end, or more began"
    assert world.bodies(waiting) == 0, "a draining worker claimed something new"
    world.cluster.worker("worker-1")
    world.wait_run(run_id)
    world.wait_run(waiting)

    for run, batch, people in ((run_id, "in-time", PEOPLE), (waiting, "later", 3)):
        assert world.attempts(run) == {"mail": 1, "close": 1}
        assert world.bodies(run) == 2
        _mailed_once_each(world, batch, people)
        check_invariants(settings().database_url, run)


def test_C25_a_new_process_of_the_old_name_keeps_nothing_of_it_alive(world: World) -> None:
    world.cluster.worker("worker-1")
    run_id = _caught(world, "same-name")
    _sigterm(world, "worker-1")
    _start_again(world, "worker-1", by="worker-1-new")
    beside = _caught(world, "beside")  # so that the new process has a lease of its own to renew
    owner, _ = _lease(run_id)
    assert world.cluster.is_running("worker-1"), "the two did not overlap"
    world.cluster.kill("worker-1")
    held, ends = _lease(run_id)
    assert held == owner, "the new process took over what the old one held"

    taken = _expired_at(run_id)
    assert ends <= taken <= ends + 2 * settings().sweep_period + 1, "the lease was refreshed"
    world.fx.release(f"same-name-{CAUGHT}")  # what the dead one sent lands now
    world.fx.release(f"beside-{CAUGHT}")
    world.wait_run(run_id)
    world.wait_run(beside)

    assert world.attempts(beside) == {"mail": 1, "close": 1}
    assert world.attempts(run_id) == {"mail": 2, "close": 1}
    assert len(world.events(run_id, "lease_expired")) == 1
    _mailed_once_each(world, "same-name")
    _caught_one_was_looked_up(world, run_id, "same-name")
    check_invariants(settings().database_url, run_id)


def test_C25_a_step_that_outlasts_the_grace_is_handed_over(world: World) -> None:
    world.cluster.worker("worker-1", env={"ONWARD_SHUTDOWN_GRACE": "1"})
    run_id = _caught(world, "too-long")
    _sigterm(world, "worker-1")
    world.cluster.worker("worker-2")
    wait_until(
        lambda: not world.cluster.is_running("worker-1"), timeout=20, what="the grace is over"
    )
    world.fx.release(f"too-long-{CAUGHT}")
    world.wait_run(run_id)

    assert world.attempts(run_id) == {"mail": 2, "close": 1}
    [(outcome, _)] = world.ended(run_id, "mail")
    assert outcome in ("interrupted", "died", "expired")
    _mailed_once_each(world, "too-long")
    _caught_one_was_looked_up(world, run_id, "too-long")
    check_invariants(settings().database_url, run_id)
