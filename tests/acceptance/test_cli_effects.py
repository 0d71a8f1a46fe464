"""People decide about effects of real workers: what the commands tell, and what goes on afterwards."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from models.settings import settings
from tests.support.cli import Cli, cli_for
from tests.support.cluster import FAST
from tests.support.invariants import check_invariants
from tests.support.world import World

AGENTS = "tests.agents.rewinding"
SOON = {"ONWARD_LOOK_PAUSE": "0.3", "ONWARD_SEND_WINDOW": "2"}


@pytest.fixture(scope="module")
def world(make_world: Callable[..., AbstractContextManager[World]]) -> Iterator[World]:
    with make_world(agents=AGENTS, env=SOON) as world:
        world.cluster.up()
        yield world


@pytest.fixture
def onward(world: World, tmp_path: Path) -> Cli:
    return cli_for(
        tmp_path, **FAST, **SOON, ONWARD_AGENTS=AGENTS, ONWARD_DATABASE_URL=settings().database_url,
        ONWARD_BROKER_URL=settings().broker_url,
    )  # fmt: skip


def lost(world: World, onward: Cli, name: str) -> tuple[str, dict[str, Any]]:
    """A run whose letter was sent, with its answer lost; and the effect that waits for a person."""
    intent = f"letter-{name}"
    world.fx.fault(f"{intent}-sent", "drop_response")
    run_id = world.start("rewinding", intent=intent)
    world.wait_run(run_id, "blocked")
    (effect,) = onward("effects", "list", "--run", run_id, "--needs-person", "--json").json
    assert effect["state"] == "unknown"
    shown = onward("runs", "show", run_id).out
    assert f"needs a person: effect {effect['key']} of rewinding.letter in doubt since" in shown
    assert f"`onward effects resolve {effect['key']} --found ID`" in shown
    return run_id, effect


def test_found_in_the_outside_world(world: World, onward: Cli) -> None:
    run_id, effect = lost(world, onward, "found")
    said = onward(
        "effects", "resolve", effect["key"], "--found", "res-77", "--by", "ada", "--reason", "it arrived"
    )  # fmt: skip
    assert said.code == 0, said
    world.wait_run(run_id)
    assert onward("result", run_id, "--json").json["result"] == "res-77"
    assert world.fx.calls("letter-found-sent") == 1
    told = onward("history", run_id, "--json").json
    kinds = [line["kind"] for line in told if line["effect"] == effect["key"]]
    assert kinds == [
        "effect_intended", "effect_sent", "effect_unknown", "effect_needs_person", "effect_resolved",
        "effect_settled",
    ]  # fmt: skip
    assert [line["actor"] for line in told if line["kind"] == "effect_resolved"] == ["ada"]
    again = onward("effects", "resolve", effect["key"], "--absent")
    assert again.code == 1
    assert "was settled at" in again.sentence
    check_invariants(settings().database_url, run_id)


def test_absent_is_sent_again(world: World, onward: Cli) -> None:
    """The person is believed, also where the outside world knows better."""
    run_id, effect = lost(world, onward, "absent")
    assert onward("effects", "resolve", effect["key"], "--absent", "--by", "ada").code == 0
    world.wait_run(run_id)
    assert world.fx.calls("letter-absent-sent") == 2
    (settled,) = onward("effects", "list", "--run", run_id, "--json").json
    assert (settled["state"], settled["source"], settled["sends"]) == ("settled", "answer", 2)
    shown = onward("effects", "show", effect["key"]).out
    words = [line[27:42].strip() for line in shown.splitlines()]
    told = [
        word
        for word in words
        if word in ("intended", "sent", "lost", "resolved", "sent again", "settled")
    ]
    assert told == ["intended", "sent", "lost", "resolved", "sent again", "settled"]


def test_abandoned_fails_its_step(world: World, onward: Cli) -> None:
    run_id, effect = lost(world, onward, "abandoned")
    said = onward("effects", "resolve", effect["key"], "--abandon", "--reason", "not worth it")
    assert said.code == 0, said
    world.wait_run(run_id, "failed")
    assert world.fx.calls("letter-abandoned-sent") == 1
    shown = onward("runs", "show", run_id).out
    assert "was abandoned by a person: not worth it" in shown
    check_invariants(settings().database_url, run_id)


def test_a_look_up_tells_its_story_by_itself(world: World, onward: Cli) -> None:
    world.fx.fault("order-story-filed", "drop_response")
    run_id = world.start("rewinding", intent="order-story")
    world.wait_run(run_id)
    assert world.fx.calls("order-story-filed") == world.fx.effects("order-story-filed") == 1
    shown = onward("runs", "show", run_id).out
    assert "effects: 1 settled by look-up, 2 settled" in shown
    assert "found by asking, not sent again" in shown
    key = next(
        one["key"] for one in onward("effects", "list", "--run", run_id, "--json").json
        if one["source"] == "lookup"
    )  # fmt: skip
    kinds = [line["kind"] for line in onward("effects", "show", key, "--json").json["story"]]
    assert kinds == ["effect_intended", "effect_sent", "effect_unknown", "effect_settled"]
    check_invariants(settings().database_url, run_id)
