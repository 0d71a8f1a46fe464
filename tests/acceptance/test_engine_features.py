"""What a step may ask for, on two real workers: rates, limits, retries, progress, tolerance, async."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import pairwise

import pytest

from models import database
from models.journal import runs
from models.settings import settings
from recovery.watch import why
from tests.support.invariants import check_invariants
from tests.support.world import World


@pytest.fixture(scope="module")
def world(make_world: Callable[..., AbstractContextManager[World]]) -> Iterator[World]:
    with make_world(agents="tests.agents.features") as world:
        world.cluster.up(workers=2, concurrency=2)
        yield world


def test_an_async_step_is_run_to_its_end(world: World) -> None:
    run_id = world.start("feature-async", number=41)
    world.wait_run(run_id)
    assert world.value(run_id, "patient") == 42


def test_a_soft_time_limit_is_a_failure_of_the_step(world: World) -> None:
    run_id = world.start("feature-soft-limit")
    world.wait_run(run_id, "failed", timeout=10)
    assert why(run_id).word == "SoftTimeLimitExceeded"
    assert world.bodies(run_id) == 1
    check_invariants(settings().database_url, run_id)


def test_a_step_that_outruns_its_hard_limit_each_time_is_poison(world: World) -> None:
    run_id = world.start("feature-always-deaf")
    world.wait_run(run_id, "blocked", timeout=40)
    assert world.step(run_id, "always_deaf").block_reason == "poison_step"
    assert world.bodies(run_id) == 3
    check_invariants(settings().database_url, run_id)


def test_progress_is_visible_while_a_step_runs(world: World) -> None:
    world.fx.hold("talk", "before")
    run_id = world.start("feature-progress", intent="talk")
    world.fx.wait_held("talk")
    row = database.fetch_one(
        "SELECT progress_done, progress_total, progress_note FROM steps WHERE run_id = %(id)s",
        {"id": run_id},
    )
    assert row == (3, 10, "pages")
    assert "3 of 10, pages" in why(run_id).sentence
    world.fx.release("talk")
    world.wait_run(run_id)


def test_an_untracked_step_waits_for_a_person_when_its_owner_dies(world: World) -> None:
    world.fx.hold("blind", "after")
    run_id = world.start("feature-untracked", intent="blind")
    world.fx.wait_held("blind")
    os.kill(world.holder(run_id), signal.SIGKILL)
    world.wait_run(run_id, "blocked", timeout=15)
    assert world.step(run_id, "untracked").block_reason == "untracked_step"
    assert "outside world" in why(run_id).sentence
    assert world.bodies(run_id) == 1, "repeated blindly"
    check_invariants(settings().database_url, run_id)

    assert runs.send_back(run_id, by="operator@example.org") == ["untracked"]
    world.wait_run(run_id)
    assert world.attempts(run_id) == {"untracked": 2}
    assert world.fx.effects("blind") == 1
    check_invariants(settings().database_url, run_id)


def test_a_tolerant_group_hands_on_results_and_errors_in_input_order(world: World) -> None:
    run_id = world.start("feature-tolerant", size=5)
    world.wait_run(run_id)
    results = world.value(run_id, "collect")
    assert [results[index] for index in (0, 2, 4)] == [0, 2, 4]
    assert [results[index]["error_type"] for index in (1, 3)] == ["ValueError", "ValueError"]
    assert "3 is odd" in results[3]["error"]
    check_invariants(settings().database_url, run_id)


def test_steps_of_one_branch_never_overlap(world: World) -> None:
    """Over all that ran here: a step began after its predecessor had ended."""
    rows = database.fetch(
        "SELECT s.run_id, s.branch, s.started_at, s.finished_at FROM step s JOIN plan p"
        " USING (run_id, step_key) WHERE s.state = 'completed' ORDER BY s.run_id, s.branch, p.position",
        {},
    )
    assert rows
    for earlier, later in pairwise(rows):
        if earlier[:2] == later[:2]:
            assert earlier[3] <= later[2]
