"""Workers come and go in the middle of a batch; the outside world counts what was done."""

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from models import database
from models.settings import settings
from tests.support.invariants import check_invariants
from tests.support.waiting import wait_until
from tests.support.world import World

DOCUMENTS = 400
#: Documents whose step is in the air, held by the outside world, while its worker is told to leave.
HELD = tuple(range(60, DOCUMENTS, 60))


@pytest.fixture(scope="module")
def world(make_world: Callable[..., AbstractContextManager[World]]) -> Iterator[World]:
    with make_world(agents="tests.agents.effects") as world:
        yield world


def _intent(number: int) -> str:
    return f"document-{number:03}"


def _done(world: World, run_ids: list[str]) -> int:
    return world.count_in_state(run_ids, "completed")


def _leave(world: World, intent: str, run_id: str) -> str:
    """SIGTERM to the worker whose step waits outside; it ends well once the step has its answer."""
    world.fx.wait_held(intent, timeout=60)
    name = _worker_of(run_id)
    world.cluster.send_signal(name, signal.SIGTERM)
    wait_until(
        lambda: "Initiating Soft Shutdown" in world.cluster.logs(name),
        what=f"{name} is on its way out",
    )
    assert world.fx.release(intent) == 1
    wait_until(lambda: not world.cluster.is_running(name), timeout=30, what=f"{name} is gone")
    return name


def _worker_of(run_id: str) -> str:
    row = database.fetch_one(
        "SELECT worker FROM live WHERE run_id = %(id)s AND owner IS NOT NULL", {"id": run_id}
    )
    assert row is not None
    return str(row[0]).partition("@")[0]


def test_workers_come_and_go_and_every_document_is_done_once(world: World) -> None:
    for number in HELD:
        world.fx.hold(_intent(number), "before")
    runs = [world.start("effects", intent=_intent(number)) for number in range(DOCUMENTS)]
    held = [(_intent(number), runs[number]) for number in HELD]
    world.cluster.up(workers=1)
    gone = []
    for size, (intent, run_id) in zip((2, 4, 8), held, strict=False):
        running = {name for name in world.cluster.pids if name.startswith("worker")}
        names = [f"worker-{size}{letter}" for letter in "abcdefgh"[: size - len(running)]]
        world.cluster.start_together(
            *(world.cluster.services.worker(name, concurrency=1) for name in names)
        )
        assert _done(world, runs) < DOCUMENTS, "the batch was over before the last workers came"
        gone.append(_leave(world, intent, run_id))
    for intent, run_id in held[3:]:
        assert _done(world, runs) < DOCUMENTS, "the batch was over before the last worker left"
        gone.append(_leave(world, intent, run_id))
    world.wait_runs(runs)

    assert len(gone) == len(HELD) == len(set(gone))
    intents = {_intent(number): 1 for number in range(DOCUMENTS)}
    assert world.fx.all_calls("document-") == intents
    assert world.fx.all_effects("document-") == intents
    assert _steps_by_attempt(runs) == {1: 3 * DOCUMENTS}
    assert _ended_attempts(runs) == []
    for run_id in [run for _, run in held]:
        check_invariants(settings().database_url, run_id)


def _steps_by_attempt(run_ids: list[str]) -> dict[int, int]:
    rows = database.fetch(
        "SELECT attempt, count(*) FROM step WHERE run_id = ANY(%(ids)s) GROUP BY 1",
        {"ids": run_ids},
    )
    return {row[0]: row[1] for row in rows}


def _ended_attempts(run_ids: list[str]) -> list[database.Row]:
    """Attempts that did not end in a result, and why."""
    return database.fetch(
        "SELECT run_id, step_key, outcome, error FROM attempt WHERE run_id = ANY(%(ids)s)",
        {"ids": run_ids},
    )
