"""A whole worker killed, paused, or told to go: who takes over, when, and what the old one may still do."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest

from models import database
from models.settings import settings
from tests.support.invariants import check_invariants
from tests.support.programs import is_gone
from tests.support.waiting import wait_until
from tests.support.world import World

#: Much longer than any test: what comes back before it was not waited for.
LONG_LEASE = {"ONWARD_LEASE_TTL": "600"}


@pytest.fixture(scope="module")
def world(make_world: Callable[..., AbstractContextManager[World]]) -> Iterator[World]:
    with make_world(agents="tests.agents.effects,tests.agents.rough,tests.agents.plain") as world:
        world.cluster.recovery()
        yield world


@pytest.fixture(autouse=True)
def _no_worker_left(world: World) -> Iterator[None]:
    yield
    for name in list(world.cluster.pids):
        if name not in ("control", "beat-1"):
            world.cluster.kill(name)


def _held(world: World, workflow: str, intent: str, *, step_key: str) -> str:
    """A run whose step waits for the outside world, its effect not made."""
    world.fx.hold(intent, "before")
    run_id = world.start(workflow, intent=intent)
    world.fx.wait_held(intent)
    assert world.step(run_id, step_key).state == "running"
    return run_id


def _charged_twice(world: World, run_id: str, intent: str) -> None:
    world.wait_run(run_id)
    world.fx.release(intent)
    assert world.attempts(run_id) == {"prepare": 1, "charge": 2, "report": 1}
    assert (world.fx.calls(intent), world.fx.effects(intent)) == (2, 1)
    check_invariants(settings().database_url, run_id)


def test_another_worker_takes_over_when_the_lease_is_over(world: World) -> None:
    world.cluster.worker("worker-1")
    run_id = _held(world, "effects", "never-returns", step_key="charge")
    world.cluster.kill("worker-1")
    world.cluster.worker("worker-2")
    assert world.step(run_id, "charge").attempt == 1, "taken before its lease was over"
    _charged_twice(world, run_id, "never-returns")
    assert world.ended(run_id, "charge") == [("expired", "the owner fell silent")]
    assert str(world.step(run_id, "charge").worker).startswith("worker-2@")


def test_a_worker_that_returns_under_its_name_releases_its_steps_at_once(world: World) -> None:
    world.cluster.worker("worker-1", env=LONG_LEASE)
    run_id = _held(world, "effects", "returns", step_key="charge")
    world.cluster.kill("worker-1")
    assert world.step(run_id, "charge").state == "running"
    world.cluster.worker("worker-1", env=LONG_LEASE)
    _charged_twice(world, run_id, "returns")
    ((outcome, error),) = world.ended(run_id, "charge")
    assert outcome == "expired"
    assert "took its name" in error


def test_what_a_dead_attempt_left_running_is_killed_before_the_step_runs_again(
    world: World,
) -> None:
    world.cluster.worker("worker-1", env=LONG_LEASE)
    run_id = _held(world, "rough-spawn", "stray", step_key="spawn")
    (child,) = [one["child"] for one in world.notes(run_id) if one["what"] == "child"]
    world.cluster.kill("worker-1")
    assert not is_gone(child), "the subprocess was to outlive its worker"
    world.cluster.worker("worker-1", env=LONG_LEASE)
    world.wait_run(run_id)
    assert world.value(run_id, "spawn") == {"earlier": [child], "alive": []}
    check_invariants(settings().database_url, run_id)


def test_C25_in_place_a_leaving_worker_goes_no_further(world: World) -> None:
    world.cluster.worker("worker-1", env={"ONWARD_STICKY": "true", "ONWARD_STICKY_SECONDS": "60"})
    run_id = _held(world, "effects", "leaving", step_key="charge")
    world.cluster.send_signal("worker-1", signal.SIGTERM)
    wait_until(lambda: "Leaving:" in world.cluster.logs("worker-1"), what="it is leaving")
    world.fx.release("leaving")
    wait_until(lambda: not world.cluster.is_running("worker-1"), timeout=30, what="it has left")
    assert "charge" in world.results(run_id)
    assert world.step(run_id, "report").attempt == 0

    world.cluster.worker("worker-2")
    world.wait_run(run_id)
    assert world.attempts(run_id) == {"prepare": 1, "charge": 1, "report": 1}
    assert (world.fx.calls("leaving"), world.fx.effects("leaving")) == (1, 1)
    check_invariants(settings().database_url, run_id)


def _is_paused(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def _lease(run_id: str) -> tuple[str, int]:
    row = database.fetch_one("SELECT owner, token FROM live WHERE run_id = %(id)s", {"id": run_id})
    assert row is not None
    return row[0], row[1]


def _paused_with_its_answer(world: World, intent: str, point: str) -> tuple[str, int]:
    """A run whose `charge` is stopped at ``point``; and the process that is stopped."""
    if point == "P2":
        world.fx.hold(intent, "before", times=2)
        run_id = world.start("effects", intent=intent)
        world.fx.wait_held(intent)
        pid = world.holder(run_id)
        os.kill(pid, signal.SIGSTOP)
    else:
        run_id = world.start("kill-P4", intent=intent)
        world.wait_fired("P4")
        pid = world.holder(run_id)
        world.fx.hold(intent, "before")
    wait_until(partial(_is_paused, pid), what="the owner is paused")
    return run_id, pid


@pytest.mark.parametrize("point", ["P2", "P4"])
def test_C06_a_paused_owner_that_wakes_changes_nothing(world: World, point: str) -> None:
    intent = f"paused-{point}"
    world.cluster.worker("worker-1", env={"ONWARD_FAILPOINTS": "P4:stop@kill-P4.charge"})
    run_id, old = _paused_with_its_answer(world, intent, point)
    world.fx.wait_held(intent, count=2 if point == "P2" else 1)  # the second attempt is at work
    lease = _lease(run_id)
    assert lease[1] == 3  # prepare 1, charge 2 and 3

    os.kill(old, signal.SIGCONT)
    if point == "P2":
        world.fx.release(intent, count=1)
    wait_until(
        lambda: ("superseded", "") in world.ended(run_id, "charge"),
        what="the late answer is kept as evidence",
    )
    assert "Late outcome set aside" in world.cluster.logs("worker-1")
    assert "no longer owns the step" in world.cluster.logs("worker-1")
    assert _lease(run_id) == lease, "the woken owner touched its successor's lease"
    assert world.bodies(run_id, "report") == 0

    world.fx.release(intent)
    world.wait_run(run_id)
    assert world.value(run_id, "charge")["by"] == "attempt 2"
    assert (world.fx.calls(intent), world.fx.effects(intent)) == (2, 1)
    assert world.bodies(run_id, "report") == 1
    assert world.duplicates(run_id) == 0, "more than one message for the next step"
    assert [outcome for outcome, _ in world.ended(run_id, "charge")] == ["expired", "superseded"]
    check_invariants(settings().database_url, run_id)


def test_C06_paused_after_the_commit_there_is_one_message_for_the_next_step(world: World) -> None:
    points = ("P6", "P7")
    armed = ",".join(f"{point}:stop@kill-{point}.charge" for point in points)
    world.cluster.worker("worker-1", concurrency=3, env={"ONWARD_FAILPOINTS": armed})
    runs = {point: world.start(f"kill-{point}", intent=f"after-{point}") for point in points}
    for point in points:
        world.wait_fired(point)
    paused = {
        point: next(one["pid"] for one in world.notes(run_id, "charge"))
        for point, run_id in runs.items()
    }
    for point, run_id in runs.items():
        wait_until(partial(_is_paused, paused[point]), what=f"{point} is paused")
        world.wait_run(run_id)
        os.kill(paused[point], signal.SIGCONT)
    wait_until(
        lambda: all(
            f"{run_id}:charge:1] succeeded" in world.cluster.logs("worker-1")
            for run_id in runs.values()
        ),
        what="the woken owners ack their messages",
    )
    for point, run_id in runs.items():
        assert world.attempts(run_id) == {"prepare": 1, "charge": 1, "report": 1}
        assert world.fx.effects(f"after-{point}") == 1
        assert world.bodies(run_id, "report") == 1
        assert world.duplicates(run_id) == 0
        assert world.queue_length(f"steps.kill-{point}@1") == 0
        check_invariants(settings().database_url, run_id)
