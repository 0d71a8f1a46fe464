"""A worker of threads: a hundred steps wait for a model in one process, fenced like any other."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from models import database
from models.settings import settings
from tasks.pools import CONNECTIONS
from tests.support.invariants import check_invariants
from tests.support.models import Answer, ModelService, models_service
from tests.support.waiting import wait_until
from tests.support.world import World

WAITS = 100
GRACE = 1  #: seconds that a prefork worker's steps get on SIGTERM
QUEUE = "llm.pondering@1"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelService]:
    with models_service(tmp_path_factory.mktemp("models")) as service:
        yield service


@pytest.fixture(scope="module")
def world(
    make_world: Callable[..., AbstractContextManager[World]], service: ModelService
) -> Iterator[World]:
    env = {"ONWARD_LLM_BASE_URL": service.url, "ONWARD_SHUTDOWN_GRACE": str(GRACE)}
    with make_world(
        agents=",".join(f"tests.agents.{name}" for name in ("waiting", "unseen", "astray")), env=env
    ) as world:
        world.cluster.recovery()
        yield world


def waiting_worker(world: World, name: str, *queues: str, concurrency: int = WAITS) -> int:
    """Start a worker of threads; its pid."""
    services = world.cluster.services
    return world.cluster.start(services.waiting_worker(name, *queues, concurrency=concurrency))


def memory(pid: int) -> float:
    """MB that a process has in memory."""
    resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return resident * os.sysconf("SC_PAGE_SIZE") / 1e6


def connections() -> int:
    row = database.fetch_one(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()", {}
    )
    return int(row[0]) if row else 0


def test_a_hundred_steps_wait_at_once_on_one_worker(world: World, service: ModelService) -> None:
    service.script("slow question", Answer(text="slowly", hold="hundred"))
    service.script("quick question", "quickly")
    before = connections()
    runs = [world.start("pondering", number=number) for number in range(WAITS)]
    pid = waiting_worker(world, "waiting-1", QUEUE)
    service.wait_held("hundred", count=WAITS)
    held, opened = memory(pid), connections() - before
    service.release("hundred")
    world.wait_runs(runs)
    assert held < 300, f"{held:.0f} MB with {WAITS} steps in the air"
    assert opened <= CONNECTIONS + 2, "whoever waits for a model holds no connection"
    assert service.count("slow question") == service.count("quick question") == WAITS
    assert service.billed().calls == 2 * WAITS
    assert {world.value(run_id, "ponder") for run_id in runs} == {"quickly slowly"}
    assert all(count == 1 for run_id in runs for count in world.attempts(run_id).values())
    world.cluster.kill("waiting-1")


def test_a_killed_one_is_recovered_and_no_recorded_call_is_made_again(
    world: World, service: ModelService
) -> None:
    few = 30
    service.clear()
    service.script("quick question 5", "quickly")
    service.script("slow question 5", Answer(text="slowly", hold="gate"))
    runs = [world.start("pondering", number=500 + number) for number in range(few)]
    waiting_worker(world, "waiting-2", QUEUE)
    service.wait_held("gate", count=few)
    world.cluster.kill("waiting-2")
    service.release("gate")
    service.wait_idle()
    service.script("slow question 5", "slowly")
    waiting_worker(world, "waiting-3", QUEUE)
    world.wait_runs(runs)
    assert service.count("quick question 5") == few, "recorded before the kill"
    assert service.count("slow question 5") == 2 * few, "those in the air are asked again"
    assert {world.value(run_id, "ponder") for run_id in runs} == {"quickly slowly"}
    for run_id in runs[:3]:
        check_invariants(settings().database_url, run_id)
    world.cluster.kill("waiting-3")


def test_a_step_over_its_limit_loses_its_lease_since_a_thread_cannot_be_ended(
    world: World, service: ModelService
) -> None:
    service.clear()
    service.fault("hanging question", Answer(text="too late", hold="long"))
    service.script("hanging question", "in time")
    service.fault("hanging question", Answer(text="too late", hold="long"))
    waiting_worker(world, "waiting-4", "llm.hanging@1", concurrency=4)
    run_id = world.start("hanging", number=1)
    world.wait_run(run_id)
    assert world.value(run_id, "hang") == "in time"
    assert "over its time limit" in world.cluster.logs("waiting-4")
    service.release("long")
    service.wait_idle()
    assert world.value(run_id, "hang") == "in time", "what came late is not this step's any more"
    assert world.state(run_id) == "completed"
    world.cluster.kill("waiting-4")


def test_one_that_was_stopped_for_longer_than_its_lease_changes_nothing_when_it_wakes(
    world: World, service: ModelService
) -> None:
    few = 20
    service.clear()
    service.script("quick question 6", "quickly")
    service.script("slow question 6", Answer(text="too late", hold="stopped"))
    waiting_worker(world, "waiting-8", QUEUE)
    runs = [world.start("pondering", number=600 + number) for number in range(few)]
    service.wait_held("stopped", count=few)
    world.cluster.send_signal("waiting-8", signal.SIGSTOP)
    service.script("slow question 6", "in time")
    waiting_worker(world, "waiting-9", QUEUE)
    world.wait_runs(runs)
    before = [(world.results(run_id), world.attempts(run_id)) for run_id in runs]

    service.release("stopped")
    service.wait_idle()
    world.cluster.send_signal("waiting-8", signal.SIGCONT)
    world.cluster.kill("waiting-8", signal.SIGTERM)  # which waits for its threads, all of them late

    assert [(world.results(run_id), world.attempts(run_id)) for run_id in runs] == before
    assert {world.value(run_id, "ponder") for run_id in runs} == {"quickly in time"}
    assert service.count("quick question 6") == few
    assert service.count("slow question 6") == 2 * few
    for run_id in runs[:3]:
        check_invariants(settings().database_url, run_id)
    world.cluster.kill("waiting-9")


def test_one_that_is_told_to_leave_ends_when_its_steps_have_ended(
    world: World, service: ModelService
) -> None:
    service.clear()
    service.script("quick question 7", "quickly")
    service.script("slow question 7", Answer(text="slowly", delay=4 * GRACE))
    waiting_worker(world, "waiting-7", QUEUE)
    runs = [world.start("pondering", number=700 + number) for number in range(WAITS)]
    wait_until(lambda: service.count("slow question 7") == WAITS, timeout=30, what="all wait")
    world.cluster.send_signal("waiting-7", signal.SIGTERM)
    late = world.start("pondering", number=800)
    wait_until(lambda: not world.cluster.is_running("waiting-7"), timeout=60, what="it has left")

    assert "are waited for" in world.cluster.logs("waiting-7")
    assert "Traceback" not in world.cluster.logs("waiting-7")
    assert world.count_in_state(runs, "completed") == WAITS
    assert service.count("slow question 7") == WAITS
    assert all(count == 1 for run_id in runs for count in world.attempts(run_id).values())
    assert world.state(late) == "pending", "one that leaves takes nothing new"


@pytest.mark.parametrize(
    ("queues", "reason"),
    [
        (("onward.control", QUEUE), "Name them"),
        (("llm.scraping@1", QUEUE), "untracked steps must be on a worker that can end them"),
    ],
    ids=["all queues", "an untracked step's"],
)
def test_it_does_not_start_where_it_would_be_given_what_it_must_not_run(
    world: World, queues: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(AssertionError, match="ended at once"):
        waiting_worker(world, "waiting-5", *queues, concurrency=2)
    assert reason in world.cluster.tail("waiting-5")


def test_an_untracked_step_that_a_plan_sends_there_stops_for_a_person(world: World) -> None:
    waiting_worker(world, "waiting-6", "llm.straying@1", concurrency=2)
    run_id = world.start("straying")
    world.wait_run(run_id, "blocked")
    step = world.step(run_id, "astray")
    assert step.block_reason == "untracked_step"
    assert world.bodies(run_id) == 0
    world.cluster.kill("waiting-6")
