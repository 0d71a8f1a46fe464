"""Steps with SQL of their own, on real workers: their rows and their completion are one commit, whatever is cut."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from models import database
from models.settings import settings
from tests.support.invariants import check_invariants
from tests.support.waiting import wait_until
from tests.support.world import World

MODES = ("hop", "sticky")
#: Claims of `write` that one kill at the point makes, and the attempt whose row is there in the end.
CLAIMS = {"P1": 2, "P4": 2, "P5": 1, "P6": 1, "P7": 1}


def create_table() -> None:
    database.fetch("CREATE TABLE booking (run_id text, step_key text, attempt bigint)", {})


def booked(run_id: str) -> list[tuple[str, int]]:
    rows = database.fetch(
        "SELECT step_key, attempt FROM booking WHERE run_id = %(id)s ORDER BY 1, 2", {"id": run_id}
    )
    return [(row[0], row[1]) for row in rows]


@pytest.fixture(scope="module", params=MODES)
def world(
    request: pytest.FixtureRequest, make_world: Callable[..., AbstractContextManager[World]]
) -> Iterator[World]:
    armed = ",".join(f"{point}:kill@book-{point}.write" for point in CLAIMS)
    sticky = str(request.param == "sticky")
    with make_world(agents="tests.agents.booking", env={"ONWARD_STICKY": sticky}) as world:
        create_table()
        world.cluster.recovery()
        world.cluster.worker(env={"ONWARD_FAILPOINTS": armed})
        yield world


@pytest.mark.parametrize("point", CLAIMS)
def test_a_kill_leaves_one_row_and_one_completion(world: World, point: str) -> None:
    run_id = world.start(f"book-{point}", name="killed")
    world.wait_fired(point)
    world.wait_run(run_id)
    assert booked(run_id) == [("write", CLAIMS[point])]
    assert world.attempts(run_id)["write"] == CLAIMS[point]
    assert world.value(run_id, "report") == CLAIMS[point]
    check_invariants(settings().database_url, run_id)


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("failing", [("failing", 2)]),
        ("slow", [("slow", 2)]),
        ("conflicting", [("conflicting", 3)]),
        ("asynchronous", [("asynchronous", 1), ("asynchronous", 1)]),
        ("growing", [("growing", 1)]),
        ("calling", [("calling", 1)]),
    ],
)
def test_only_the_attempt_that_completes_leaves_rows(
    world: World, name: str, rows: list[tuple[str, int]]
) -> None:
    run_id = world.start("one", name=name)
    world.wait_run(run_id)
    assert booked(run_id) == rows
    check_invariants(settings().database_url, run_id)


@pytest.mark.parametrize(
    ("name", "error"), [("endless", "ONWARD_GROUP_LIMIT"), ("calling_too_late", "ctx.session")]
)
def test_a_step_that_is_refused_leaves_none(world: World, name: str, error: str) -> None:
    run_id = world.start("one", name=name)
    world.wait_run(run_id, "failed")
    assert booked(run_id) == []
    assert error in str(world.step(run_id, name).error)
    assert database.fetch("SELECT 1 FROM effects WHERE run_id = %(id)s", {"id": run_id}) == []


def test_members_of_a_group_leave_one_row_each(world: World) -> None:
    run_id = world.start("several", name="members")
    world.wait_run(run_id)
    assert booked(run_id) == [("write", 1), ("write#2", 1), ("write#3", 1)]


def test_an_owner_that_wakes_up_too_late_leaves_none(world: World) -> None:
    world.fx.hold("stuck", "after")
    run_id = world.start("one", name="stuck")
    world.fx.wait_held("stuck")
    pid = world.holder(run_id)
    os.kill(pid, signal.SIGSTOP)
    try:
        world.wait_run(run_id)
    finally:
        os.kill(pid, signal.SIGCONT)
    world.fx.release("stuck")
    wait_until(
        lambda: (
            "Late outcome set aside" in world.cluster.logs("worker-1")
            or "undone by the database" in world.cluster.logs("worker-1")
        ),
        what="the first owner has come to its end",
    )
    assert booked(run_id) == [("stuck", 2)]
    check_invariants(settings().database_url, run_id)
