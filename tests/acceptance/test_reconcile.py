"""Effects whose outcome nobody recorded, on real workers: asked for before anything is repeated, and counted."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from models.journal import runs
from recovery.watch import why
from tests.agents.reconciling import POINTS
from tests.support.reconciling import (
    QUICK,
    check,
    effects,
    kill_holder,
    only_effect,
    told,
    wait_effect,
)
from tests.support.waiting import wait_until
from tests.support.world import World


@pytest.fixture(scope="module")
def world(make_world: Callable[..., AbstractContextManager[World]]) -> Iterator[World]:
    armed = ",".join(f"{point}:kill@desk-{point}.order" for point in POINTS if point != "S3")
    with make_world(agents="tests.agents.reconciling", env=QUICK) as world:
        world.cluster.recovery()
        world.cluster.worker(concurrency=4, env={"ONWARD_FAILPOINTS": armed})
        yield world


def test_applied_and_its_sender_killed_it_is_found_and_not_sent_again(world: World) -> None:
    world.fx.hold("found", "after")
    run_id = world.start("desk", intent="found")
    world.fx.wait_held("found")
    kill_holder(world, run_id)
    world.wait_run(run_id)
    assert (world.fx.calls("found"), world.fx.effects("found")) == (1, 1)
    assert world.attempts(run_id) == {"prepare": 1, "order": 2, "report": 1}
    found = only_effect(run_id)
    assert (found["state"], found["source"], found["sends"], found["token"]) == (
        "settled",
        "lookup",
        1,
        2,
    )
    assert world.value(run_id, "order") in str(found["result"])
    assert told(world, run_id) == ["effect_unknown", "effect_settled"]
    check(run_id)


def test_still_on_its_way_when_it_is_looked_up_it_is_waited_for(world: World) -> None:
    """C28: looked, found nothing; then the first one arrived."""
    world.fx.hold("late", "before")
    run_id = world.start("desk", intent="late")
    world.fx.wait_held("late")
    kill_holder(world, run_id)
    wait_until(lambda: "effect_looked" in told(world, run_id), what="it was looked up in vain")
    assert world.fx.effects("late") == 0
    world.fx.release("late")
    world.wait_run(run_id)
    assert (world.fx.calls("late"), world.fx.effects("late")) == (1, 1)
    assert told(world, run_id)[-1] == "effect_settled"
    assert only_effect(run_id)["source"] == "lookup"
    check(run_id)


def test_never_sent_it_is_believed_absent_and_sent_once(world: World) -> None:
    run_id = world.start("desk-E1", intent="unsent")
    world.wait_fired("E1")
    world.wait_run(run_id)
    assert (world.fx.calls("unsent"), world.fx.effects("unsent")) == (1, 1)
    assert "effect_absent" in told(world, run_id)
    assert "any more" in world.events(run_id, "effect_absent")[0][2]
    assert (only_effect(run_id)["sends"], only_effect(run_id)["source"]) == (2, "answer")
    check(run_id)


@pytest.mark.parametrize("point", ["E4", "E5", "E6"])
def test_killed_around_the_settlement_it_is_not_sent_again(world: World, point: str) -> None:
    intent = f"settling-{point}"
    run_id = world.start(f"desk-{point}", intent=intent)
    world.wait_fired(point)
    world.wait_run(run_id)
    assert (world.fx.calls(intent), world.fx.effects(intent)) == (1, 1)
    assert only_effect(run_id)["source"] == ("lookup" if point == "E4" else "answer")
    check(run_id)


def test_an_answer_that_says_nothing_leaves_it_in_doubt_and_it_is_found(world: World) -> None:
    world.fx.fault("broken", "5xx_after_apply")
    run_id = world.start("desk", intent="broken")
    world.wait_run(run_id)
    assert (world.fx.calls("broken"), world.fx.effects("broken")) == (1, 1)
    assert only_effect(run_id)["source"] == "lookup"
    check(run_id)


def test_what_a_look_up_does_not_show_yet_is_looked_at_again(world: World) -> None:
    world.fx.fault("hidden", "hidden", seconds=0.8)
    world.fx.hold("hidden", "after")
    run_id = world.start("desk", intent="hidden")
    world.fx.wait_held("hidden")
    kill_holder(world, run_id)
    world.wait_run(run_id)
    assert (world.fx.calls("hidden"), world.fx.effects("hidden")) == (1, 1)
    check(run_id)


def test_what_is_still_provisioning_is_waited_for(world: World) -> None:
    world.fx.fault("slow", "provisioning", seconds=6)
    world.fx.hold("slow", "after")
    run_id = world.start("desk", intent="slow")
    world.fx.wait_held("slow")
    kill_holder(world, run_id)
    world.wait_run(run_id)
    looked = [detail for _, _, detail in world.events(run_id, "effect_looked")]
    assert any("it is provisioning" in detail for detail in looked)
    assert (world.fx.calls("slow"), world.fx.effects("slow")) == (1, 1)
    check(run_id)


def test_several_of_them_are_a_persons(world: World) -> None:
    world.fx.hold("several", "after")
    run_id = world.start("desk", intent="several")
    world.fx.wait_held("several")
    world.fx.make("several")
    kill_holder(world, run_id)
    world.wait_run(run_id, "blocked")
    assert "there are 2 of them" in str(only_effect(run_id)["person"])
    reason = why(run_id)
    assert (reason.word, reason.stuck) == ("unknown_effect", True)
    assert "onward effects resolve" in reason.sentence
    check(run_id)


@pytest.mark.parametrize(
    ("by", "said"),
    [
        ("undeclared", "max_request_lifetime"),
        ("blind", "can neither be asked twice nor asked"),
        ("forgetful", "key may be forgotten"),
    ],
)
def test_what_nobody_can_decide_is_a_persons_and_is_not_sent_again(
    world: World, by: str, said: str
) -> None:
    world.fx.hold(by, "before")
    run_id = world.start("desk", intent=by, by=by)
    world.fx.wait_held(by)
    if by == "forgetful":  # the key is forgotten while the owner is silent
        kill_holder(world, run_id, signal.SIGSTOP)
    else:
        kill_holder(world, run_id)
    world.wait_run(run_id, "blocked")
    assert said in str(only_effect(run_id)["person"])
    assert world.fx.calls(by) == 1
    assert world.step(run_id, by).block_reason == "unknown_effect"
    check(run_id)
    world.fx.release(by)
    if by == "forgetful":
        for pid in _stopped(world):
            os.kill(pid, signal.SIGKILL)


def _stopped(world: World) -> set[int]:
    return {int(one["pid"]) for one in world.notes(step_key="forgetful")}


def test_two_effects_of_one_step_are_asked_for_each_on_its_own(world: World) -> None:
    world.fx.hold("pair-second", "after")
    run_id = world.start("desk", intent="pair", by="twice")
    world.fx.wait_held("pair-second")
    kill_holder(world, run_id)
    world.wait_run(run_id)
    assert [one["source"] for one in effects(run_id)] == ["answer", "lookup"]
    assert dict(world.fx.all_calls("pair-")) == {"pair-first": 1, "pair-second": 1}
    check(run_id)


def test_cancelled_in_the_air_it_is_reconciled_first_and_stays_listed(world: World) -> None:
    """C11, with an owner that dies: neither left running nor marked as never happened."""
    world.fx.hold("cancelled", "after")
    run_id = world.start("desk", intent="cancelled")
    world.fx.wait_held("cancelled")
    runs.cancel(run_id, by="ada", reason="enough", cancellation_id="c-1")
    kill_holder(world, run_id)
    world.wait_run(run_id, "cancelled")
    assert only_effect(run_id)["state"] == "settled"
    assert world.step(run_id, "order").state == "cancelled"
    assert world.step(run_id, "report").state == "not_reached"
    assert (world.fx.calls("cancelled"), world.fx.effects("cancelled")) == (1, 1)
    check(run_id)


def test_a_late_answer_of_a_paused_owner_is_read_and_the_world_is_not_asked_any_more(
    world: World,
) -> None:
    world.fx.hold("paused", "after")
    for _ in range(30):
        world.fx.fault("paused", "5xx_before_apply", on="lookup")
    run_id = world.start("desk", intent="paused")
    world.fx.wait_held("paused")
    pid = kill_holder(world, run_id, signal.SIGSTOP)
    wait_effect(world, run_id, "unknown")
    world.fx.release("paused")
    os.kill(pid, signal.SIGCONT)
    world.wait_run(run_id)
    assert only_effect(run_id)["source"] == "late_answer"
    assert (world.fx.calls("paused"), world.fx.effects("paused")) == (1, 1)
    assert "effect_late_answer" in told(world, run_id)
    world.fx.clear_faults("paused")
    check(run_id)
