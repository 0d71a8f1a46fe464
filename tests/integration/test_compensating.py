"""Undoing what a run did, on the real journal: the order, failures, people, and what somebody did by hand."""

from collections.abc import Iterator

import pytest

from models.ids import undo_key
from models.journal import compensations, resolving, runs
from recovery.undo_plan import GOES
from tests.support.journal import Journal
from tests.support.shelf import (
    SHELF,
    Mail,
    NotSent,
    PutAndSee,
    PutBlindly,
    PutByKey,
    Refused,
    Weigh,
    did,
    failed_run,
)
from tests.support.toys import Worker, row_of, submit_run
from tests.support.undone import Scene, a_scene

BY = {"by": "ada", "reason": "wrong customer"}


@pytest.fixture
def scene(journal: Journal, broker_url: str) -> Iterator[Scene]:
    with a_scene(journal, broker_url) as scene:
        yield scene


def test_the_last_effect_is_undone_first_each_under_a_key_of_its_own(scene: Scene) -> None:
    run_id, keys = failed_run((PutAndSee(), "one"), (PutByKey(), "two"), (PutBlindly(), "three"))
    before = scene.journal.step(run_id, "a")
    compensations.request(run_id, **BY)
    assert scene.journal.run(run_id)["state"] == "compensating"
    assert scene.go(run_id, after=20) == "compensated"

    assert SHELF.undos == [
        ("three", undo_key(keys[2])), ("two", undo_key(keys[1])), ("one", undo_key(keys[0])),
    ]  # fmt: skip
    assert SHELF.things == {}
    assert scene.undos(run_id) == dict.fromkeys(("one", "two", "three"), ("settled", "answer"))
    assert scene.journal.step(run_id, "a") == before, "steps are not touched"
    assert scene.journal.branches(run_id) == set()
    story = scene.journal.rows(
        "SELECT kind, detail, actor FROM event WHERE run_id = %s AND (kind LIKE 'comp%%' OR kind = 'effect_undone')"
        " ORDER BY event_id",
        run_id,
    )
    assert [row["kind"] for row in story] == [
        "compensation_requested", *["effect_undone"] * 3, "compensation_done",
    ]  # fmt: skip
    assert story[0]["actor"] == "ada"
    assert story[0]["detail"].endswith("wrong customer")
    assert [row["detail"].split(": ")[0] for row in story[1:4]] == keys[::-1]
    assert story[4]["detail"] == "3 undone, 0 given up"


def test_a_run_that_did_nothing_is_compensated_at_once(scene: Scene) -> None:
    run_id, _ = failed_run((Weigh(), "nothing"))
    compensations.request(run_id, **BY)
    assert scene.go(run_id) == "compensated"
    run = scene.journal.run(run_id)
    assert (run["reason"], run["hold"]) == ("ValueError", "compensate")
    assert "no such clause" in run["detail"], "why it failed is still told"
    assert run["finished_at"] is not None


def test_what_a_tool_cannot_undo_is_left_to_a_person_in_the_end(scene: Scene) -> None:
    run_id, keys = failed_run((PutByKey(), "first"), (Mail(), "letter"), (PutByKey(), "last"))
    compensations.request(run_id, **BY)
    assert scene.go(run_id) == "blocked"
    assert SHELF.undone == ["last", "first"], "the rest is undone"
    run = scene.journal.run(run_id)
    assert run["reason"] == "compensation_failed"
    assert keys[1] in run["detail"]
    assert "shelf.mail cannot undo" in run["detail"]
    assert scene.go(run_id, after=600) == "blocked"

    resolving.abandon(undo_key(keys[1]), by="ada", reason="it was read")
    assert scene.go(run_id) == "compensated"
    assert SHELF.undone == ["last", "first"]
    assert scene.undos(run_id)["letter"] == ("abandoned", "person")
    assert scene.journal.events(run_id)[-1] == "compensation_done"
    assert scene.journal.run(run_id)["reason"] == "ValueError"


def test_a_refusal_stops_what_came_before_until_a_person_presses_again(scene: Scene) -> None:
    run_id, keys = failed_run((PutByKey(), "book"), (PutByKey(), "ship"), (PutByKey(), "bill"))
    SHELF.before["ship"] = [Refused("it is at sea")]
    compensations.request(run_id, **BY)
    assert scene.go(run_id) == "blocked"
    assert SHELF.undone == ["bill", "ship"]
    run = scene.journal.run(run_id)
    assert undo_key(keys[1]) in run["detail"]
    assert "it is at sea" in run["detail"]
    assert scene.go(run_id, after=3600) == "blocked"

    assert compensations.request(run_id, by="bob", reason="it is back").changed
    assert scene.go(run_id) == "compensated"
    assert SHELF.undone == ["bill", "ship", "ship", "book"]
    assert scene.journal.events(run_id).count("compensation_requested") == 2
    assert scene.journal.events(run_id).count("compensation_blocked") == 1


def test_an_undo_that_never_left_is_tried_a_few_times_with_longer_and_longer_pauses(
    scene: Scene,
) -> None:
    run_id, keys = failed_run((PutByKey(), "book"))
    SHELF.before["book"] = [NotSent("no route")] * GOES
    compensations.request(run_id, **BY)
    waits = []
    state = scene.go(run_id)
    while state == "compensating":
        waits.append(
            scene.journal.one(
                "SELECT extract(epoch FROM due_at - onward_now())::int FROM compensation"
            )
        )
        state = scene.go(run_id, after=waits[-1] + 1)
    assert state == "blocked"
    assert SHELF.undone == ["book"] * GOES
    assert waits == [2, 4, 8, 16]
    assert "no route" in scene.journal.run(run_id)["detail"]
    compensations.request(run_id, **BY)
    assert scene.go(run_id) == "compensated"
    assert scene.compensation(run_id)["failures"] == GOES + 1, "what was counted stays counted"
    assert scene.journal.rows(
        "SELECT sends FROM effect_settlement WHERE key = %s", undo_key(keys[0])
    ) == [{"sends": GOES + 1}]


def test_what_was_undone_by_hand_is_found_and_not_done_again(scene: Scene) -> None:
    run_id, keys = failed_run((PutAndSee(), "kept"), (PutAndSee(), "gone"))
    del SHELF.things[keys[1]]
    compensations.request(run_id, **BY)
    assert scene.go(run_id, after=20) == "compensated"
    assert SHELF.undone == ["kept"]
    assert scene.undos(run_id) == {"gone": ("settled", "lookup"), "kept": ("settled", "answer")}
    (row,) = scene.journal.rows("SELECT * FROM effect_settlement WHERE key = %s", undo_key(keys[1]))
    assert row["sends"] == 0
    assert "already" in row["reason"]
    assert scene.journal.events(run_id).count("effect_undone") == 2


def test_what_a_lookup_may_still_miss_is_not_believed_to_be_undone(scene: Scene) -> None:
    run_id, keys = failed_run((PutAndSee(), "fresh"))
    hidden = SHELF.things.pop(keys[0])
    compensations.request(run_id, **BY)
    assert scene.go(run_id, after=2) == "compensating"
    assert (SHELF.looks, SHELF.undos) == (keys, [])
    SHELF.things[keys[0]] = hidden
    assert scene.go(run_id, after=4) == "compensating", "not before its consistency window"
    assert scene.go(run_id, after=5) == "compensated"
    assert SHELF.undone == ["fresh"]


def test_undone_by_hand_after_a_refusal_is_found_when_a_person_presses_again(scene: Scene) -> None:
    run_id, keys = failed_run((PutAndSee(), "order"))
    SHELF.before["order"] = [Refused("ask the desk")]
    compensations.request(run_id, **BY)
    assert scene.go(run_id, after=20) == "blocked"
    del SHELF.things[keys[0]]
    compensations.request(run_id, **BY)
    assert scene.go(run_id) == "compensated"
    assert SHELF.undone == ["order"], "nothing was sent again"
    assert scene.undos(run_id) == {"order": ("settled", "lookup")}


def test_a_tool_that_no_worker_here_has_is_tried_elsewhere_and_then_left_to_a_person(
    scene: Scene,
) -> None:
    run_id, keys = failed_run((PutByKey(), "one"), (PutAndSee(), "two"))
    with scene.journal.connect() as link:
        link.execute("SET session_replication_role = replica")
        link.execute("UPDATE effect_settlement SET tool = 'shelf.gone' WHERE key = %s", (keys[1],))
    compensations.request(run_id, **BY)
    state = scene.go(run_id)
    for _ in range(GOES):
        state = scene.go(run_id, after=60) if state == "compensating" else state
    assert state == "blocked"
    assert SHELF.undos == []
    assert "no tool is called 'shelf.gone'" in scene.journal.run(run_id)["detail"]


def test_single_effects_of_a_completed_run_are_undone_beside_it(scene: Scene) -> None:
    run_id = submit_run(row_of("a"))
    worker = Worker()
    claimed = worker.take(run_id, "a")
    keys = [did(claimed, PutByKey(), name) for name in ("one", "two", "three")]
    worker.complete(claimed)
    before = scene.journal.run(run_id)
    assert before["state"] == "completed"
    compensations.request(run_id, only=[keys[1]], **BY)
    assert scene.go(run_id) == "completed"
    assert SHELF.undone == ["two"]
    assert scene.journal.run(run_id) == before, "the run is what it was"
    compensations.request(run_id, only=[keys[0]], **BY)
    scene.go(run_id)
    assert SHELF.undone == ["two", "one"]
    assert not compensations.request(run_id, only=keys[:2], **BY).changed
    assert scene.compensation(run_id)["state"] == "done"


def test_a_failed_single_undo_blocks_the_compensation_and_not_the_run(scene: Scene) -> None:
    run_id, keys = failed_run((PutByKey(), "one"), (Mail(), "letter"))
    compensations.request(run_id, only=[keys[1]], **BY)
    assert scene.go(run_id) == "failed"
    assert scene.compensation(run_id)["state"] == "blocked"
    assert runs.send_back(run_id, by="ada") == ["b"]
    resolving.abandon(undo_key(keys[1]), by="ada", reason="read")
    assert scene.go(run_id) == "running"
    assert scene.compensation(run_id)["state"] == "done"
