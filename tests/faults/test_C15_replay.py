"""C15: after a crash every recorded answer is given again, in its place, and to the same question only."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from models import database
from models.journal import runs as journal_runs
from models.settings import settings
from recovery.watch import why
from tests.agents.recorded import CHANGE
from tests.support.invariants import check_invariants
from tests.support.models import Answer, ModelService, models_service
from tests.support.waiting import wait_until
from tests.support.world import World


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelService]:
    with models_service(tmp_path_factory.mktemp("models")) as service:
        yield service


@pytest.fixture(scope="module")
def world(
    make_world: Callable[..., AbstractContextManager[World]], service: ModelService
) -> Iterator[World]:
    env = {
        "ONWARD_MODEL_ENDPOINTS": service.url, "ONWARD_CRASH_LIMIT": "50", "ONWARD_LOST_LIMIT": "50",
    }  # fmt: skip
    with make_world(agents="tests.agents.recorded", env=env) as world:
        world.cluster.recovery()
        yield world


def recorded(run_id: str) -> list[tuple[str, int, str]]:
    """(scope, position, digest) of what is on record, in order."""
    rows = database.fetch(
        "SELECT scope, position, digest FROM recorded_call WHERE run_id = %(id)s ORDER BY 1, 2",
        {"id": run_id},
    )
    return [(row[0], row[1], row[2]) for row in rows]


def start_and_kill(world: World, worker: str, *, texts: dict[str, bool]) -> dict[str, str]:
    """Runs that have four answers each on record, and no process any more; the first dies at P4."""
    world.cluster.worker(
        worker, concurrency=len(texts),
        env={"PYTHONHASHSEED": "1", "ONWARD_FAILPOINTS": "P4:stop@sampling.ask"},
    )  # fmt: skip
    runs = {
        text: world.start("sampling", text=text, linger=linger) for text, linger in texts.items()
    }
    world.wait_fired("P4")
    wait_until(
        lambda: all(
            any(one["what"] == "answered" for one in world.notes(run)) for run in runs.values()
        ),
        what="all have their answers",
    )
    pids = [world.holder(run_id) for run_id in runs.values()]
    world.cluster.kill(worker)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return runs


def test_C15_answers_come_back_in_order_and_never_for_another_question(
    world: World, service: ModelService
) -> None:
    texts = {"the same": False, "another prompt": True, "another tool": True}
    for text in texts:
        service.script(text, *[f"{text} {letter}" for letter in "abcd"])
    runs = start_and_kill(world, "worker-1", texts=texts)
    before = {text: recorded(run_id) for text, run_id in runs.items()}
    assert {text: service.count(text) for text in texts} == dict.fromkeys(texts, 4)
    for places in before.values():
        assert [(scope, position) for scope, position, _ in places] == [("", n) for n in range(4)]
        assert len({digest for _, _, digest in places}) == 3  # the two samples are one question

    changes = "another prompt=prompt,another tool=tools"
    world.cluster.worker("worker-2", env={"PYTHONHASHSEED": "2", CHANGE: changes})
    same = runs.pop("the same")
    world.wait_run(same)
    for run_id in runs.values():
        world.wait_run(run_id, "blocked")
    world.cluster.kill("worker-2")
    assert world.value(same, "ask") == [f"the same {letter}" for letter in "abcd"]
    assert {text: service.count(text) for text in texts} == dict.fromkeys(texts, 4)
    assert recorded(same) == before["the same"]
    assert_blocked(world, runs)
    check_invariants(settings().database_url, same)

    world.cluster.worker("worker-3", env={"PYTHONHASHSEED": "3"})  # the former deployment is back
    for text, run_id in runs.items():
        journal_runs.send_back(run_id, by="ada")
        world.wait_run(run_id)
        assert world.value(run_id, "ask") == [f"{text} {letter}" for letter in "abcd"]
        assert service.count(text) == 4


def assert_blocked(world: World, runs: dict[str, str]) -> None:
    differs = {"another prompt": "position 2 of scope '' differs in 'messages'",
               "another tool": "position 3 of scope '' differs in 'tools'"}  # fmt: skip
    for text, run_id in runs.items():
        step = world.step(run_id, "ask")
        assert (step.state, step.block_reason) == ("failed", "replay_mismatch")
        assert differs[text] in why(run_id).sentence
        assert [kind for kind, _, _ in world.events(run_id, "replay_mismatch")] != []


@pytest.mark.parametrize("workflow", ["gathering", "spreading"])
def test_C15_concurrent_calls_never_swap_over_a_kill_after_recorded_answers(
    world: World, service: ModelService, workflow: str
) -> None:
    members, text = 3, f"sample for {workflow}"
    service.script(text, *[Answer(delay=0.05 + 0.06 * (number % 4)) for number in range(200)])
    run_id = world.start(workflow, text=text, members=members)
    kills = 0
    while world.state(run_id) != "completed":
        known = len(recorded(run_id))
        wait_until(
            lambda known=known: len(recorded(run_id)) > known or world.state(run_id) == "completed",  # type: ignore[misc]
            timeout=30,
            what="one more answer is recorded",
            details=lambda: world.history(run_id),
        )
        holder = database.fetch_one(
            "SELECT pid FROM live WHERE run_id = %(id)s AND owner IS NOT NULL AND step_key <> 'report'",
            {"id": run_id},
        )
        if kills < 4 and holder is not None and holder[0] is not None:
            os.kill(holder[0], signal.SIGKILL)
            kills += 1

    assert kills >= 2
    assert len(recorded(run_id)) == 2 * members
    heard: dict[str, set[str]] = {}
    for one in world.notes(run_id):
        if one["what"] == "answer":
            heard.setdefault(one["who"], set()).add(one["text"])
    assert len(heard) == 2 * members
    assert all(len(texts) == 1 for texts in heard.values()), heard
    assert len(set.union(*heard.values())) == 2 * members
    check_invariants(settings().database_url, run_id)
