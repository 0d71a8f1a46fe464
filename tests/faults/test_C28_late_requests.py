"""C28: looked, found nothing, and then the first request arrived. The 40 s of the case are 4 s here, its 5 s 0.5."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from models import database
from models.journal import metrics
from models.settings import settings
from recovery.sweep import sweep_once
from recovery.watch import why
from tests.support.in_the_air import (
    SOON,
    effect_of,
    effects_of,
    happened_once,
    kill_holder,
    wait_effect,
)
from tests.support.invariants import check_invariants
from tests.support.waiting import wait_until
from tests.support.world import World

LANDS_AFTER = 4.0  #: seconds; the client stops listening after half a second

#: By name: the tool that orders it.
LATE = {
    "keyed": "hasty-keyed", "declared": "declared", "killed": "place", "undeclared": "undeclared",
    "blind": "hasty-blind",
}  # fmt: skip


@pytest.fixture(scope="module")
def world(make_world: Callable[..., AbstractContextManager[World]]) -> Iterator[World]:
    with make_world(agents="tests.agents.ledgered", env=SOON) as world:
        world.cluster.up()
        yield world


@pytest.fixture(scope="module")
def late(world: World) -> dict[str, str]:
    """Runs whose requests land long after nobody listens any more, all on their way at once."""
    for name in LATE:
        world.fx.fault(name, "apply_delay", seconds=LANDS_AFTER)
    run_ids = {name: world.start("ledgered", name=name, tool=tool) for name, tool in LATE.items()}
    wait_until(lambda: world.fx.calls("killed") == 1, what="it is on its way")
    kill_holder(world, run_ids["killed"])
    return run_ids


def _landed(world: World, name: str) -> float:
    """When the first request landed, in seconds since 1970."""
    wait_until(lambda: world.fx.made(name) == 1, what=f"the request for {name} lands")
    at = float(world.fx.resources(name)[0]["made_at"])
    took = at - world.fx.requests(name)[0]["at"]
    assert took > LANDS_AFTER - 0.1, "it landed before its time"  # a wall clock against a timer
    return at


def _first(run_id: str, kind: str) -> float:
    """When this first happened to a run, in seconds since 1970."""
    row = database.fetch_one(
        "SELECT extract(epoch FROM min(at))::float8 FROM event WHERE run_id = %(id)s AND kind = %(kind)s",
        {"id": run_id, "kind": kind},
    )
    assert row is not None
    assert row[0] is not None, f"{kind} did not happen to {run_id}"
    return float(row[0])


def _for_person() -> float:
    """The metric of effects in doubt that wait for a person."""
    (metric,) = (one for one in metrics.METRICS if one.name == "onward_unknown_effects")
    return dict(metrics.read(metric))["person",]


def test_C28_a_the_same_key_is_sent_again(world: World, late: dict[str, str]) -> None:
    run_id = late["keyed"]
    world.wait_run(run_id)
    sent = world.fx.requests("keyed")
    assert [one["key"] for one in sent] == [effect_of(run_id).key] * 2
    assert sent[1]["at"] < sent[0]["at"] + LANDS_AFTER, "the first was to land after the second"
    later = [one for one in ("killed", "blind") if world.fx.requests(one)[0]["at"] > sent[0]["at"]]
    _landed(world, later[-1])  # so the first has landed as well
    happened_once(world, "keyed", calls=2)
    check_invariants(settings().database_url, run_id)


@pytest.mark.parametrize("name", ["declared", "killed"])
def test_C28_b_an_early_look_finds_nothing_and_a_later_one_the_order(
    world: World, late: dict[str, str], name: str
) -> None:
    run_id = late[name]
    world.wait_run(run_id)
    assert _first(run_id, "effect_looked") < _landed(world, name), "no look came too early"
    assert "nothing is there" in world.events(run_id, "effect_looked")[0][2]
    happened_once(world, name)
    assert world.fx.lookups(name) >= 2
    effect = effect_of(run_id)
    assert (effect.state, effect.source, effect.sends) == ("settled", "lookup", 1)
    assert effect.value["resource_id"] == world.fx.resources(name)[0]["id"]
    assert world.value(run_id, "report") == effect.value["resource_id"]
    outcomes = [outcome for outcome, _ in world.ended(run_id, "order")]
    assert outcomes == ["interrupted" if name == "declared" else "died"]
    check_invariants(settings().database_url, run_id)


def test_C28_c_with_nothing_declared_a_person_decides(world: World, late: dict[str, str]) -> None:
    for name in ("undeclared", "blind"):
        run_id = late[name]
        world.wait_run(run_id, "blocked")
        assert _first(run_id, "run_blocked") < _landed(world, name), "it was not too early to tell"
        sweep_once(world.app)

        happened_once(world, name)
        assert world.fx.lookups(name) == (1 if name == "undeclared" else 0)
        assert world.state(run_id) == "blocked"
        assert why(run_id).word == "unknown_effect"
        assert why(run_id).stuck
        assert world.step(run_id, "order").block_reason == "unknown_effect"
        effect = effect_of(run_id)
        assert (effect.state, effect.sends) == ("unknown", 1)
        assert effect.person
        check_invariants(settings().database_url, run_id)
    assert _for_person() == 2


@pytest.mark.parametrize("status", [500, 502, 504])
def test_C28_d_an_error_after_sending_is_no_failure(world: World, status: int) -> None:
    name = f"error-{status}"
    world.fx.fault(name, "5xx_after_apply", status=status)
    run_id = world.start("ledgered", name=name)
    world.wait_run(run_id)
    happened_once(world, name)
    assert [outcome for outcome, _ in world.ended(run_id, "order")] == ["interrupted"]
    assert str(status) in world.events(run_id, "effect_unknown")[0][2]
    assert effect_of(run_id).source == "lookup"
    check_invariants(settings().database_url, run_id)


def test_C28_e_the_order_is_recorded_before_its_read_back_fails(world: World) -> None:
    world.fx.fault("read-back", "429", on="lookup", times=2)
    world.fx.hold("read-back", "before", on="lookup")
    run_id = world.start("ledgered-read-back", name="read-back")
    world.fx.wait_held("read-back")  # before its 429
    settled = wait_effect(run_id, "settled")
    assert settled.value["resource_id"] == world.fx.resources("read-back")[0]["id"]
    world.fx.release("read-back")
    world.wait_run(run_id)

    happened_once(world, "read-back")
    assert world.fx.lookups("read-back") == 3
    assert world.ended(run_id, "order_and_read")[0][0] == "failed"
    assert world.attempts(run_id) == {"order_and_read": 3}
    assert world.value(run_id, "order_and_read") == [settled.value["resource_id"], "ready"]
    assert effects_of(run_id) == [settled]
    check_invariants(settings().database_url, run_id)


def test_C28_e_the_order_is_recorded_before_its_reader_dies(world: World) -> None:
    world.fx.hold("read-killed", "before", on="lookup")
    run_id = world.start("ledgered-read-back", name="read-killed")
    world.fx.wait_held("read-killed")
    kill_holder(world, run_id)
    world.wait_run(run_id)
    world.fx.release("read-killed")
    happened_once(world, "read-killed")
    assert effect_of(run_id).source == "answer"
    check_invariants(settings().database_url, run_id)
