"""The founding document's list (its section 10): a model's output that is complete and not yet accepted."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from models.journal import calls
from models.settings import settings
from tests.support.in_the_air import SOON, happened_once, kill_holder, start_armed
from tests.support.invariants import check_invariants
from tests.support.models import Answer, ModelService, models_service
from tests.support.world import World

POINTS = ("L2", "L3", "L4")
ARMED = (
    ",".join(f"{point}:kill@choosing-{point}.choose" for point in POINTS)
    + ",E6:kill@ordering-E6.choose_and_order"
)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelService]:
    with models_service(tmp_path_factory.mktemp("models")) as service:
        yield service


@pytest.fixture(scope="module")
def world(
    make_world: Callable[..., AbstractContextManager[World]], service: ModelService
) -> Iterator[World]:
    env = {**SOON, "ONWARD_LLM_BASE_URL": service.url, "ONWARD_LLM_MODEL": "gpt-x"}
    with make_world(agents="tests.agents.conversing", env=env) as world:
        start_armed(world, ARMED)
        yield world


def two_minds(service: ModelService, name: str) -> None:
    """Asked again, the model decides otherwise."""
    first, second = ({"order": f"{name}-{which}", "servers": 1} for which in ("first", "second"))
    service.script(name, Answer(value=first), Answer(value=second))


@pytest.mark.parametrize("point", POINTS)
def test_model_output_complete_but_not_yet_accepted(
    world: World, service: ModelService, point: str
) -> None:
    """模型输出完成但尚未被接受, 验证重算不会越过安全边界"""
    name = f"decided-{point}"
    two_minds(service, name)
    run_id = world.start(f"choosing-{point}", name=name)
    world.wait_fired(point)
    world.wait_run(run_id)

    lost = point == "L2"  # nobody had seen it: it may be asked for again, and nothing came of it
    assert service.count(name) == 1 + lost
    taken, never = (
        (f"{name}-second", f"{name}-first") if lost else (f"{name}-first", f"{name}-second")
    )
    happened_once(world, taken)
    assert world.fx.calls(never) == 0
    assert world.value(run_id, "choose")["order"] == taken
    assert [(one.state, one.verdict) for one in calls.of_run(run_id)] == [("complete", "accepted")]
    assert world.attempts(run_id) == {"choose": 2, "order": 1, "report": 1}
    check_invariants(settings().database_url, run_id)


def test_what_an_accepted_answer_has_led_to_is_not_decided_anew(
    world: World, service: ModelService
) -> None:
    """如果模型的输出决定了接下来调用什么生产工具, 就不能让重试后的新输出悄悄改变已经执行过的路径"""
    two_minds(service, "path-in-the-air")
    world.fx.hold("path-in-the-air-first", "after")
    run_id = world.start("ordering", name="path-in-the-air")
    world.fx.wait_held("path-in-the-air-first")
    kill_holder(world, run_id)
    world.wait_run(run_id)
    world.fx.release("path-in-the-air-first")
    happened_once(world, "path-in-the-air-first")

    two_minds(service, "path-settled")
    settled = world.start("ordering-E6", name="path-settled")
    world.wait_fired("E6")
    world.wait_run(settled)
    happened_once(world, "path-settled-first")

    for name, each in (("path-in-the-air", run_id), ("path-settled", settled)):
        assert service.count(name) == 1
        assert world.fx.calls(f"{name}-second") == 0
        check_invariants(settings().database_url, each)
