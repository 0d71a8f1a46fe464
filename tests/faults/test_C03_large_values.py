"""C03: a result of 50 MB and the step that takes it whole; one of 300 MB; and the sizes in between."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, LiteralString

import psutil
import pytest

from models import database
from models.artifacts.store import current
from models.settings import settings
from ops import client
from recovery.verify import verify
from recovery.watch import why
from tests.agents.large import text_of
from tests.support.waiting import wait_until
from tests.support.world import World

LARGE, HUGE = 50_000_000, 300_000_000
ROW = 256 * 1024
MESSAGE = 64 * 1024
ROOM = 100 * 1024 * 1024
#: A machine that is busy with 300 MB, and with other tests, may let a heartbeat of a short lease wait too long.
PATIENT = {"ONWARD_LEASE_TTL": "20", "ONWARD_HEARTBEAT": "1"}
ARMED = {"ONWARD_FAILPOINTS": "P4:kill@large-killed.produce"}


@pytest.fixture(scope="module")
def world(make_world: Callable[..., AbstractContextManager[World]]) -> Iterator[World]:
    with make_world(agents="tests.agents.large", env=PATIENT) as world:
        world.cluster.recovery()
        world.cluster.worker("worker-1", concurrency=1, env=ARMED)
        yield world


def _resident(world: World, run_id: str, step_key: str) -> int:
    """Bytes of the process that ran this step."""
    (pid,) = {one["pid"] for one in world.notes(run_id, step_key)}
    return int(psutil.Process(pid).memory_info().rss)


def _once(world: World, run_id: str) -> None:
    name = f"large-{run_id}"
    assert (world.fx.calls(name, "idempotent"), world.fx.calls(name, "llm")) == (1, 1)
    assert world.fx.effects(name) == 1


def _longest(run_id: str, statement: LiteralString) -> int:
    (row,) = database.fetch(statement, {"id": run_id})
    return int(row[0] or 0)


def _artifacts(run_id: str) -> list[tuple[Any, ...]]:
    return database.fetch(
        "SELECT u.step_key, u.role, a.digest, a.size FROM artifact_use u JOIN artifact a USING (digest)"
        " WHERE u.run_id = %(id)s ORDER BY u.step_key, u.role",
        {"id": run_id},
    )


def test_C03_fifty_megabytes_go_through_beside_the_journal(world: World) -> None:
    warm = world.start("large", size=10)
    world.wait_run(warm)
    before = _resident(world, warm, "consume")
    digest = f"sha256:{hashlib.sha256(text_of(LARGE).encode()).hexdigest()}"

    run_id = world.start("large", size=LARGE)
    world.wait_run(run_id, timeout=60)

    assert world.attempts(run_id) == {"produce": 1, "consume": 1}
    _once(world, run_id)
    assert client.result(run_id) == {"sha256": digest.removeprefix("sha256:"), "size": LARGE}
    assert _artifacts(run_id) == [("produce", "output", digest, LARGE)]
    assert max(len(text) for text, _ in world.results(run_id).values()) < ROW
    assert verify(run_id) == []
    wait_until(
        lambda: _resident(world, run_id, "consume") < before + ROOM,
        what="the worker gives the memory back",
        details=lambda: f"{_resident(world, run_id, 'consume'):,} bytes, {before:,} before",
    )


def test_C03_messages_carry_ids_only(world: World) -> None:
    text = text_of(2_000_000)
    world.cluster.kill("worker-1")
    run_id = world.start("large-input", text=text)
    queues = [key for key in world.broker.scan_iter("*") if world.broker.type(key) == b"list"]
    sizes = [len(one) for key in queues for one in world.broker.lrange(key, 0, -1)]
    assert sizes
    assert max(sizes) < MESSAGE
    world.cluster.worker("worker-1", concurrency=1, env=ARMED)
    world.wait_run(run_id)
    assert client.result(run_id) == 2 * len(text)
    for statement in (
        "SELECT length(input) FROM run WHERE run_id = %(id)s",
        "SELECT max(length(arguments)) FROM plan WHERE run_id = %(id)s",
        "SELECT max(length(output)) FROM step WHERE run_id = %(id)s",
    ):
        assert _longest(run_id, statement) < ROW
    assert verify(run_id) == []


def test_C03_members_of_a_group_and_steps_that_are_added(world: World) -> None:
    size = 3_000_000
    grouped, grown = world.start("large-group", size=size), world.start("large-then", size=size)
    for run_id in (grouped, grown):
        world.wait_run(run_id)
        assert verify(run_id) == []
        assert _longest(run_id, "SELECT max(length(output)) FROM step WHERE run_id = %(id)s") < ROW
        assert (
            _longest(run_id, "SELECT max(length(arguments)) FROM plan WHERE run_id = %(id)s") < ROW
        )
    assert client.result(grouped) == [size, size, 3]
    assert client.result(grown) == size


def test_C03_a_result_that_was_cut_down_in_its_upload_is_made_once_more(world: World) -> None:
    run_id = world.start("large-killed", size=LARGE)
    world.wait_fired("P4")
    assert world.results(run_id) == {}
    half = [file for file in current().files() if file.digest is None]
    assert len(half) == 1
    world.wait_run(run_id, timeout=60)
    assert world.attempts(run_id) == {"produce": 2, "consume": 1}
    digest = hashlib.sha256(text_of(LARGE).encode()).hexdigest()
    assert client.result(run_id)["sha256"] == digest
    assert verify(run_id) == []


def test_C03_three_hundred_megabytes_are_kept_or_refused_once(
    world: World,
) -> None:
    run_id = world.start("large", size=HUGE)
    world.wait_run(run_id, timeout=120)
    assert world.attempts(run_id) == {"produce": 1, "consume": 1}, world.ended(run_id, "produce")
    _once(world, run_id)
    assert client.result(run_id)["size"] == HUGE

    world.cluster.kill("worker-1")
    limit = {"ONWARD_ARTIFACT_LIMIT": "100000000"}
    world.cluster.worker("worker-1", concurrency=1, env={**ARMED, **limit})
    refused = world.start("large", size=HUGE)
    world.wait_run(refused, "failed", timeout=60)
    assert why(refused).word == "output_too_large"
    assert "ONWARD_ARTIFACT_LIMIT" in why(refused).sentence
    assert world.step(refused, "produce").attempt == 1
    assert world.bodies(refused) == 1
    _once(world, refused)
    assert settings().artifact_limit > HUGE  # what submits has a limit of its own
