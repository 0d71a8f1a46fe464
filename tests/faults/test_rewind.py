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
        world.cluster.up()
        run_ids = {}
        for intent in ("order", "letter"):
            world.fx.hold(f"{intent}-gate", "before")
            world.fx.hold(f"{intent}-end", "before")
            run_ids[intent] = world.start("rewinding", intent=intent)
            world.fx.wait_held(f"{intent}-gate")
        go_on_and_go_back(world, run_ids, tmp_path)

        world.cluster.up()
        world.wait_run(run_ids["order"], timeout=90)
        for name in ("filed", "paid", "last"):
            assert world.fx.effects(f"order-{name}") == 1, name
        assert (world.fx.calls("order-filed"), world.fx.calls("order-last")) == (1, 1)
        assert world.fx.calls("order-paid") == 2
        assert len(world.fx.keys("order-paid")) == 1
        check_invariants(settings().database_url, run_ids["order"])

        letter = run_ids["letter"]
        world.wait_run(letter, "blocked", timeout=60)
        assert why(letter).word == "journal_rewound"
        assert "needs a person" in why(letter).sentence
        (key,) = (row[0] for row in database.fetch("SELECT key FROM effect", {}))
        resolving.found(
            key, external_id="res", result='"res"', by="ada", reason="it is in the post"
        )
        world.wait_run(letter)
        assert (world.fx.calls("letter-sent"), world.fx.effects("letter-sent")) == (1, 1)
        check_invariants(settings().database_url, letter)

        (rewound,) = database.fetch("SELECT actor, reason FROM rewind", {})
        assert rewound[0] == "onward"
        assert "the broker remembers beat" in rewound[1]
        logs = "".join(world.cluster.logs(name) for name in ("worker-1", "control"))
        assert logs.count("ERROR onward.rewind The journal went back in time") == 1
        settled = database.fetch("SELECT tool, source FROM effect_settlement ORDER BY position", {})
        assert ("rewinding.file", "lookup") in settled
