"""The founding document's list of what proves that a run can go on (its section 10), on real processes.

Its words are the first line of each test. Of its eight scenarios, those about model answers, approvals, versions
and workspaces come with the parts that they are about.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from models.journal import resolving
from models.settings import settings
from recovery.watch import why
from tests.support.in_the_air import (
    SOON,
    caught,
    deaths,
    effect_of,
    happened_once,
    kill_holder,
    rearm,
    start_armed,
)
from tests.support.invariants import check_invariants
from tests.support.waiting import wait_until
from tests.support.world import World

#: Where `order` is killed: its claim is durable; its intent is; its settlement is; its result is.
ARMED = ",".join(f"{point}:kill@ledgered-{point}.order" for point in ("P1", "E1", "E6", "P5", "P6"))


@pytest.fixture(scope="module")
def world(make_world: Callable[..., AbstractContextManager[World]]) -> Iterator[World]:
    with make_world(agents="tests.agents.ledgered", env=SOON) as world:
        start_armed(world, ARMED)
        yield world


def _kill_at(world: World, point: str, name: str, *, tool: str) -> str:
    """A run whose `order` died at this failpoint."""
    rearm(point)
    before = deaths(world)
    run_id = world.start(f"ledgered-{point}", name=name, tool=tool)
    world.wait_fired(point)
    wait_until(lambda: deaths(world) > before, what="the parent saw its child die of SIGKILL")
    return run_id


@pytest.mark.parametrize("tool", ["brisk", "keyed"])
@pytest.mark.parametrize("point", ["P1", "E1"])
def test_worker_killed_before_the_tool_call_executes_it_once(
    world: World, point: str, tool: str
) -> None:
    """工具调用前杀掉 Worker, 恢复后应执行一次"""
    name = f"before-{point}-{tool}"
    run_id = _kill_at(world, point, name, tool=tool)
    assert world.fx.calls(name) == 0
    world.wait_run(run_id)

    happened_once(world, name)
    assert world.attempts(run_id) == {"prepare": 1, "order": 2, "report": 1}
    assert effect_of(run_id).sends == (2 if point == "E1" else 1)
    check_invariants(settings().database_url, run_id)


@pytest.mark.parametrize("how", ["drop_response", "5xx_after_apply", "SIGKILL"])
@pytest.mark.parametrize("tool", ["place", "keyed"])
def test_effect_applied_and_response_lost_makes_no_duplicate(
    world: World, how: str, tool: str
) -> None:
    """外部操作成功但响应被丢弃, 恢复后不得产生重复效果"""
    name = f"lost-{how}-{tool}"
    run_id = _lose_the_response(world, name, how, tool=tool)
    world.wait_run(run_id)
    world.fx.release(name)

    happened_once(world, name, calls=1 if tool == "place" else 2)
    effect = effect_of(run_id)
    assert (effect.state, effect.source) == ("settled", "lookup" if tool == "place" else "answer")
    (resource,) = world.fx.resources(name)
    assert world.value(run_id, "report") == resource["id"] == effect.value["resource_id"]
    assert world.attempts(run_id) == {"prepare": 1, "order": 2, "report": 1}
    assert world.fx.lookups(name) == (1 if tool == "place" else 0)
    check_invariants(settings().database_url, run_id)


def _lose_the_response(world: World, name: str, how: str, *, tool: str) -> str:
    if how == "SIGKILL":
        run_id = caught(world, name, "after", tool=tool)
        kill_holder(world, run_id)
        return run_id
    world.fx.fault(name, how)  # type: ignore[arg-type]
    run_id = world.start("ledgered", name=name, tool=tool)
    wait_until(lambda: world.events(run_id, "effect_unknown"), what="the response was lost")
    return run_id


def test_response_lost_of_what_can_be_neither_repeated_nor_asked_waits_for_a_person(
    world: World,
) -> None:
    """外部操作成功但响应被丢弃, 恢复后不得产生重复效果"""
    world.fx.fault("lost-blind", "drop_response")
    run_id = world.start("ledgered", name="lost-blind", tool="blind")
    world.wait_run(run_id, "blocked")
    assert why(run_id).word == "unknown_effect"
    happened_once(world, "lost-blind")

    (resource,) = world.fx.resources("lost-blind")
    told = f'{{"resource_id":"{resource["id"]}"}}'
    resolving.found(
        effect_of(run_id).key, external_id=resource["id"], result=told, by="ada", reason="it is there"
    )  # fmt: skip
    world.wait_run(run_id)
    happened_once(world, "lost-blind")
    assert world.value(run_id, "report") == resource["id"]
    check_invariants(settings().database_url, run_id)


@pytest.mark.parametrize("point", ["E6", "P5", "P6"])
def test_crash_right_after_the_checkpoint_reuses_the_old_result(world: World, point: str) -> None:
    """检查点写入后立即崩溃, 恢复后应复用旧结果"""
    name = f"after-{point}"
    run_id = _kill_at(world, point, name, tool="place")
    settled = effect_of(run_id)
    before = world.results(run_id)
    world.wait_run(run_id)

    happened_once(world, name)
    assert world.fx.lookups(name) == 0, "what is recorded is not asked about"
    again = 2 if point == "E6" else 1
    next_too = (
        settings().sticky and point != "E6"
    )  # in place, the next step is claimed by that commit
    assert world.attempts(run_id) == {"prepare": 1, "order": again, "report": 1 + next_too}
    assert world.bodies(run_id, "order") == again
    assert world.value(run_id, "report") == world.fx.resources(name)[0]["id"]
    assert effect_of(run_id) == settled
    check_invariants(settings().database_url, run_id, before=before)


def test_repeated_crashes_do_not_renew_the_retry_budget(world: World) -> None:
    """连续多次崩溃后, 重试预算与费用预算不会被重置"""
    for attempt in (2, 4):
        world.fx.hold(f"unsteady-{attempt}", "before")
    run_id = world.start("ledgered-unsteady", name="unsteady")
    for attempt in (2, 4):  # each second attempt is killed, after a known failure
        world.fx.wait_held(f"unsteady-{attempt}")
        kill_holder(world, run_id)
    world.wait_run(run_id, "failed")

    outcomes = [outcome for outcome, _ in world.ended(run_id, "unsteady")]
    assert outcomes == ["failed", "died", "failed", "died", "failed"]
    assert world.bodies(run_id) == 5, "two retries, whatever else befell it"
    step = world.step(run_id, "unsteady")
    assert (step.attempt, step.crashes) == (5, 2)
    assert why(run_id).word == "Refused"
    check_invariants(settings().database_url, run_id)
