"""C01 and C02: results that cannot be written, and values that are the same with and without a crash."""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from models import database
from models.errors import InvalidIdentifier
from models.settings import settings
from recovery.sweep import sweep_once
from recovery.watch import why
from tests.support.invariants import check_invariants
from tests.support.world import World

ARMED = "P6:stop@values-killed.produce,P1:kill@refused-killed.unsupported"


@pytest.fixture(scope="module")
def world(make_world: Callable[..., AbstractContextManager[World]]) -> Iterator[World]:
    with make_world(agents="tests.agents.values,tests.agents.effects") as world:
        world.cluster.recovery()
        world.cluster.worker("worker-1", env={"ONWARD_FAILPOINTS": ARMED})
        yield world


@pytest.fixture(scope="module")
def awkward(world: World) -> dict[str, str]:
    """One run each, after which every worker was restarted and the sweep ran twice."""
    started = {
        case: world.start("values-awkward", case=case) for case in ("text", "float", "set", "error")
    }
    for run_id in started.values():
        world.wait_run(run_id, "completed", "failed")
    world.cluster.kill("worker-1")
    world.cluster.worker("worker-1", env={"ONWARD_FAILPOINTS": ARMED})
    sweep_once(world.app)
    sweep_once(world.app)
    return started


@pytest.mark.parametrize("case", ["text", "float", "set", "error"])
def test_C01_the_work_is_done_once_whatever_its_result(
    world: World, awkward: dict[str, str], case: str
) -> None:
    run_id = awkward[case]
    assert (world.fx.calls(f"awkward-{case}"), world.fx.effects(f"awkward-{case}")) == (1, 1)
    assert world.bodies(run_id) == 1
    assert world.step(run_id, "publish").attempt == 1
    assert world.state(run_id) == ("failed" if case == "error" else "completed")
    check_invariants(settings().database_url, run_id)


def test_C01_values_come_back_without_loss(world: World, awkward: dict[str, str]) -> None:
    text = world.value(awkward["text"], "publish")
    assert text == {"text": "ab\x00cd", "k\x00": 1, "lit": "\\u0000"}
    number = world.value(awkward["float"], "publish")
    assert math.isnan(number["score"])
    assert (number["best"], number["ok"]) == (math.inf, 0.5)
    assert world.value(awkward["set"], "publish") == {"ids": {3, 1}}


def test_C01_an_error_with_odd_arguments_stays_readable(
    world: World, awkward: dict[str, str]
) -> None:
    reason = why(awkward["error"])
    assert reason.word == "ToolError"
    assert reason.sentence.isprintable()
    assert "bad" in reason.sentence
    assert "byte" in reason.sentence
    assert world.step(awkward["error"], "publish").state == "failed"


@pytest.mark.parametrize("field", ["run_id", "key", "batch_id"])
def test_C01_a_name_with_nul_is_refused_and_nothing_is_written(world: World, field: str) -> None:
    before = database.fetch("SELECT count(*) FROM run", {})
    with pytest.raises(InvalidIdentifier, match="control character"):
        world.submit("effects", {"intent": "x"}, **{field: "a\x00b"})
    assert database.fetch("SELECT count(*) FROM run", {}) == before


def _seen(world: World, run_id: str) -> tuple[object, list[object]]:
    digests = database.fetch(
        "SELECT input_digest, output_digest FROM step WHERE run_id = %(id)s ORDER BY step_key",
        {"id": run_id},
    )
    return world.value(run_id, "inspect"), [tuple(row) for row in digests]


def test_C02_types_are_the_same_with_and_without_a_crash(world: World) -> None:
    live = world.start("values-live")
    world.wait_run(live)
    killed = world.start("values-killed")
    world.wait_fired("P6")
    assert "produce" in world.results(killed)
    assert "inspect" not in world.results(killed)
    world.cluster.kill("worker-1")
    world.cluster.worker("worker-2")
    world.wait_run(killed)

    assert str(world.step(killed, "inspect").worker).startswith("worker-2@")
    assert _seen(world, killed) == _seen(world, live)
    assert world.value(live, "inspect") == {
        "price": ["Decimal", "Decimal('1.10')"],
        "at": ["datetime", "datetime.datetime(2026, 3, 1, 0, 0, tzinfo=datetime.timezone.utc)"],
        "blob": ["bytes", "b'\\xff\\x00'"],
        "id": ["UUID", "UUID('00000000-0000-0000-0000-000000000005')"],
        "m": ["Box[Inner]", "Box[Inner](item=Inner(n=3))"],
        "f": ["float", "1.5"],
        "t": ["tuple", "(1, 2)"],
        "nothing": ["NoneType", "None"],
        "m.item": ["Inner", "Inner(n=3)"],
    }
    check_invariants(settings().database_url, killed)


def test_C02_in_place_the_next_step_gets_what_the_journal_would_give(world: World) -> None:
    live = world.start("values-live")
    world.wait_run(live)
    world.cluster.worker("worker-sticky", env={"ONWARD_STICKY": "true"})
    for name in ("worker-1", "worker-2"):
        if world.cluster.is_running(name):
            world.cluster.kill(name)
    sticky = world.start("values-live")
    world.wait_run(sticky)
    assert _seen(world, sticky) == _seen(world, live)


def test_C02_an_unsupported_type_is_refused_live_and_after_a_crash_alike(world: World) -> None:
    for name in list(world.cluster.pids):
        if name.startswith("worker"):
            world.cluster.kill(name)
    world.cluster.worker("worker-1", env={"ONWARD_FAILPOINTS": ARMED})
    live, killed = world.start("refused-live"), world.start("refused-killed")
    world.wait_fired("P1")
    for run_id in (live, killed):
        world.wait_run(run_id, "failed")
    assert world.step(killed, "unsupported").attempt == 2
    assert world.step(live, "unsupported").error == world.step(killed, "unsupported").error
    assert why(live).word == "unserialisable_output"
    assert "Fraction" in str(world.step(live, "unsupported").error)
