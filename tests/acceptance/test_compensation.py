"""Compensation on real workers that are killed in it, counted by the outside world."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from models import database
from models.ids import undo_key
from models.settings import settings
from ops import client
from recovery import sending
from recovery.verify import verify
from recovery.watch import why
from tests.support.cli import Cli, cli_for
from tests.support.invariants import check_invariants
from tests.support.waiting import wait_until
from tests.support.world import World

BY = {"by": "ada", "reason": "the customer called"}
PIECES = ("flight", "hotel", "room")


@pytest.fixture(scope="module")
def world(make_world: Callable[..., AbstractContextManager[World]]) -> Iterator[World]:
    env = {"ONWARD_LOOK_PAUSE": "0.3", "ONWARD_SEND_WINDOW": "1"}
    with make_world(agents="tests.agents.undoing", env=env) as world:
        world.cluster.up(workers=2)
        yield world


@pytest.fixture
def cli(world: World, tmp_path: Path) -> Cli:
    given = {
        name: os.environ[name]
        for name in ("ONWARD_DATABASE_URL", "ONWARD_BROKER_URL", "ONWARD_TEST_FX")
    }
    return cli_for(tmp_path, ONWARD_AGENTS="tests.agents.undoing", **given)


def failed(world: World, trip: str) -> str:
    """A trip whose last step failed, with everything booked."""
    run_id = world.start("trip", trip=trip)
    world.wait_run(run_id, "failed")
    assert booked(world, trip) == dict.fromkeys(PIECES, 1)
    return run_id


def booked(world: World, trip: str) -> dict[str, int]:
    found = world.fx.all_effects(f"{trip}-")
    return {name.removeprefix(f"{trip}-"): count for name, count in found.items()}


def taken_back(world: World, trip: str) -> list[str]:
    """Every request to take something back, in order."""
    return [
        one["name"].removeprefix(f"{trip}-")
        for one in world.fx.requests(f"{trip}-")
        if one["kind"] == "delete"
    ]


def effects(run_id: str, where: str = "true") -> list[dict[str, Any]]:
    columns = ("key", "state", "source", "undoes", "pid", "sends", "request")
    rows = database.fetch(
        "SELECT e.key, e.state, e.source, e.undoes, o.pid, e.sends, coalesce(o.request, s.request) FROM effects e"
        " LEFT JOIN effect o ON o.key = e.key LEFT JOIN effect_settlement s ON s.key = e.key"
        " WHERE e.run_id = %(id)s ORDER BY e.created_at",
        {"id": run_id},
    )
    found = [dict(zip(columns, row, strict=True)) for row in rows]
    return [
        one for one in found if where == "true" or (one["undoes"] is not None) == (where == "undos")
    ]


def sources(run_id: str) -> list[str]:
    """How each undo was settled, in the order of undoing."""
    return [one["source"] for one in effects(run_id, "undos")]


def undone_at_rest(world: World, run_id: str, trip: str) -> None:
    world.wait_run(run_id, "compensated", timeout=60)
    assert booked(world, trip) == {}
    check_invariants(settings().database_url, run_id)
    assert verify(run_id) == []
    told = world.events(run_id, "effect_undone")
    assert len(told) == len(effects(run_id, "undos"))


def test_a_failed_run_is_undone_by_command_last_first(world: World, cli: Cli) -> None:
    run_id = failed(world, "by-command")
    before = world.results(run_id)
    plan = cli("runs", "compensate", run_id, "--dry-run", "--json").json
    assert [line["step_key"] for line in plan["preview"]["undo"]] == ["hotel", "hotel", "flight"]
    assert plan["requested"] is None
    assert world.state(run_id) == "failed"
    assert "add --yes" in cli("runs", "compensate", run_id).sentence

    said = cli(
        "runs", "compensate", run_id, "--yes", "--by", "ada", "--reason", "the customer called"
    )
    assert said.code == 0, said
    assert said.out.index("undone, in this order") < said.out.index("its undoing goes on")
    undone_at_rest(world, run_id, "by-command")
    assert taken_back(world, "by-command") == ["room", "hotel", "flight"]
    assert world.results(run_id) == before, "completed steps stay completed"
    assert sources(run_id) == ["answer"] * 3
    asked = world.events(run_id, "compensation_requested")
    assert "the customer called" in asked[0][2]
    again = cli("runs", "compensate", run_id, "--yes", "--json").json
    assert again["requested"] == {"run_id": run_id, "state": "done", "changed": False}


def test_a_workflow_that_says_so_is_undone_when_it_fails(world: World) -> None:
    run_id = world.start("saga", trip="saga")
    undone_at_rest(world, run_id, "saga")
    assert taken_back(world, "saga") == ["room", "hotel", "flight"]
    with pytest.raises(client.RunFailed, match="no seat left for saga"):
        client.result(run_id)


def test_killed_in_the_middle_of_an_undo_it_is_looked_up_and_not_sent_twice(world: World) -> None:
    run_id = failed(world, "killed")
    world.fx.hold("killed-hotel", "after", on="delete")
    client.compensate(run_id, **BY)
    world.fx.wait_held("killed-hotel")
    (undo,) = [one for one in effects(run_id, "undos") if one["state"] == "intended"]
    os.kill(undo["pid"], signal.SIGKILL)
    world.fx.release("killed-hotel")
    undone_at_rest(world, run_id, "killed")
    assert taken_back(world, "killed") == ["room", "hotel", "flight"]
    assert sources(run_id) == ["answer", "lookup", "answer"]
    assert world.events(run_id, "effect_unknown")


def test_two_presses_and_many_messages_undo_nothing_twice(world: World) -> None:
    run_id = failed(world, "pressed")
    world.fx.hold("pressed-room", "before", on="delete")
    assert client.compensate(run_id, **BY).changed
    assert not client.compensate(run_id, by="bob", reason="me too").changed
    world.fx.wait_held("pressed-room")
    queue = str(
        database.fetch("SELECT queue FROM compensation WHERE run_id = %(id)s", {"id": run_id})[0][0]
    )
    assert sending.send(world.app, [sending.compensate(run_id, queue)] * 20) == 20
    world.fx.release("pressed-room")
    undone_at_rest(world, run_id, "pressed")
    assert taken_back(world, "pressed") == ["room", "hotel", "flight"]


def test_what_is_refused_blocks_with_its_reason_and_goes_on_when_pressed_again(
    world: World, cli: Cli
) -> None:
    run_id = failed(world, "refused")
    world.fx.fault("refused-hotel", "refuse", on="delete")
    client.compensate(run_id, **BY)
    world.wait_run(run_id, "blocked")
    assert booked(world, "refused") == {"flight": 1, "hotel": 1}, "what came before it stays"
    reason = why(run_id)
    assert (reason.word, reason.stuck) == ("compensation_failed", True)
    (undo,) = [one for one in effects(run_id, "undos") if one["state"] == "refused"]
    assert undo["key"] in reason.sentence
    with pytest.raises(client.RunBlocked, match="could not all be undone"):
        client.result(run_id)
    assert "runs compensate" in cli("runs", "retry", run_id).err

    assert cli("runs", "compensate", run_id, "--yes").code == 0
    undone_at_rest(world, run_id, "refused")
    assert taken_back(world, "refused") == ["room", "hotel", "hotel", "flight"]


def test_what_somebody_took_back_by_hand_is_found_so(world: World) -> None:
    run_id = failed(world, "by-hand")
    (hotel,) = world.fx.resources("by-hand-hotel")
    world.fx.remove(hotel["id"])
    client.compensate(run_id, **BY)
    undone_at_rest(world, run_id, "by-hand")
    assert taken_back(world, "by-hand") == ["room", "flight"]
    assert sources(run_id) == ["answer", "lookup", "answer"]


def test_an_undo_whose_answer_is_lost_is_looked_up(world: World) -> None:
    run_id = failed(world, "lost")
    world.fx.fault("lost-room", "drop_response", on="delete")
    world.fx.fault("lost-hotel", "5xx_before_apply", on="delete")
    client.compensate(run_id, **BY)
    undone_at_rest(world, run_id, "lost")
    assert taken_back(world, "lost") == ["room", "hotel", "hotel", "flight"]
    assert sources(run_id) == ["lookup", "answer", "answer"]
    assert [one["sends"] for one in effects(run_id, "undos")] == [1, 2, 1]


def test_cancelled_with_an_effect_in_doubt_it_is_asked_first_and_then_undone(
    world: World, cli: Cli
) -> None:
    world.fx.hold("doubt-hotel", "after")
    run_id = world.start("trip", trip="doubt")
    world.fx.wait_held("doubt-hotel")
    world.fx.fault("doubt-hotel", "5xx_before_apply", times=1000, on="lookup")
    os.kill(world.holder(run_id), signal.SIGKILL)
    said = cli("runs", "cancel", run_id, "--compensate", "--yes", "--by", "ada", "--json").json
    assert said["cancelled_by"] == "ada"
    world.fx.release("doubt-hotel")
    wait_until(lambda: world.events(run_id, "effect_looked"), what="it is looked up")
    assert world.state(run_id) == "compensating"
    assert taken_back(world, "doubt") == [], "nothing is undone before that is known"
    assert why(run_id).word == "unknown_effect"
    world.fx.clear_faults("doubt-hotel")
    undone_at_rest(world, run_id, "doubt")
    assert world.fx.calls("doubt-hotel") == 1
    assert taken_back(world, "doubt") == ["hotel", "flight"]
    settled = {one["request"]: one["source"] for one in effects(run_id, "originals")}
    assert settled == {'"doubt-flight"': "answer", '"doubt-hotel"': "lookup"}
    with pytest.raises(client.RunCancelled, match="cancelled by ada"):
        client.result(run_id)


def test_cancelled_in_the_air_a_step_ends_first_and_is_undone_too(world: World) -> None:
    world.fx.hold("air-hotel", "after")
    run_id = world.start("trip", trip="air")
    world.fx.wait_held("air-hotel")
    client.cancel(run_id, compensate=True, **BY)
    wait_until(lambda: why(run_id).word == "compensating", what="it says that it is being undone")
    assert taken_back(world, "air") == []
    world.fx.release("air-hotel")
    undone_at_rest(world, run_id, "air")
    assert taken_back(world, "air") == ["hotel", "flight"]
    assert world.bodies(run_id, "depart") == 0


def test_what_cannot_be_undone_is_told_before_and_given_up_by_a_person(
    world: World, cli: Cli
) -> None:
    run_id = world.start("letter", trip="letter")
    world.wait_run(run_id, "failed")
    said = cli("runs", "compensate", run_id, "--yes")
    assert "CANNOT be undone" in said.out
    world.wait_run(run_id, "blocked")
    assert booked(world, "letter") == {"letter": 1}
    (original,) = [
        one for one in effects(run_id) if one["request"] == '"letter-letter"' and not one["undoes"]
    ]
    assert original["key"] in why(run_id).sentence
    gave_up = cli(
        "effects", "resolve", undo_key(original["key"]), "--abandon", "--reason", "it was read"
    )
    assert gave_up.code == 0, gave_up
    world.wait_run(run_id, "compensated")
    assert verify(run_id) == []
    assert world.events(run_id, "compensation_done")[0][2] == "1 undone, 1 given up"


def test_what_a_finished_step_did_not_ask_for_again_is_undone_alone(world: World, cli: Cli) -> None:
    run_id = world.start("wander", trip="wander")
    world.wait_run(run_id)
    assert booked(world, "wander") == {"attempt-1": 1, "attempt-2": 1}
    report = cli("runs", "verify", run_id, "--json")
    assert report.code == 1
    (finding,) = verify(run_id)
    assert finding.word == "effect_not_asked_again"
    assert cli("runs", "compensate", run_id, "--yes").sentence.count("--only KEY") == 1

    done = cli("runs", "compensate", run_id, "--only", finding.where, "--yes", "--json").json
    assert [line["key"] for line in done["preview"]["undo"]] == [finding.where]
    wait_until(lambda: booked(world, "wander") == {"attempt-2": 1}, what="the first is taken back")
    wait_until(lambda: world.events(run_id, "compensation_done"), what="it is told to be done")
    assert world.state(run_id) == "completed"
    assert verify(run_id) == []
    assert ": undone" in cli("runs", "verify", run_id).out
