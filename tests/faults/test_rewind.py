"""A backup is restored under running work: the run goes on, and the outside world counts every effect once."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from models import database
from models.journal import resolving
from models.settings import settings
from recovery.watch import why
from tests.support.backups import dump, restore
from tests.support.invariants import check_invariants
from tests.support.waiting import wait_until
from tests.support.world import World

#: So that what was never sent is believed absent within seconds.
SOON = {"ONWARD_PRESUME_DEAD_AFTER": "4", "ONWARD_LOOK_PAUSE": "0.5", "ONWARD_SEND_WINDOW": "2"}


def beats() -> int:
    row = database.fetch_one("SELECT beat FROM pulse", {})
    return int(row[0]) if row else 0


def beat_on() -> None:
    """Wait until the journal's pulse has been raised from here."""
    before = beats()
    wait_until(lambda: beats() > before, timeout=30, what="the pulse is raised")


def go_on_and_go_back(world: World, run_ids: dict[str, str], tmp_path: Path) -> None:
    """Take a backup while the runs wait at their gates, let them work on, and restore it under them."""
    beat_on()
    backup = dump(settings().database_url, tmp_path / "backup")
    for intent in run_ids:
        world.fx.release(f"{intent}-gate")
    for intent in run_ids:
        world.fx.wait_held(f"{intent}-end")
    beat_on()
    world.cluster.stop_all()
    database.close()
    restore(backup, settings().database_url)
    for intent in run_ids:
        world.fx.release(f"{intent}-end")
    assert {world.state(run_id) for run_id in run_ids.values()} == {"running"}


def test_a_restored_backup_repeats_no_effect(
    make_world: Callable[..., AbstractContextManager[World]], tmp_path: Path
) -> None:
    with make_world(agents="tests.agents.rewinding", env=SOON) as world:
        world.cluster.up(concurrency=3)
        run_ids = {}
        for intent in ("order", "letter", "raw"):
            world.fx.hold(f"{intent}-gate", "before")
            world.fx.hold(f"{intent}-end", "before")
            run_ids[intent] = world.start("rewinding", intent=intent)
            world.fx.wait_held(f"{intent}-gate")
        go_on_and_go_back(world, run_ids, tmp_path)

        world.cluster.up(concurrency=3)
        the_order_goes_on(world, run_ids["order"])
        the_letter_waits_for_a_person(world, run_ids["letter"])
        what_nobody_can_see_is_not_repeated(world, run_ids["raw"])
        ((actor, reason),) = database.fetch("SELECT actor, reason FROM rewind", {})
        assert actor == "onward"
        assert "the broker remembers beat" in reason
        logs = "".join(world.cluster.logs(name) for name in ("worker-1", "control"))
        assert logs.count("ERROR onward.rewind The journal went back in time") == 1


def the_order_goes_on(world: World, run_id: str) -> None:
    """What was filed is found, what was paid is sent under its key, what was never sent is sent once."""
    world.wait_run(run_id, timeout=90)
    for name in ("filed", "paid", "last"):
        assert world.fx.effects(f"order-{name}") == 1, name
    assert (world.fx.calls("order-filed"), world.fx.calls("order-last")) == (1, 1)
    assert (world.fx.calls("order-paid"), len(world.fx.keys("order-paid"))) == (2, 1)
    sources = database.fetch(
        "SELECT source FROM effect_settlement WHERE run_id = %(id)s ORDER BY position",
        {"id": run_id},
    )
    assert [row[0] for row in sources] == ["lookup", "answer", "answer"]
    check_invariants(settings().database_url, run_id)


def the_letter_waits_for_a_person(world: World, run_id: str) -> None:
    world.wait_run(run_id, "blocked", timeout=60)
    assert why(run_id).word == "journal_rewound"
    assert "needs a person" in why(run_id).sentence
    ((key,),) = database.fetch("SELECT key FROM effect WHERE run_id = %(id)s", {"id": run_id})
    resolving.found(key, external_id="res", result='"res"', by="ada", reason="it is in the post")
    world.wait_run(run_id)
    assert (world.fx.calls("letter-sent"), world.fx.effects("letter-sent")) == (1, 1)
    check_invariants(settings().database_url, run_id)


def what_nobody_can_see_is_not_repeated(world: World, run_id: str) -> None:
    world.wait_run(run_id, "blocked")
    assert why(run_id).word == "untracked_step"
    assert "may have been done in what was lost" in why(run_id).sentence
    assert (world.fx.calls("raw-raw"), world.bodies(run_id, "raw")) == (1, 1)
