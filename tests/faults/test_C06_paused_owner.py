"""C06: the paused owner wakes up, under the same worker name, after another attempt has finished its step.

The service makes a second order whenever it is asked twice: what keeps it at one is the journal.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

import pytest

from models import database
from models.settings import settings
from tests.support.in_the_air import (
    SOON,
    caught,
    effect_of,
    happened_once,
    pause,
    start_armed,
    wait_looked,
    wait_paused,
)
from tests.support.invariants import check_invariants
from tests.support.waiting import wait_until
from tests.support.world import World

#: Request sent; answer in memory; order recorded; published. P2 is held by the service and paused from outside.
FAILPOINTS = ("E4", "P4", "P7")
POINTS = ("P2", *FAILPOINTS)
ARMED = ",".join(f"{point}:stop@ledgered-{point}.order" for point in ("E1", *FAILPOINTS))


@dataclass(frozen=True)
class Paused:
    """A run whose `order` was paused at one instant, and the process that was."""

    run_id: str
    pid: int


@pytest.fixture(scope="module", params=["hop", "sticky"])
def world(
    request: pytest.FixtureRequest, make_world: Callable[..., AbstractContextManager[World]]
) -> Iterator[World]:
    env = {**SOON, "ONWARD_STICKY": str(request.param == "sticky")}
    with make_world(agents="tests.agents.ledgered", env=env) as world:
        start_armed(world, ARMED, concurrency=2 * len(POINTS))
        yield world


@pytest.fixture(scope="module")
def paused(world: World) -> dict[str, Paused]:
    """All of them at once, each in a process of its own, until another attempt has finished each step."""
    found = {}
    run_id = caught(world, "paused-P2", "before")
    found["P2"] = Paused(run_id, world.holder(run_id))
    pause(found["P2"].pid)
    for point in FAILPOINTS:
        run_id = world.start(f"ledgered-{point}", name=f"paused-{point}")
        world.wait_fired(point)
        (pid,) = {one["pid"] for one in world.notes(run_id, "order")}
        wait_paused(int(pid))
        found[point] = Paused(run_id, int(pid))
    wait_looked(world, found["P2"].run_id)
    assert world.step(found["P2"].run_id, "order").state == "unknown", (
        "its owner is not proven gone"
    )
    world.fx.release("paused-P2")  # the order of a paused caller is placed all the same
    for one in found.values():
        world.wait_run(one.run_id)
    return found


def _rows(run_id: str) -> list[list[tuple[object, ...]]]:
    """Everything about a run that a late owner could touch."""
    params = {"id": run_id}
    return [
        database.fetch("SELECT * FROM run WHERE run_id = %(id)s", params),
        database.fetch("SELECT * FROM live WHERE run_id = %(id)s", params),
        database.fetch("SELECT * FROM step WHERE run_id = %(id)s ORDER BY step_key", params),
        database.fetch("SELECT * FROM effect WHERE run_id = %(id)s", params),
        database.fetch("SELECT * FROM effect_settlement WHERE run_id = %(id)s", params),
    ]


@pytest.mark.parametrize("point", ["P2", "E4", "P4"])
def test_C06_the_paused_owner_changes_nothing(
    world: World, paused: dict[str, Paused], point: str
) -> None:
    one, name = paused[point], f"paused-{point}"
    assert world.value(one.run_id, "order")["by"] == "attempt 2"
    before = _rows(one.run_id)
    os.kill(one.pid, signal.SIGCONT)
    _wait_told(world, one.run_id, point)

    assert _rows(one.run_id) == before
    happened_once(world, name)
    assert world.value(one.run_id, "report") == world.fx.resources(name)[0]["id"]
    assert effect_of(one.run_id).source == ("answer" if point == "P4" else "lookup")
    assert world.attempts(one.run_id) == {"prepare": 1, "order": 2, "report": 1}
    assert world.bodies(one.run_id, "report") == 1
    assert world.duplicates(one.run_id) == 0, "more than one message for the next step"
    assert world.ended(one.run_id, "order")[0][0] == "expired"
    check_invariants(settings().database_url, one.run_id)


def _wait_told(world: World, run_id: str, point: str) -> None:
    """The woken owner has come to its end, and what it brought is kept as evidence."""
    _wait_acked(world, run_id)
    if point == "P4":
        assert ("superseded", "") in world.ended(run_id, "order")
        assert "no longer owns the step" in world.cluster.logs("worker-1")
        return
    assert world.events(run_id, "effect_late_answer")
    (evidence,) = database.fetch(
        "SELECT v.token, v.result = s.result FROM effect_evidence v JOIN effect_settlement s USING (key)"
        " WHERE s.run_id = %(id)s",
        {"id": run_id},
    )
    assert evidence == (2, True), "the late answer of the first attempt (prepare has token 1)"
    assert f"Step displaced: The answer to {effect_of(run_id).key}" in world.cluster.logs(
        "worker-1"
    )


def _wait_acked(world: World, run_id: str) -> None:
    """The message that the paused owner held since before its pause is the last of the run."""
    unacked = f"{settings().key_prefix}unacked"
    wait_until(
        lambda: not any(run_id.encode() in message for message in world.broker.hvals(unacked)),
        what="the woken owner acks its message",
    )


def test_C06_paused_after_publishing_there_is_one_message_for_the_next_step(
    world: World, paused: dict[str, Paused]
) -> None:
    one = paused["P7"]
    before = _rows(one.run_id)
    os.kill(one.pid, signal.SIGCONT)
    _wait_acked(world, one.run_id)
    assert _rows(one.run_id) == before
    happened_once(world, "paused-P7")
    # In place the paused owner had claimed the next step as well: it has lost it, and does not enter its body.
    claimed_too = settings().sticky
    assert world.attempts(one.run_id) == {"prepare": 1, "order": 1, "report": 1 + claimed_too}
    assert world.bodies(one.run_id, "report") == 1
    assert world.duplicates(one.run_id) == 0
    assert world.queue_length("steps.ledgered-P7@1") == 0
    check_invariants(settings().database_url, one.run_id)


def test_C06_nothing_is_sent_again_while_a_paused_owner_might_still_send(world: World) -> None:
    """Paused before it has sent, or with an answer that never comes: once it has woken and says so, it goes on."""
    silent = {"unsent": _paused_before_sending(world), "unheard": _paused_without_an_answer(world)}
    for name, one in silent.items():
        _wait_said(world, one.run_id, "its sender is not proven gone")
        assert (world.fx.calls(name), world.fx.made(name)) == (int(name == "unheard"), 0)
        assert world.step(one.run_id, "order").state == "unknown"
    for one in silent.values():
        os.kill(one.pid, signal.SIGCONT)
    for name, one in silent.items():
        world.wait_run(one.run_id)
        assert world.events(one.run_id, "effect_call_ended"), "it kept to itself that it is done"
        happened_once(world, name, calls=1 + int(name == "unheard"))
        assert world.attempts(one.run_id) == {"prepare": 1, "order": 2, "report": 1}
        check_invariants(settings().database_url, one.run_id)


def _paused_before_sending(world: World) -> Paused:
    run_id = world.start("ledgered-E1", name="unsent", tool="brisk")
    world.wait_fired("E1")
    (pid,) = {int(one["pid"]) for one in world.notes(run_id, "order")}
    wait_paused(pid)
    return Paused(run_id, pid)


def _paused_without_an_answer(world: World) -> Paused:
    world.fx.fault("unheard", "drop_request")
    run_id = caught(world, "unheard", "before", tool="brisk")
    pid = world.holder(run_id)
    pause(pid)
    world.fx.release("unheard")
    return Paused(run_id, pid)


def _wait_said(world: World, run_id: str, what: str) -> None:
    wait_until(
        lambda: any(what in detail for _, _, detail in world.events(run_id, "effect_looked")),
        timeout=20,
        what=f"a look-up says that {what}",
        details=lambda: world.history(run_id),
    )
