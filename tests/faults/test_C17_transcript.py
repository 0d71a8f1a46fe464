"""C17: the transcript after a crash is legal, and nothing in it is invented. The models refuse what is not."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from models.journal import resolving
from models.settings import settings
from recovery.watch import why
from tests.support.in_the_air import SOON, disarm, effect_of, kill_holder, rearm, start_armed
from tests.support.invariants import check_invariants
from tests.support.models import Answer, ModelService, models_service
from tests.support.waiting import wait_until
from tests.support.world import World

#: (workflow, the step that calls tools, the step whose result holds the whole conversation)
SHAPES = {"conversing": ("talk", "talk"), "stepwise": ("act", "think")}
#: Whoever looks up what became of a call is killed before what was found is written down, and after.
REPAIR = ("S3", "S4")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelService]:
    with models_service(tmp_path_factory.mktemp("models")) as service:
        yield service


@pytest.fixture(scope="module", params=["openai", "anthropic"])
def world(
    request: pytest.FixtureRequest,
    make_world: Callable[..., AbstractContextManager[World]],
    service: ModelService,
) -> Iterator[World]:
    env = {
        **SOON, "ONWARD_LLM_BASE_URL": service.url, "ONWARD_LLM_MODEL": "gpt-x",
        "ONWARD_LLM_PROVIDER": request.param,
    }  # fmt: skip
    with make_world(agents="tests.agents.conversing", env=env) as world:
        for point in REPAIR:
            disarm(point)
        start_armed(world, ",".join(f"{point}:kill" for point in REPAIR))
        yield world


def two_at_once(name: str, tool: str) -> Answer:
    """An answer that asks for two tools in parallel: one that reads, one that acts."""
    return Answer(
        tool_calls=(
            {"name": "look_around", "arguments": {"place": f"{name}-seen"}, "id": "t1"},
            {"name": f"ledgered_{tool}", "arguments": {"name": name}, "id": "t2"},
        )
    )


def results_in(messages: list[dict[str, Any]]) -> dict[str, str]:
    """What the model was told of each call, by the call's id; each id is there once."""
    found = [(one["tool_call_id"], one["content"]) for one in messages if one["role"] == "tool"]
    blocks = [one["content"] for one in messages if isinstance(one["content"], list)]
    found += [
        (block["tool_use_id"], block["content"])
        for content in blocks
        for block in content
        if block["type"] == "tool_result"
    ]
    assert len(found) == len(dict(found))
    return dict(found)


def conversation(world: World, run_id: str, step_key: str) -> list[dict[str, Any]]:
    last = max(key for key in world.results(run_id) if key.split("@")[0].startswith(step_key))
    messages: list[dict[str, Any]] = world.value(run_id, last)["messages"]
    return messages


@pytest.mark.parametrize("workflow", SHAPES)
def test_C17_a_result_that_was_lost_is_found_and_told_once(
    world: World, service: ModelService, workflow: str, request: pytest.FixtureRequest
) -> None:
    name = f"found-{workflow}-{request.node.callspec.params['world']}"
    service.script(name, two_at_once(name, "place"), Answer(text="All done.", hold=name))
    world.fx.hold(name, "after")
    run_id = world.start(workflow, name=name)
    world.fx.wait_held(name)
    kill_holder(world, run_id)
    service.wait_held(name)
    world.fx.release(name)  # the late answer arrives while the second turn is under way
    kill_holder(world, run_id)  # and a second crash, in the middle of the repaired conversation
    service.wait_held(name, count=2)
    service.release(name)
    world.wait_run(run_id)

    assert service.rejected() == []
    assert (world.fx.calls(name), world.fx.made(name)) == (1, 1)
    assert world.fx.calls(f"{name}-seen") == 1, "what only reads is not asked again either"
    (resource,) = world.fx.resources(name)
    told = results_in(conversation(world, run_id, SHAPES[workflow][1]))
    assert set(told) == {"t1", "t2"}
    assert resource["id"] in told["t2"]
    assert world.value(run_id, "close") == "All done."
    assert service.count(name) == 3, (
        "the first turn once; the second once more, as its answer was lost"
    )
    check_invariants(settings().database_url, run_id)


@pytest.mark.parametrize("workflow", SHAPES)
def test_C17_crashes_in_the_repair_change_nothing(
    world: World, service: ModelService, workflow: str, request: pytest.FixtureRequest
) -> None:
    name = f"repaired-{workflow}-{request.node.callspec.params['world']}"
    service.script(name, two_at_once(name, "place"), "All done.")
    world.fx.hold(name, "after")
    run_id = world.start(workflow, name=name)
    world.fx.wait_held(name)
    for point in REPAIR:
        rearm(point)
    kill_holder(world, run_id)
    for point in REPAIR:
        world.wait_fired(point)
    world.wait_run(run_id)
    world.fx.release(name)

    assert service.rejected() == []
    assert (world.fx.calls(name), world.fx.made(name)) == (1, 1)
    assert world.fx.calls(f"{name}-seen") == 1
    (resource,) = world.fx.resources(name)
    told = results_in(conversation(world, run_id, SHAPES[workflow][1]))
    assert set(told) == {"t1", "t2"}
    assert resource["id"] in told["t2"]
    assert service.count(name) == 2
    check_invariants(settings().database_url, run_id)


@pytest.mark.parametrize("workflow", SHAPES)
def test_C17_b_what_nobody_can_decide_waits_and_the_model_is_told_nothing(
    world: World, service: ModelService, workflow: str, request: pytest.FixtureRequest
) -> None:
    name = f"asked-{workflow}-{request.node.callspec.params['world']}"
    service.script(name, two_at_once(name, "blind"), "All done.")
    world.fx.hold(name, "after")
    run_id = world.start(workflow, name=name)
    world.fx.wait_held(name)
    kill_holder(world, run_id)
    world.wait_run(run_id, "blocked")
    assert why(run_id).word == "unknown_effect"
    assert service.count(name) == 1

    world.fx.release(name)
    (resource,) = world.fx.resources(name)
    effect = effect_of(run_id)
    resolving.found(
        effect.key, external_id=resource["id"], result=f'{{"resource_id":"{resource["id"]}"}}',
        by="ada", reason="it is there",
    )  # fmt: skip
    world.wait_run(run_id)
    assert service.rejected() == []
    assert (world.fx.calls(name), world.fx.made(name)) == (1, 1)
    assert service.count(name) == 2
    assert resource["id"] in results_in(conversation(world, run_id, SHAPES[workflow][1]))["t2"]
    check_invariants(settings().database_url, run_id)


def test_C17_c_a_refusal_stands_in_later_attempts(
    world: World, service: ModelService, request: pytest.FixtureRequest
) -> None:
    """The model is told of it and goes on from it: a later attempt does not send the same again."""
    name = f"refused-{request.node.callspec.params['world']}"
    wrong = Answer(
        tool_calls=({"name": "ledgered_place", "arguments": {"name": name}, "id": "t1"},)
    )
    service.script(name, wrong, Answer(text="Then not.", hold=name))
    world.fx.fault(name, "refuse")
    run_id = world.start("conversing", name=name)
    service.wait_held(name)
    kill_holder(world, run_id)
    service.wait_held(name, count=2)
    service.release(name)
    world.wait_run(run_id)
    assert (world.fx.calls(name), world.fx.made(name)) == (1, 0)
    assert "refused" in results_in(conversation(world, run_id, "talk"))["t1"].lower()
    assert service.count(name) == 3
    wait_until(lambda: service.rejected() == [], what="nothing illegal was sent")
