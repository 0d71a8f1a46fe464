"""What an author of agents can ask of the engine, shown by two real workers, recovery and a real broker."""

import ast
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Thread
from typing import Any

import pytest
from celery import Celery

from models import database
from models.journal import runs
from models.settings import settings
from tests.support.invariants import check_invariants
from tests.support.programs import is_gone
from tests.support.waiting import wait_until
from tests.support.world import World


@pytest.fixture(scope="module")
def world(make_world: Callable[..., AbstractContextManager[World]]) -> Iterator[World]:
    with make_world(agents="tests.agents.features") as world:
        world.cluster.up(workers=2)
        yield world


def _start(world: World, feature: str, name: str = "") -> str:
    return world.start("features", feature=feature, name=name or feature)


def _kill_holder(world: World, run_id: str) -> None:
    """SIGKILL to the pool child that holds the run's step."""
    pid = world.holder(run_id)
    assert pid not in world.cluster.pids.values()
    os.kill(pid, signal.SIGKILL)


def _finished(run_id: str) -> list[tuple[str, float, str]]:
    """(step key, seconds from the first claim of its kind, worker) of a run's paced steps."""
    rows = database.fetch(
        "SELECT step_key, extract(epoch FROM started_at - min(started_at) OVER ())::float8, worker"
        " FROM step WHERE run_id = %(id)s AND step_key LIKE 'paced%%' ORDER BY started_at",
        {"id": run_id},
    )
    return [(row[0], row[1], row[2]) for row in rows]


def test_a_rate_limit_holds_over_all_workers_and_waiting_holds_none(world: World) -> None:
    run_id = _start(world, "paced")
    wait_until(lambda: world.bodies(run_id), what="the first paced step runs")
    other = _start(world, "concurrent")
    world.wait_run(other)
    assert world.state(run_id) == "running", "nothing waited while the other run went through"
    world.wait_run(run_id)

    claims = _finished(run_id)
    assert len(claims) == 12
    assert len({worker for _, _, worker in claims}) == 2
    for number, (step_key, after, _) in enumerate(claims):
        assert after >= number / 5 - 0.05, f"{step_key} came too early: {claims}"
    assert claims[-1][1] < 12 / 5 + 3, "places were left unused"
    assert set(world.attempts(run_id).values()) == {1}
    assert world.bodies(run_id, "paced#12") == 1
    check_invariants(settings().database_url, run_id)


def test_an_async_step_is_run_to_its_end(world: World) -> None:
    run_id = _start(world, "concurrent", "at-once")
    world.wait_run(run_id)
    assert len(world.value(run_id, "concurrent")) == 2
    assert world.fx.all_calls("at-once") == {"at-once-a": 1, "at-once-b": 1}


def test_a_soft_time_limit_is_a_failure_of_the_step(world: World) -> None:
    run_id = _start(world, "endless")
    world.wait_run(run_id, "failed")
    [(outcome, error)] = world.ended(run_id, "endless")
    assert outcome == "failed"
    assert "SoftTimeLimitExceeded" in error
    assert world.step(run_id, "endless").crashes == 0
    check_invariants(settings().database_url, run_id)


def test_a_swallowed_warning_ends_in_a_kill_and_a_fenced_second_attempt(world: World) -> None:
    run_id = _start(world, "deaf")
    world.wait_run(run_id)
    assert [note["what"] for note in world.notes(run_id, "deaf")] == ["body", "warned", "body"]
    [(outcome, error)] = world.ended(run_id, "deaf")
    assert outcome == "died"
    assert "TimeLimitExceeded" in error
    assert world.value(run_id, "deaf") == "deaf by attempt 2"
    assert world.step(run_id, "deaf").token == 3  # early, and two claims
    check_invariants(settings().database_url, run_id)


def test_progress_is_seen_while_the_step_runs(world: World) -> None:
    world.fx.hold("slow", "before")
    run_id = _start(world, "slow")
    world.fx.wait_held("slow")
    query = "SELECT progress_done, progress_total, progress_note FROM steps WHERE run_id = %(id)s"
    rows = database.fetch(query + " AND step_key = 'slow'", {"id": run_id})
    world.fx.release("slow")
    assert rows == [(3, 10, "pages of slow")]
    world.wait_run(run_id)


def test_an_untracked_step_waits_for_a_person_when_its_owner_dies(world: World) -> None:
    world.fx.hold("blind", "before")
    run_id = _start(world, "blind")
    world.fx.wait_held("blind")
    _kill_holder(world, run_id)
    world.wait_run(run_id, "blocked")
    assert world.step(run_id, "blind").block_reason == "untracked_step"
    assert world.bodies(run_id, "blind") == 1
    check_invariants(settings().database_url, run_id)

    assert runs.send_back(run_id, by="tester") == ["blind"]
    world.wait_run(run_id)
    assert world.attempts(run_id) == {"early": 1, "blind": 2}
    assert ("step_sent_back", "blind", "") in world.events(run_id)
    check_invariants(settings().database_url, run_id)


def _run_group(world: World, feature: str) -> str:
    """All four members are in the air; member 1 fails first, and the others end after the journal knows."""
    for number in range(4):
        world.fx.hold(f"{feature}-{number}", "before")
    run_id = _start(world, feature)
    for number in range(4):
        world.fx.wait_held(f"{feature}-{number}")
    world.fx.release(f"{feature}-1")
    wait_until(lambda: world.ended(run_id, "member#2"), what="member 1 failed")
    for number in (0, 2, 3):
        world.fx.release(f"{feature}-{number}")
    return run_id


def test_a_strict_group_lets_siblings_finish_and_names_every_failed_member(world: World) -> None:
    run_id = _run_group(world, "strict")
    world.wait_run(run_id, "failed")
    assert set(world.results(run_id)) == {"member", "member#3"}
    assert {note["step_key"] for note in world.notes(run_id)} == {
        "member", "member#2", "member#3", "member#4",
    }  # fmt: skip
    row = database.fetch_one("SELECT reason, detail FROM run WHERE run_id = %(id)s", {"id": run_id})
    assert row is not None
    assert row[0] == "Refused"
    assert "member#2 [1]: Refused: member 1 of strict" in row[1]
    assert "member#4 [3]: Refused: member 3 of strict" in row[1]
    check_invariants(settings().database_url, run_id)


def test_a_tolerant_group_hands_its_errors_on(world: World) -> None:
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
    assert [outcome for outcome, _ in world.ended(run_id, "crashing")] == [
        "failed",
        "died",
        "failed",
    ]
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
    run_id = _start(world, "think")
    world.wait_run(run_id)
    assert world.value(run_id, "joined") == [0, 1, 2, 3]
    keys = [f"think#{number}" if number > 1 else "think" for number in range(1, 5)]
    assert world.attempts(run_id) == dict.fromkeys([*keys, "joined"], 1)
    rows = database.fetch(
        "SELECT step_key, inserted_by FROM steps WHERE run_id = %(id)s AND inserted_by IS NOT NULL"
        " ORDER BY position",
        {"id": run_id},
    )
    assert rows == list(zip(keys[1:], keys, strict=False))
    check_invariants(settings().database_url, run_id)


def test_log_lines_say_which_attempt_they_are_about(world: World) -> None:
    run_id = _start(world, "logged", "page-77")
    world.wait_run(run_id)
    name = (world.step(run_id, "logged").worker or "").partition("@")[0]
    lines = [line for line in world.cluster.logs(name).splitlines() if "reading page-77" in line]
    assert len(lines) == 1
    assert lines[0].endswith(f"run_id={run_id} step_key=logged attempt=1")


@contextmanager
def _foreign_app() -> Iterator[Celery]:
    """An app of somebody else's: our broker, none of our code."""
    app = Celery("their-shop", broker=settings().broker_url)
    app.conf.broker_transport_options = {"global_keyprefix": settings().key_prefix}
    yield app
    app.close()


@contextmanager
def _events(app: Celery) -> Iterator[list[dict[str, Any]]]:
    """Every task event from the moment on in which one from a worker has come."""
    seen: list[dict[str, Any]] = []
    with app.connection_for_read() as link:
        receiver = app.events.Receiver(link, handlers={"*": seen.append})
        thread = Thread(target=lambda: receiver.capture(limit=None, timeout=None, wakeup=False))
        thread.start()
        try:
            wait_until(lambda: seen, timeout=20, what="an event comes, if only a heartbeat")
            yield seen
        finally:
            receiver.should_stop = True
            thread.join()


def _submitted_as(key: str) -> list[str]:
    rows = database.fetch("SELECT run_id FROM run WHERE submission_key = %(key)s", {"key": key})
    return [row[0] for row in rows]


def _wait_submitted(key: str) -> str:
    return wait_until(
        lambda: (_submitted_as(key) or [""])[0], what=f"a run of the key {key} is there"
    )


def test_a_run_is_started_by_a_message_without_our_code_and_its_input_is_shown_nowhere(
    world: World,
) -> None:
    order = {
        "workflow": "features", "input": {"feature": "logged", "name": "a-secret-prompt"},
        "key": "order-17",
    }  # fmt: skip
    with _foreign_app() as app, _events(app) as events:
        for _ in range(2):
            app.send_task("onward.start_run", kwargs=order, queue="onward.start")
        run_id = _wait_submitted("order-17")
        world.wait_run(run_id)
        received = wait_until(
            lambda: found if len(found := _received(events, "onward.start_run")) == 2 else None,
            what="both messages were received",
        )
        steps = wait_until(
            lambda: _received(events, "features.logged"), what="the step's event has come"
        )
    assert received == [{"workflow": "features", "key": "order-17"}] * 2
    assert steps == [{"run_id": run_id, "branch": "0", "step_key": "logged"}]
    assert "secret" not in json.dumps(events)
    assert _submitted_as("order-17") == [run_id]
    assert world.attempts(run_id) == {"early": 1, "logged": 1}


def _received(events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """The keyword arguments that Flower would show of these tasks."""
    return [
        ast.literal_eval(event["kwargs"])
        for event in list(events)
        if event["type"] == "task-received" and event["name"] == name
    ]


def test_a_starting_message_that_comes_twice_makes_one_run(world: World) -> None:
    order = {"workflow": "features", "input": {"feature": "logged", "name": "twice"}}
    with _foreign_app() as app:
        for _ in range(2):  # as the broker does when the worker died before its ack
            app.send_task(
                "onward.start_run", kwargs=order, queue="onward.start", task_id="their-task-1"
            )
    run_id = _wait_submitted("message-their-task-1")
    world.wait_run(run_id)
    wait_until(
        lambda: sum("their-task-1] succeeded" in log for log in _worker_logs(world)) == 2,
        what="both messages were handled",
    )
    query = "SELECT count(*) FROM run WHERE input LIKE '%%\"twice\"%%'"
    assert database.fetch(query, {}) == [(1,)]


def _worker_logs(world: World) -> list[str]:
    return [line for name in world.cluster.pids for line in world.cluster.logs(name).splitlines()]
