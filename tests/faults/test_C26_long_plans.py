"""C26: five thousand steps in a row with a kill near the end; plans too deep or circular."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise

import pytest
import redis

from models import database
from models.settings import settings
from recovery.watch import why
from tasks.errors import PlanCircle, PlanTooDeep
from tests.support.invariants import check_invariants
from tests.support.waiting import wait_until
from tests.support.world import World

LENGTH, MARK = 5_000, 4_321
MESSAGE_LIMIT = 64 * 1024  #: bytes
ROWS_A_STEP = 60  #: read by everything that runs, sweep and wake included


@pytest.fixture(scope="module")
def world(make_world: Callable[..., AbstractContextManager[World]]) -> Iterator[World]:
    env = {"ONWARD_STICKY": "true", "ONWARD_STICKY_STEPS": "100", "ONWARD_TASK_EVENTS": "false"}
    with make_world(agents="tests.agents.long", env=env) as world:
        world.cluster.recovery()
        yield world


@contextmanager
def _watching(world: World) -> Iterator[list[int]]:
    """Sizes of all that is pushed to any queue, as the server itself sees it."""
    sizes: list[int] = []
    over = threading.Event()
    client = redis.Redis.from_url(settings().broker_url)
    watcher = client.monitor()  # type: ignore[no-untyped-call]

    def watch() -> None:
        while not over.is_set():
            command = watcher.next_command()["command"]
            if command.split(" ", 1)[0].upper() == "LPUSH":
                sizes.append(len(command))

    with watcher:
        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield sizes
        finally:
            over.set()
            world.broker.ping()  # one more command, so that the watcher looks up
            thread.join(timeout=10)
    client.close()


def _rows_read() -> int:
    query = "SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables"
    return int(database.fetch(query, {})[0][0])


def _finished(run_id: str) -> int:
    row = database.fetch_one("SELECT count(*) FROM step WHERE run_id = %(id)s", {"id": run_id})
    return int(row[0]) if row else 0


def test_C26_five_thousand_in_a_row_killed_near_the_end(world: World) -> None:
    with _watching(world) as sizes:
        run_id = world.start("long", length=LENGTH, mark=MARK)
        world.cluster.worker(
            "worker-1", concurrency=1, env={"ONWARD_FAILPOINTS": "P1:stop@long.marked"}
        )
        world.wait_fired("P1", timeout=120)
        assert _finished(run_id) == MARK - 1
        assert world.bodies(run_id) == MARK - 1
        world.cluster.kill("worker-1")
        before, read_before = world.results(run_id), _rows_read()

        world.cluster.worker("worker-1", concurrency=1)
        wait_until(lambda: world.bodies(run_id) >= MARK, timeout=10, what="the next body starts")
        world.wait_run(run_id, timeout=60)

    keys = [one["step_key"] for one in world.notes(run_id)]
    assert len(keys) == LENGTH
    assert len(set(keys)) == LENGTH, "a body ran twice"
    assert len(keys) - (MARK - 1) == LENGTH - MARK + 1 == 680
    assert keys[MARK - 1] == "marked"
    attempts = world.attempts(run_id)
    assert {key for key, attempt in attempts.items() if attempt != 1} == {"marked"}
    assert sizes, "no message was seen"
    assert max(sizes) < MESSAGE_LIMIT
    assert (_rows_read() - read_before) / 680 < ROWS_A_STEP
    check_invariants(settings().database_url, run_id, before=before)
    _order_was_kept(run_id)


def _order_was_kept(run_id: str) -> None:
    rows = database.fetch(
        "SELECT s.started_at FROM step s JOIN plan p USING (run_id, step_key)"
        " WHERE run_id = %(id)s ORDER BY p.position",
        {"id": run_id},
    )
    assert all(earlier[0] <= later[0] for earlier, later in pairwise(rows))


def _counts() -> list[tuple[object, ...]]:
    return database.fetch("SELECT (SELECT count(*) FROM run), (SELECT count(*) FROM plan)", {})


@pytest.mark.parametrize(
    ("workflow", "names"),
    [("long-circle", ("A", "B")), ("long-itself", ("third",))],
)
def test_C26_a_circle_is_refused_by_name_and_nothing_is_written(
    world: World, workflow: str, names: tuple[str, ...]
) -> None:
    before = _counts()
    with pytest.raises(PlanCircle) as refused:
        world.start(workflow)
    assert all(name in str(refused.value) for name in names), refused.value
    assert _counts() == before


@pytest.mark.parametrize("depth", [51, 200, 300])
def test_C26_a_plan_that_is_too_deep_is_refused(world: World, depth: int) -> None:
    before = _counts()
    with pytest.raises(PlanTooDeep, match="ONWARD_DEPTH_LIMIT"):
        world.start("long-deep", depth=depth)
    assert _counts() == before


def test_C26_a_plan_within_the_depth_limit_runs(world: World) -> None:
    if not world.cluster.is_running("worker-1"):
        world.cluster.worker("worker-1", concurrency=1)
    run_id = world.start("long-deep", depth=50)
    world.wait_run(run_id)
    check_invariants(settings().database_url, run_id)


def test_C26_a_circle_closed_at_run_time_fails_that_step_and_ends_the_run(world: World) -> None:
    if not world.cluster.is_running("worker-1"):
        world.cluster.worker("worker-1", concurrency=1)
    run_id = world.start("long-closing")
    world.wait_run(run_id, "failed", timeout=15)
    step = world.step(run_id, "plan_on")
    assert step.state == "failed"
    assert why(run_id).word == "plan_circle"
    assert "start" in str(step.error)
    assert world.bodies(run_id, "plan_on") == 1, "it would fail again, so it is not tried again"
    assert world.bodies(run_id, "end") == 0
    assert database.fetch("SELECT count(*) FROM live WHERE state = 'running'", {}) == [(0,)]
    check_invariants(settings().database_url, run_id)
