"""What the engine promises of a step, on two real workers: limits, failures, crashes, groups, loops, logs."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from models import database
from models.settings import settings
from tests.support.invariants import check_invariants
from tests.support.programs import is_gone
from tests.support.waiting import wait_until
from tests.support.world import World


@pytest.fixture(scope="module")
def world(make_world: Callable[..., AbstractContextManager[World]]) -> Iterator[World]:
    with make_world(agents="tests.agents.guarantees") as world:
        world.cluster.up(workers=2)
        yield world


def _start(world: World, of: str, name: str = "") -> str:
    return world.start("guarantees", of=of, name=name or of)


def _kill_holder(world: World, run_id: str) -> None:
    """SIGKILL to the pool child that holds the run's step."""
    pid = world.holder(run_id)
    assert pid not in world.cluster.pids.values()
    os.kill(pid, signal.SIGKILL)


def test_a_place_under_a_rate_limit_is_never_early_and_its_wait_holds_no_worker(
    world: World,
) -> None:
    run_id = _start(world, "rate")
    wait_until(lambda: world.bodies(run_id), what="the first paced step runs")
    other = _start(world, "logged", "beside-the-rate")
    world.wait_run(other)
    assert world.state(run_id) == "running", "nothing waited while the other run went through"
    world.wait_run(run_id)

    rows = database.fetch(
        "SELECT extract(epoch FROM started_at - min(started_at) OVER ())::float8, worker FROM step"
        " WHERE run_id = %(id)s AND step_key LIKE 'paced%%' ORDER BY 1",
        {"id": run_id},
    )
    assert len(rows) == 12
    assert len({worker for _, worker in rows}) == 2
    for number, (after, _) in enumerate(rows):
        assert after >= number / 5 - 0.05, f"claim {number} came too early: {rows}"
    assert set(world.attempts(run_id).values()) == {1}
    check_invariants(settings().database_url, run_id)


def test_a_swallowed_warning_ends_in_a_kill_that_is_noticed_at_once(world: World) -> None:
    run_id = _start(world, "deaf")
    world.wait_run(run_id)
    assert [note["what"] for note in world.notes(run_id, "deaf")] == ["body", "warned", "body"]
    [(outcome, error)] = world.ended(run_id, "deaf")
    assert outcome == "died", "its lease had to run out first"
    assert "TimeLimitExceeded" in error
    assert world.value(run_id, "deaf") == "deaf by attempt 2"
    assert world.step(run_id, "deaf").token == 3  # of the branch: early's claim, and two
    check_invariants(settings().database_url, run_id)


def _run_group(world: World, of: str) -> str:
    """All four members are in the air; member 1 fails, and the others end after the journal knows."""
    for number in range(4):
        world.fx.hold(f"{of}-{number}", "before")
    run_id = _start(world, of)
    for number in range(4):
        world.fx.wait_held(f"{of}-{number}")
    world.fx.release(f"{of}-1")
    wait_until(lambda: world.ended(run_id, "member#2"), what="member 1 failed")
    for number in (0, 2, 3):
        world.fx.release(f"{of}-{number}")
    return run_id


def test_a_strict_group_lets_siblings_finish_and_names_every_failed_index(world: World) -> None:
    run_id = _run_group(world, "strict")
    world.wait_run(run_id, "failed")
    members = {"member", "member#2", "member#3", "member#4"}
    assert set(world.results(run_id)) == {"member", "member#3"}
    assert {note["step_key"] for note in world.notes(run_id)} == members, "more was released"
    row = database.fetch_one("SELECT detail FROM run WHERE run_id = %(id)s", {"id": run_id})
    assert row is not None
    assert "member#2 [1]: Refused: member 1 of strict" in row[0]
    assert "member#4 [3]: Refused: member 3 of strict" in row[0]
    check_invariants(settings().database_url, run_id)


def test_a_tolerant_group_of_chains_hands_results_and_errors_on(world: World) -> None:
    run_id = _run_group(world, "tolerant")
    world.wait_run(run_id)
    first, second, third, fourth = world.value(run_id, "joined")
    assert (first, third) == (0, 2)
    for failed, number in ((second, 1), (fourth, 3)):
        assert failed["error_type"] == "Refused"
        assert failed["error"] == f"Refused: member {number} of tolerant"
    check_invariants(settings().database_url, run_id)


def test_a_known_failure_is_tried_again_after_a_growing_pause(world: World) -> None:
    run_id = _start(world, "stubborn")
    world.wait_run(run_id)
    assert world.value(run_id, "stubborn") == 4
    rows = database.fetch(
        "SELECT extract(epoch FROM coalesce(lead(started_at) OVER (ORDER BY token), ("
        "   SELECT started_at FROM step WHERE run_id = %(id)s AND step_key = 'stubborn')) - ended_at)"
        " FROM attempt WHERE run_id = %(id)s ORDER BY token",
        {"id": run_id},
    )
    pauses = [float(row[0]) for row in rows]
    assert len(pauses) == 3
    for pause, planned in zip(pauses, (0.2, 0.4, 0.8), strict=True):
        assert planned - 0.01 <= pause < planned + 2, pauses
    check_invariants(settings().database_url, run_id)


def test_a_crash_does_not_renew_the_budget_of_retries(world: World) -> None:
    world.fx.hold("crashing", "before")
    run_id = _start(world, "crashing")
    world.fx.wait_held("crashing")
    _kill_holder(world, run_id)
    world.wait_run(run_id, "failed")
    outcomes = [outcome for outcome, _ in world.ended(run_id, "crashing")]
    assert outcomes == ["failed", "died", "failed"]
    step = world.step(run_id, "crashing")
    assert (step.attempt, step.crashes) == (3, 1)
    check_invariants(settings().database_url, run_id)


def test_what_a_dead_attempt_left_running_is_killed_before_the_step_runs_again(
    world: World,
) -> None:
    world.fx.hold("parent", "before")
    run_id = _start(world, "parent")
    world.fx.wait_held("parent")
    stray = int((world.directory / "parent.pid").read_text())
    assert not is_gone(stray), "there is nothing to clean up"
    _kill_holder(world, run_id)
    world.wait_run(run_id)
    assert world.step(run_id, "parent").attempt == 2
    assert world.value(run_id, "parent") is False, "the stray was alive when the body ran again"
    assert is_gone(stray)


def test_a_loop_of_unknown_length_grows_the_plan(world: World) -> None:
    run_id = _start(world, "loop")
    world.wait_run(run_id)
    assert world.value(run_id, "joined") == [0, 1, 2, 3]
    keys = ["think", "think#2", "think#3", "think#4"]
    assert world.attempts(run_id) == dict.fromkeys([*keys, "joined"], 1)
    rows = database.fetch(
        "SELECT step_key, inserted_by FROM steps WHERE run_id = %(id)s AND inserted_by IS NOT NULL"
        " ORDER BY position",
        {"id": run_id},
    )
    assert rows == list(zip(keys[1:], keys[:-1], strict=True))
    check_invariants(settings().database_url, run_id)


def test_log_lines_say_which_attempt_they_are_about(world: World) -> None:
    run_id = _start(world, "logged", "page-77")
    world.wait_run(run_id)
    name = (world.step(run_id, "logged").worker or "").partition("@")[0]
    lines = [line for line in world.cluster.logs(name).splitlines() if "reading page-77" in line]
    assert len(lines) == 1
    assert lines[0].endswith(f"run_id={run_id} step_key=logged attempt=1")
