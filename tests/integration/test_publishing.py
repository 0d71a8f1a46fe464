"""Messages on a real broker: what they hold, and what becomes of them when the broker fails."""

import base64
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from celery import Celery

from models.ids import task_id
from models.journal.values import Wakeup
from tasks.publishing import publish

QUEUE = "steps.toy@1"


def wakeups(count: int) -> list[Wakeup]:
    return [
        Wakeup("run-1", "0", f"read#{number}", "toy.read", QUEUE, attempt=1)
        for number in range(1, count + 1)
    ]


@pytest.fixture
def broker(broker_url: str) -> Iterator["redis.Redis"]:
    with redis.Redis.from_url(broker_url) as client:
        yield client


@pytest.fixture
def app(broker_url: str) -> Iterator[Celery]:
    app = Celery("publishing", broker=broker_url)
    app.conf.task_publish_retry_policy = {"max_retries": 2, "interval_start": 0}
    yield app
    app.close()


def queued(broker: "redis.Redis") -> list[dict[str, Any]]:
    """The messages in the order in which a worker takes them."""
    return [json.loads(text) for text in reversed(broker.lrange(QUEUE, 0, -1))]


def keys(messages: list[dict[str, Any]]) -> list[str]:
    bodies = [json.loads(base64.b64decode(message["body"])) for message in messages]
    return [kwargs["step_key"] for _args, kwargs, _embed in bodies]


def test_a_message_is_an_ordinary_celery_message_of_ids_only(
    app: Celery, broker: "redis.Redis"
) -> None:
    assert publish(app, wakeups(1)) == 1

    [message] = queued(broker)
    args, kwargs, _embed = json.loads(base64.b64decode(message["body"]))
    assert (args, kwargs) == ([], {"run_id": "run-1", "branch": "0", "step_key": "read#1"})
    headers = message["headers"]
    assert headers["task"] == "toy.read"
    assert headers["id"] == headers["root_id"] == task_id("run-1", "read#1", 1)
    assert headers["kwargsrepr"] == repr(kwargs)
    assert headers["timelimit"] == [None, None], "the limits are the consuming worker's own"


def test_many_messages_go_out_in_order_in_few_round_trips(
    app: Celery, broker: "redis.Redis"
) -> None:
    publish(app, wakeups(1))  # the connection is open
    broker.delete(QUEUE)
    reads = _reads(broker)

    assert publish(app, wakeups(90)) == 90

    assert keys(queued(broker)) == [f"read#{number}" for number in range(1, 91)]
    assert _reads(broker) - reads < 20


def test_a_connection_that_broke_costs_no_message(app: Celery, broker: "redis.Redis") -> None:
    publish(app, wakeups(1))
    broker.client_kill_filter(_type="normal", skipme=True)

    assert publish(app, wakeups(5)) == 5

    assert set(keys(queued(broker))) == {f"read#{number}" for number in range(1, 6)}


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_broker_that_is_away_is_no_error(count: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    app = Celery("publishing", broker=f"redis://127.0.0.1:{port}/0")
    app.conf.task_publish_retry_policy = {"max_retries": 1, "interval_start": 0}
    try:
        assert publish(app, wakeups(count)) == 0
    finally:
        app.close()


def test_a_broker_that_is_full_is_no_error(app: Celery, broker: "redis.Redis") -> None:
    before = str(broker.config_get("maxmemory")["maxmemory"])
    broker.config_set("maxmemory", 1)
    try:
        assert publish(app, wakeups(1)) == 0
        assert publish(app, wakeups(3)) == 0
    finally:
        broker.config_set("maxmemory", before)


def _reads(broker: "redis.Redis") -> int:
    """How often the broker found something to read on a connection: once per pipeline, not per command."""
    return int(broker.info("stats")["total_reads_processed"])
