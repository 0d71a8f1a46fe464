"""``onward.start_run``: runs submitted by Celery messages of an app that has none of our code."""

import ast
import json
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Thread
from typing import Any

import pytest
from celery import Celery

from models import database
from models.settings import settings
from tests.support.waiting import wait_until
from tests.support.world import World

SECRET = "what-nobody-but-the-step-may-read"


@pytest.fixture(scope="module")
def world(make_world: Callable[..., AbstractContextManager[World]]) -> Iterator[World]:
    with make_world(agents="tests.agents.guarantees") as world:
        world.cluster.worker("worker-1")
        world.cluster.worker("stranger", env={"ONWARD_AGENTS": "tests.agents.plain"})
        yield world


@pytest.fixture
def shop() -> Iterator[Celery]:
    """Somebody else's app: our broker and our prefix, none of our code."""
    with Celery("their-shop", broker=settings().broker_url) as app:
        app.conf.broker_transport_options = {"global_keyprefix": settings().key_prefix}
        yield app


def _order(name: str, **options: str) -> dict[str, object]:
    return {"workflow": "guarantees", "input": {"of": "logged", "name": name}, **options}


def _send(app: Celery, order: dict[str, object], **options: str) -> None:
    app.send_task("onward.start_run", kwargs=order, queue="onward.start", **options)


def _runs(key: str) -> list[str]:
    rows = database.fetch("SELECT run_id FROM run WHERE submission_key = %(key)s", {"key": key})
    return [row[0] for row in rows]


def _handled(world: World, task_id: str) -> list[str]:
    """The workers that took this message, once for each time."""
    return [
        name
        for name in world.cluster.pids
        for line in world.cluster.logs(name).splitlines()
        if f"onward.start_run[{task_id}] received" in line
    ]


@contextmanager
def _events(app: Celery) -> Iterator[list[dict[str, Any]]]:
    """Every event of the cluster, as Flower gets it, after the first one has come."""
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


def _shown(events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """The keyword arguments of these tasks as their events show them."""
    return [
        ast.literal_eval(event["kwargs"])
        for event in list(events)
        if event["type"] == "task-received" and event["name"] == name
    ]


def test_a_key_makes_one_run_and_its_input_is_shown_nowhere(world: World, shop: Celery) -> None:
    with _events(shop) as events:
        for task_id in ("first-try", "second-try"):
            _send(shop, _order(SECRET, key="order-17"), task_id=task_id)
        run_id = wait_until(lambda: _runs("order-17"), what="the run exists")[0]
        world.wait_run(run_id)
        wait_until(
            lambda: _handled(world, "first-try") and _handled(world, "second-try"),
            what="both messages were handled",
        )
        steps = wait_until(lambda: _shown(events, "guarantees.logged"), what="the step's event")
        starts = wait_until(
            lambda: found if len(found := _shown(events, "onward.start_run")) >= 2 else None,
            what="the events of both messages",
        )
    assert {json.dumps(one) for one in starts} == {
        json.dumps({"workflow": "guarantees", "key": "order-17"})
    }
    assert steps == [{"run_id": run_id, "branch": "0", "step_key": "logged"}]
    assert SECRET not in json.dumps(events)
    assert _runs("order-17") == [run_id]
    assert world.attempts(run_id) == {"early": 1, "logged": 1}


def test_a_message_that_comes_twice_makes_one_run_without_a_key_of_its_own(
    world: World, shop: Celery
) -> None:
    for _ in range(2):  # as the broker does when a worker dies before its ack
        _send(shop, _order("twice"), task_id="their-task-1")
    run_id = wait_until(lambda: _runs("message-their-task-1"), what="the run exists")[0]
    world.wait_run(run_id)
    wait_until(lambda: len(_handled(world, "their-task-1")) >= 2, what="both were taken")
    assert database.fetch("SELECT count(*) FROM run WHERE input LIKE '%%\"twice\"%%'", {}) == [(1,)]


def test_a_worker_without_the_workflow_hands_the_message_to_one_that_has_it(
    world: World, shop: Celery
) -> None:
    world.cluster.kill("worker-1")
    _send(shop, _order("handed-on", key="handed-on"), task_id="handed-on")
    wait_until(lambda: world.queue_length("onward.start.guarantees") == 1, what="it was handed on")
    assert _handled(world, "handed-on") == ["stranger"]
    world.cluster.worker("worker-1")
    run_id = wait_until(lambda: _runs("handed-on"), what="the run exists")[0]
    world.wait_run(run_id)


def test_what_cannot_be_started_says_why_in_the_log_and_to_nobody_else(
    world: World, shop: Celery
) -> None:
    with _events(shop) as events:
        _send(shop, {"workflow": "no-such", "input": {"name": SECRET}}, task_id="refused")
        failed = wait_until(
            lambda: [one for one in events if one["type"] == "task-failed"], what="it failed"
        )
    assert "no-such" in failed[0]["exception"]
    assert SECRET not in json.dumps(events)
    logs = "".join(world.cluster.logs(name) for name in world.cluster.pids)
    assert "no workflow is called 'no-such'" in logs


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"key": ""}, "submission_key"),
        ({"key": "e\u0301"}, "submission_key"),
        ({"key": "x" * 300}, "submission_key"),
        ({"key": "k", "run_id": "run-\x00"}, "run_id"),
        ({"key": "k", "batch_id": "a\nb"}, "batch_id"),
        ({"key": "k", "priority": "high"}, "priority"),
        ({"key": "k", "priority": 10**30}, "priority"),
    ],
    ids=["empty", "not NFC", "long", "NUL", "control", "no number", "beyond bounds"],
)
def test_a_bad_field_is_refused_by_its_name_and_writes_nothing(
    world: World, shop: Celery, options: dict[str, object], said: str
) -> None:
    before = database.fetch("SELECT count(*) FROM run", {})
    name = world.cluster.pids.__iter__().__next__()
    seen = len(world.cluster.logs(name))
    _send(shop, {"workflow": "guarantees", "input": {"of": "logged", "name": "x"}, **options})
    refused = re.compile(rf"not submitted: .*\b{said}\b")  # Celery's own line names no field
    wait_until(lambda: refused.search(world.cluster.logs(name)[seen:]), what="the log says why not")
    assert database.fetch("SELECT count(*) FROM run", {}) == before


def test_a_batch_is_made_when_its_first_run_names_it(world: World, shop: Celery) -> None:
    _send(shop, {**_order("first"), "key": "in-batch", "batch_id": "orders", "priority": 5})
    run_id = wait_until(lambda: _runs("in-batch"), what="the run exists")[0]
    world.wait_run(run_id)
    row = database.fetch_one(
        "SELECT batch_id, priority FROM run WHERE run_id = %(id)s", {"id": run_id}
    )
    assert row == ("orders", 5)


def test_a_worker_that_cannot_reach_the_journal_gives_the_message_back(
    world: World, shop: Celery
) -> None:
    for name in list(world.cluster.pids):
        world.cluster.kill(name)
    nowhere = "postgresql+psycopg://onward@127.0.0.1:1/onward"
    world.cluster.worker("cut-off", env={"ONWARD_DATABASE_URL": nowhere})
    _send(shop, _order("given-back", key="given-back"), task_id="given-back")
    wait_until(
        lambda: "Giving its message back" in world.cluster.logs("cut-off"), what="it was given back"
    )
    world.cluster.worker("worker-1")
    wait_until(lambda: _runs("given-back"), timeout=20, what="another worker made the run")
