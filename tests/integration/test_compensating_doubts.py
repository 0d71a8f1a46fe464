"""Undos that may have happened, and doers that vanish: asked about first, and sent again only when they did not."""

from collections.abc import Iterator

import pytest

from models.ids import undo_key
from models.journal import compensations, effects, resolving
from models.settings import settings
from recovery import watch
from recovery.undo_plan import GOES
from tasks.tools import Undecided
from tests.support.journal import Journal
from tests.support.shelf import (
    SHELF,
    PutAndSee,
    PutBlindly,
    PutByKey,
    ask,
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


def test_an_undo_in_doubt_is_looked_up_and_sent_again_only_when_it_did_not_happen(
    scene: Scene,
) -> None:
    run_id, keys = failed_run((PutAndSee(), "one"), (PutAndSee(), "two"))
    SHELF.before["two"] = [RuntimeError("connection reset")]
    compensations.request(run_id, **BY)
    assert scene.go(run_id, after=20) == "compensating"
    assert scene.undos(run_id) == {"two": ("unknown", None)}
    assert scene.go(run_id, after=10) == "compensating"
    assert SHELF.undone == ["two"], "nothing is sent while it is in doubt"

    for seconds in (60, 5):
        scene.journal.advance(seconds)
        scene.look(run_id, undo_key(keys[1]))
    assert scene.undos(run_id) == {"two": ("absent", None)}
    assert scene.go(run_id, after=25) == "compensated"
    assert SHELF.undos == [
        ("two", undo_key(keys[1])), ("two", undo_key(keys[1])), ("one", undo_key(keys[0])),
    ]  # fmt: skip


def test_an_undo_whose_answer_was_lost_is_found_and_not_sent_again(scene: Scene) -> None:
    run_id, keys = failed_run((PutAndSee(), "one"))
    SHELF.after["one"] = [RuntimeError("connection reset")]
    compensations.request(run_id, **BY)
    assert scene.go(run_id, after=20) == "compensating"
    scene.journal.advance(5)
    scene.look(run_id, undo_key(keys[0]))
    assert scene.go(run_id, after=25) == "compensated"
    assert SHELF.undone == ["one"]
    assert scene.undos(run_id) == {"one": ("settled", "lookup")}


def test_an_undo_whose_key_is_honoured_is_sent_again_with_it(scene: Scene) -> None:
    run_id, keys = failed_run((PutByKey(), "one"))
    SHELF.after["one"] = [RuntimeError("connection reset")]
    compensations.request(run_id, **BY)
    assert scene.go(run_id) == "compensating"
    assert scene.go(run_id, after=5) == "compensated"
    assert SHELF.undos == [("one", undo_key(keys[0]))] * 2


def test_an_undo_that_can_be_neither_repeated_nor_looked_up_goes_to_a_person(scene: Scene) -> None:
    run_id, keys = failed_run((PutBlindly(), "one"))
    SHELF.after["one"] = [RuntimeError("connection reset")]
    compensations.request(run_id, **BY)
    assert scene.go(run_id) == "compensating"
    scene.look(run_id, undo_key(keys[0]))
    assert scene.go(run_id) == "blocked"
    assert undo_key(keys[0]) in scene.journal.run(run_id)["detail"]
    compensations.request(run_id, **BY)
    scene.look(run_id, undo_key(keys[0]))
    assert scene.go(run_id) == "blocked", "pressing again sends nothing that may have happened"
    assert SHELF.undone == ["one"]
    resolving.found(
        undo_key(keys[0]),
        external_id="credit-1",
        result="null",
        by="ada",
        reason="seen in the books",
    )
    assert scene.go(run_id) == "compensated"
    assert scene.undos(run_id) == {"one": ("settled", "person")}


def test_a_lookup_that_cannot_tell_is_asked_again_or_goes_to_a_person(scene: Scene) -> None:
    run_id, _ = failed_run((PutAndSee(), "one"))
    SHELF.look_up = lambda _key: Undecided("still provisioning", again_in=7.0)
    compensations.request(run_id, **BY)
    assert scene.go(run_id, after=20) == "compensating"
    assert scene.go(run_id, after=6) == "compensating"
    assert len(SHELF.looks) == 1
    SHELF.look_up = lambda _key: Undecided("two of them match")
    assert scene.go(run_id, after=2) == "blocked"
    assert "two of them match" in scene.journal.run(run_id)["detail"]
    assert SHELF.undone == []


def test_lookups_that_fail_are_counted_and_end_with_a_person(scene: Scene) -> None:
    def fail(_key: str) -> Undecided:
        raise SystemExit("the service is down")

    run_id, _ = failed_run((PutAndSee(), "one"))
    SHELF.look_up = fail
    compensations.request(run_id, **BY)
    state = scene.go(run_id, after=20)
    for _ in range(GOES):
        state = scene.go(run_id, after=60) if state == "compensating" else state
    assert state == "blocked"
    assert len(SHELF.looks) == GOES
    assert "the service is down" in scene.journal.run(run_id)["detail"]


def test_a_doer_that_vanishes_leaves_its_undo_in_doubt(scene: Scene) -> None:
    run_id, keys = failed_run((PutAndSee(), "one"))

    def vanish() -> None:
        scene.journal.advance(settings().lease_ttl + 1)
        scene.undo_due()

    SHELF.before["one"] = [vanish]
    compensations.request(run_id, **BY)
    assert scene.go(run_id, after=20) == "compensating"
    assert SHELF.undone == ["one"], "whoever came next asked first"
    assert scene.undos(run_id)["one"][0] == "unknown"
    kinds = scene.journal.events(run_id)
    assert "effect_unknown" in kinds
    assert kinds[-1] == "effect_late_answer", "the late answer is kept as evidence"
    scene.look(run_id, undo_key(keys[0]))
    assert scene.go(run_id, after=25) == "compensated"
    assert SHELF.undone == ["one"]
    assert scene.undos(run_id) == {"one": ("settled", "late_answer")}


def test_a_tool_that_ends_its_process_again_and_again_is_left_to_a_person(scene: Scene) -> None:
    run_id, _ = failed_run((PutAndSee(), "one"))
    compensations.request(run_id, **BY)
    scene.journal.look.execute("UPDATE compensation SET failures = %s", (GOES,))
    assert scene.go(run_id, after=20) == "blocked"
    assert SHELF.undone == []
    assert f"{GOES} goes" in scene.journal.run(run_id)["detail"]


def test_effects_in_doubt_are_reconciled_before_anything_is_undone(scene: Scene) -> None:
    run_id = submit_run(row_of("a", "b"))
    claimed = Worker().take(run_id, "a")
    did(claimed, PutByKey(), "first")
    doubtful = ask(claimed, PutAndSee(), "second")
    SHELF.things[doubtful] = "second"
    effects.doubt(doubtful, claimed, error="cut", call_over=True)
    Worker().interrupt(claimed)
    compensations.cancel_and_request(run_id, cancellation_id="cancel-1", **BY)
    assert scene.go(run_id) == "compensating"
    assert SHELF.undone == []
    assert watch.why(run_id).sentence.startswith("Its effects are being undone")
    scene.look(run_id, doubtful)
    assert scene.go(run_id, after=25) == "compensated"
    assert SHELF.undone == ["second", "first"]
    assert scene.journal.states(run_id) == {"a": "cancelled", "b": "not_reached"}
