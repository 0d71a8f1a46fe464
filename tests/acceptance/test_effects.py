"""What ``ctx.call`` does on real workers that are killed in it, counted by the outside world."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from models import database
from models.journal import runs
from models.settings import settings
from recovery.watch import why
from tests.agents.tools import POINTS
from tests.support.invariants import check_invariants
from tests.support.waiting import wait_until
from tests.support.world import World

#: How often the outside world is asked, and whether by the second attempt, after one kill at the point.
REQUESTS = {"E1": 1, "E4": 2, "E5": 1, "E6": 1}


@pytest.fixture(scope="module")
def world(make_world: Callable[..., AbstractContextManager[World]]) -> Iterator[World]:
    armed = ",".join(f"{point}:kill@tools-{point}.order" for point in POINTS)
    with make_world(agents="tests.agents.tools") as world:
        world.cluster.recovery()
        world.cluster.worker(env={"ONWARD_FAILPOINTS": armed})
        yield world


def effects(run_id: str) -> list[tuple[str, str, int]]:
    """(tool, state, sends) of a run's effects, in the order they were made."""
    rows = database.fetch(
        "SELECT tool, state, sends FROM effects WHERE run_id = %(id)s ORDER BY created_at",
        {"id": run_id},
    )
    return [(row[0], row[1], row[2]) for row in rows]


def settle(run_id: str) -> tuple[Any, ...]:
    row = database.fetch_one(
        "SELECT key, token, result FROM effect_settlement WHERE run_id = %(id)s", {"id": run_id}
    )
    assert row is not None
    return row


@pytest.mark.parametrize("point", POINTS)
def test_killed_around_an_effect_it_happens_once(world: World, point: str) -> None:
    intent = f"killed-{point}"
    run_id = world.start(f"tools-{point}", intent=intent)
    world.wait_fired(point)
    world.wait_run(run_id)

    assert world.fx.effects(intent) == 1
    assert world.fx.calls(intent) == REQUESTS[point]
    assert len(world.fx.keys(intent)) == 1
    assert world.attempts(run_id) == {"order": 2, "report": 1}
    recorded_by = 1 if point in ("E5", "E6") else 2
    assert settle(run_id)[1] == recorded_by
    sends = 1 if recorded_by == 1 else 2
    assert effects(run_id) == [("provider.order", "settled", sends)]
    check_invariants(settings().database_url, run_id)


@pytest.mark.parametrize("where", ["before", "after"])
def test_killed_while_the_service_works_the_same_key_is_sent_again(
    world: World, where: Any
) -> None:
    intent = f"held-{where}"
    world.fx.hold(intent, where)
    run_id = world.start("tools", of="persistent", intent=intent)
    world.fx.wait_held(intent)
    os.kill(world.holder(run_id), signal.SIGKILL)
    world.wait_run(run_id)
    world.fx.release(intent)

    wait_until(lambda: world.fx.calls(intent) == 2, what="it was requested twice")
    assert world.fx.effects(intent) == 1
    assert len(world.fx.keys(intent)) == 1
    check_invariants(settings().database_url, run_id)


def test_a_choice_made_after_a_refusal_stands(world: World) -> None:
    world.fx.fault("choice-first", "refuse")
    world.fx.hold("choice-second", "after")
    run_id = world.start("tools", of="choosing", intent="choice")
    world.fx.wait_held("choice-second")
    os.kill(world.holder(run_id), signal.SIGKILL)
    world.wait_run(run_id)
    world.fx.release("choice-second")

    assert world.bodies(run_id) == 2
    assert (world.fx.calls("choice-first"), world.fx.effects("choice-first")) == (1, 0)
    assert world.fx.effects("choice-second") == 1
    check_invariants(settings().database_url, run_id)


def test_a_step_that_exits_fails_and_its_process_goes_on(world: World) -> None:
    run_id = world.start("tools", of="leaving", intent="this")
    world.wait_run(run_id, "failed")
    assert world.bodies(run_id) == 2, "one try and one retry"
    assert [outcome for outcome, _ in world.ended(run_id, "leaving")] == ["failed", "failed"]
    assert "SystemExit: this is none of my business" in why(run_id).sentence


def test_ten_servers_after_one_is_a_conflict(world: World) -> None:
    world.fx.hold("c27-model", "before")
    run_id = world.start("tools", of="wavering", intent="c27")
    world.fx.wait_held("c27-model")
    os.kill(world.holder(run_id), signal.SIGKILL)
    world.wait_run(run_id, "blocked")
    world.fx.release("c27-model")

    assert (world.fx.calls("c27"), world.fx.effects("c27")) == (1, 1)
    step = world.step(run_id, "wavering")
    assert (step.state, step.block_reason) == ("failed", "idempotency_conflict")
    assert why(run_id).word == "idempotency_conflict"
    assert "bound to another request" in why(run_id).sentence
    check_invariants(settings().database_url, run_id)


def test_a_body_that_swallows_every_signal_does_not_complete(world: World) -> None:
    world.fx.fault("deaf-first", "drop_response")
    run_id = world.start("tools", of="deaf", intent="deaf")
    wait_until(lambda: len(world.notes(run_id)) >= 3, what="the body has swallowed two signals")
    wait_until(
        lambda: world.step(run_id, "deaf").state in ("unknown", "failed"), what="the step stopped"
    )
    assert world.fx.calls("deaf-second") == 0
    assert world.state(run_id) != "completed"
    assert effects(run_id)[0][1] == "unknown"
    assert world.fx.calls("deaf-first") == world.fx.effects("deaf-first") == 1


def test_a_result_that_cannot_be_recorded_stops_the_run_and_is_never_sent_again(
    world: World,
) -> None:
    run_id = world.start("tools", of="odd", intent="odd")
    world.wait_run(run_id, "blocked")
    assert why(run_id).word == "unserialisable_output"
    assert world.fx.calls("odd") == 1
    assert world.step(run_id, "odd").attempt == 1
    (row,) = database.fetch("SELECT person FROM effect WHERE run_id = %(id)s", {"id": run_id})
    assert "res-" in row[0]
    check_invariants(settings().database_url, run_id)


def test_several_effects_of_one_step_are_replayed_up_to_the_one_in_flight(world: World) -> None:
    world.fx.hold("many-2", "after")
    run_id = world.start("tools", of="many", intent="many")
    world.fx.wait_held("many-2")
    os.kill(world.holder(run_id), signal.SIGKILL)
    world.wait_run(run_id)
    world.fx.release("many-2")

    names = [f"many-{place}" for place in range(3)]
    assert [world.fx.calls(name) for name in names] == [1, 1, 2]
    assert [world.fx.effects(name) for name in [*names, "many-other"]] == [1] * 4
    assert world.fx.calls("many-model") == 1
    assert len(world.value(run_id, "many")) == 5
    assert len({key for name in names for key in world.fx.keys(name)}) == 3
    check_invariants(settings().database_url, run_id)


def test_members_of_a_group_have_keys_of_their_own(world: World) -> None:
    run_id = world.start("tools", of="members", intent="group")
    world.wait_run(run_id)
    assert world.fx.all_effects("group-") == {f"group-{number}": 1 for number in range(3)}
    assert len(world.fx.keys("group-")) == 3


def test_named_calls_may_be_gathered(world: World) -> None:
    world.fx.hold("gathered-2", "after")
    run_id = world.start("tools", of="gathering", intent="gathered")
    world.fx.wait_held("gathered-2")
    wait_until(lambda: len(effects(run_id)) == 4, what="all four are written down")
    wait_until(
        lambda: sum(state == "settled" for _, state, _ in effects(run_id)) == 3,
        what="three are done",
    )
    os.kill(world.holder(run_id), signal.SIGKILL)
    world.wait_run(run_id)
    world.fx.release("gathered-2")

    assert world.fx.all_effects("gathered-") == {f"gathered-{place}": 1 for place in range(4)}
    assert [world.fx.calls(f"gathered-{place}") for place in range(4)] == [1, 1, 2, 1]
    assert len(world.fx.keys("gathered-")) == 4


def test_calls_that_are_awaited_one_by_one_need_no_names(world: World) -> None:
    world.fx.hold("awaited-2", "before")
    run_id = world.start("tools", of="awaiting", intent="awaited")
    world.fx.wait_held("awaited-2")
    os.kill(world.holder(run_id), signal.SIGKILL)
    world.wait_run(run_id)
    world.fx.release("awaited-2")

    wait_until(lambda: world.fx.calls("awaited-2") == 2, what="the third was asked for twice")
    assert [world.fx.calls(f"awaited-{place}") for place in range(2)] == [1, 1]
    assert world.fx.all_effects("awaited-") == {f"awaited-{place}": 1 for place in range(3)}
    check_invariants(settings().database_url, run_id)


def test_gathering_without_names_is_refused_with_the_way_out(world: World) -> None:
    run_id = world.start("tools", of="disordered", intent="disordered")
    world.wait_run(run_id, "failed")
    assert why(run_id).word == "call_name_needed"
    assert "ctx.call(tool, request, name=...)" in why(run_id).sentence
    assert world.fx.calls("disordered-task") == 0


def test_a_service_that_hangs_is_asked_again_under_the_same_key(world: World) -> None:
    world.fx.hold("hasty", "after")
    run_id = world.start("tools", of="hasty", intent="hasty")
    world.fx.wait_held("hasty")
    world.wait_run(run_id)
    world.fx.release("hasty")

    assert (world.fx.calls("hasty"), world.fx.effects("hasty")) == (2, 1)
    assert [outcome for outcome, _ in world.ended(run_id, "hasty")] == ["interrupted"]
    assert "no answer within 1 s" in world.ended(run_id, "hasty")[0][1]
    assert world.step(run_id, "hasty").crashes in (None, 0)
    check_invariants(settings().database_url, run_id)


def test_a_soft_time_limit_cuts_a_call_short_and_counts_no_failure(world: World) -> None:
    world.fx.hold("warned", "after")
    run_id = world.start("tools", of="warned", intent="warned")
    world.fx.wait_held("warned")
    world.wait_run(run_id)
    world.fx.release("warned")

    assert (world.fx.calls("warned"), world.fx.effects("warned")) == (2, 1)
    ((outcome, error),) = world.ended(run_id, "warned")
    assert outcome == "interrupted"
    assert "may have happened: SoftTimeLimitExceeded" in error
    check_invariants(settings().database_url, run_id)


def test_a_rate_limit_of_a_tool_holds_over_all_workers(world: World) -> None:
    run_id = world.start("tools", of="paced", intent="paced")
    world.wait_run(run_id)
    at = sorted(call["at"] for call in world.fx.requests("paced-"))
    assert len(at) == 6
    assert at[-1] - at[0] >= 0.95  # five intervals of a fifth of a second; the last may be late


def test_a_cancelled_run_settles_what_is_under_way_and_sends_nothing_new(world: World) -> None:
    world.fx.hold("cancelled-0", "after")
    run_id = world.start("tools", of="many", intent="cancelled")
    world.fx.wait_held("cancelled-0")
    runs.cancel(run_id, by="sam", reason="not needed", cancellation_id="c-1")
    world.fx.release("cancelled-0")
    world.wait_run(run_id, "cancelled")

    assert effects(run_id) == [("provider.order", "settled", 1)]
    assert world.fx.all_effects("cancelled-") == {"cancelled-0": 1}
    check_invariants(settings().database_url, run_id)


def test_a_refusal_is_retried_by_the_step_under_the_same_key(world: World) -> None:
    world.fx.fault("refused", "429", times=2)
    run_id = world.start("tools", of="persistent", intent="refused")
    world.wait_run(run_id)
    assert (world.fx.calls("refused"), world.fx.effects("refused")) == (3, 1)
    assert len(world.fx.keys("refused")) == 1
    assert [kind for kind, _, _ in world.events(run_id, "effect_refused")] == ["effect_refused"] * 2
    check_invariants(settings().database_url, run_id)
