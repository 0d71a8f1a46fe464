"""Undoing what a run did, on the real journal: order, doubts, failures, and what somebody did by hand."""

from collections.abc import Iterator

import pytest
from celery import Celery

from models.ids import undo_key
from models.journal import compensations, effects, rescue, resolving, runs
from models.settings import settings
from recovery import watch
from recovery.compensate import compensate
from recovery.reconcile import reconcile
from recovery.undo_plan import GOES
from tasks.tools import Undecided
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
    ask,
    did,
    failed_run,
)
from tests.support.toys import Worker, row_of, submit_run

BY = {"by": "ada", "reason": "wrong customer"}


@pytest.fixture(autouse=True)
def shelf() -> Iterator[None]:
    SHELF.clear()
    yield
    SHELF.clear()


@pytest.fixture
def app(broker_url: str) -> Iterator[Celery]:
    with Celery("onward-tests", broker=broker_url) as app:
        yield app


@pytest.fixture
def frozen(journal: Journal) -> Journal:
    journal.freeze()
    return journal


def go(app: Celery, journal: Journal, run_id: str, *, after: float = 1.0) -> str:
    """Everything that is due for this run ``after`` seconds; its state then."""
    journal.advance(after)
    rescue.cancel_branches(rescue.cancellable(limit=100))
    compensations.reopen_resolved()
    for one, _ in compensations.take_due(limit=10):
        compensate(app, one)
    return str(journal.run(run_id)["state"])


def compensation(journal: Journal, run_id: str) -> dict[str, object]:
    (row,) = journal.rows("SELECT * FROM compensation WHERE run_id = %s", run_id)
    return row


def undos(journal: Journal, run_id: str) -> dict[str, tuple[str, str | None]]:
    """(state, source) of every undo, by the name of the original's request."""
    found = journal.rows(
        "SELECT e.state, e.source, o.request FROM effects e JOIN effect_settlement o ON o.key = e.undoes"
        " WHERE e.run_id = %s",
        run_id,
    )
    return {row["request"].strip('"'): (row["state"], row["source"]) for row in found}


def test_the_last_effect_is_undone_first_each_under_a_key_of_its_own(
    frozen: Journal, app: Celery
) -> None:
    run_id, keys = failed_run((PutAndSee(), "one"), (PutByKey(), "two"), (PutBlindly(), "three"))
    before = frozen.step(run_id, "a")
    compensations.request(run_id, **BY)
    assert frozen.run(run_id)["state"] == "compensating"
    assert go(app, frozen, run_id, after=20) == "compensated"

    assert SHELF.undos == [
        ("three", undo_key(keys[2])), ("two", undo_key(keys[1])), ("one", undo_key(keys[0])),
    ]  # fmt: skip
    assert SHELF.things == {}
    assert undos(frozen, run_id) == dict.fromkeys(("one", "two", "three"), ("settled", "answer"))
    assert frozen.step(run_id, "a") == before, "steps are not touched"
    assert frozen.branches(run_id) == set()
    story = frozen.rows(
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


def test_a_run_that_did_nothing_is_compensated_at_once(frozen: Journal, app: Celery) -> None:
    run_id, _ = failed_run((Weigh(), "nothing"))
    compensations.request(run_id, **BY)
    assert go(app, frozen, run_id) == "compensated"
    run = frozen.run(run_id)
    assert (run["reason"], run["hold"]) == ("ValueError", "compensate")
    assert "no such clause" in run["detail"], "why it failed is still told"
    assert run["finished_at"] is not None


def test_what_a_tool_cannot_undo_is_left_to_a_person_in_the_end(
    frozen: Journal, app: Celery
) -> None:
    run_id, keys = failed_run((PutByKey(), "first"), (Mail(), "letter"), (PutByKey(), "last"))
    compensations.request(run_id, **BY)
    assert go(app, frozen, run_id) == "blocked"
    assert SHELF.undone == ["last", "first"], "the rest is undone"
    run = frozen.run(run_id)
    assert run["reason"] == "compensation_failed"
    assert keys[1] in run["detail"]
    assert "shelf.mail cannot undo" in run["detail"]
    assert go(app, frozen, run_id, after=600) == "blocked"

    resolving.abandon(undo_key(keys[1]), by="ada", reason="it was read")
    assert go(app, frozen, run_id) == "compensated"
    assert SHELF.undone == ["last", "first"]
    assert undos(frozen, run_id)["letter"] == ("abandoned", "person")
    assert frozen.events(run_id)[-1] == "compensation_done"
    assert frozen.run(run_id)["reason"] == "ValueError"


def test_a_refusal_stops_what_came_before_until_a_person_presses_again(
    frozen: Journal, app: Celery
) -> None:
    run_id, keys = failed_run((PutByKey(), "book"), (PutByKey(), "ship"), (PutByKey(), "bill"))
    SHELF.before["ship"] = [Refused("it is at sea")]
    compensations.request(run_id, **BY)
    assert go(app, frozen, run_id) == "blocked"
    assert SHELF.undone == ["bill", "ship"]
    run = frozen.run(run_id)
    assert undo_key(keys[1]) in run["detail"]
    assert "it is at sea" in run["detail"]
    assert go(app, frozen, run_id, after=3600) == "blocked"

    assert compensations.request(run_id, by="bob", reason="it is back").changed
    assert go(app, frozen, run_id) == "compensated"
    assert SHELF.undone == ["bill", "ship", "ship", "book"]
    assert frozen.events(run_id).count("compensation_requested") == 2
    assert frozen.events(run_id).count("compensation_blocked") == 1


def test_an_undo_that_never_left_is_tried_a_few_times_with_longer_and_longer_pauses(
    frozen: Journal, app: Celery
) -> None:
    run_id, keys = failed_run((PutByKey(), "book"))
    SHELF.before["book"] = [NotSent("no route")] * GOES
    compensations.request(run_id, **BY)
    waits = []
    state = go(app, frozen, run_id)
    while state == "compensating":
        waits.append(
            frozen.one("SELECT extract(epoch FROM due_at - onward_now())::int FROM compensation")
        )
        state = go(app, frozen, run_id, after=waits[-1] + 1)
    assert state == "blocked"
    assert SHELF.undone == ["book"] * GOES
    assert waits == [2, 4, 8, 16]
    assert "no route" in frozen.run(run_id)["detail"]
    compensations.request(run_id, **BY)
    assert go(app, frozen, run_id) == "compensated"
    assert compensation(frozen, run_id)["failures"] == GOES + 1, "what was counted stays counted"
    assert frozen.rows("SELECT sends FROM effect_settlement WHERE key = %s", undo_key(keys[0])) == [
        {"sends": GOES + 1}
    ]


def test_what_was_undone_by_hand_is_found_and_not_done_again(frozen: Journal, app: Celery) -> None:
    run_id, keys = failed_run((PutAndSee(), "kept"), (PutAndSee(), "gone"))
    del SHELF.things[keys[1]]
    compensations.request(run_id, **BY)
    assert go(app, frozen, run_id, after=20) == "compensated"
    assert SHELF.undone == ["kept"]
    assert undos(frozen, run_id) == {"gone": ("settled", "lookup"), "kept": ("settled", "answer")}
    (row,) = frozen.rows("SELECT * FROM effect_settlement WHERE key = %s", undo_key(keys[1]))
    assert row["sends"] == 0
    assert "already" in row["reason"]
    assert frozen.events(run_id).count("effect_undone") == 2


def test_what_a_lookup_may_still_miss_is_not_believed_to_be_undone(
    frozen: Journal, app: Celery
) -> None:
    run_id, keys = failed_run((PutAndSee(), "fresh"))
    hidden = SHELF.things.pop(keys[0])
    compensations.request(run_id, **BY)
    assert go(app, frozen, run_id, after=2) == "compensating"
    assert (SHELF.looks, SHELF.undos) == (keys, [])
    SHELF.things[keys[0]] = hidden
    assert go(app, frozen, run_id, after=4) == "compensating", "not before its consistency window"
    assert go(app, frozen, run_id, after=5) == "compensated"
    assert SHELF.undone == ["fresh"]


def test_undone_by_hand_after_a_refusal_is_found_when_a_person_presses_again(
    frozen: Journal, app: Celery
) -> None:
    run_id, keys = failed_run((PutAndSee(), "order"))
    SHELF.before["order"] = [Refused("ask the desk")]
    compensations.request(run_id, **BY)
    assert go(app, frozen, run_id, after=20) == "blocked"
    del SHELF.things[keys[0]]
    compensations.request(run_id, **BY)
    assert go(app, frozen, run_id) == "compensated"
    assert SHELF.undone == ["order"], "nothing was sent again"
    assert undos(frozen, run_id) == {"order": ("settled", "lookup")}


def test_an_undo_in_doubt_is_looked_up_and_sent_again_only_when_it_did_not_happen(
    frozen: Journal, app: Celery
) -> None:
    run_id, keys = failed_run((PutAndSee(), "one"), (PutAndSee(), "two"))
    SHELF.before["two"] = [RuntimeError("connection reset")]
    compensations.request(run_id, **BY)
    assert go(app, frozen, run_id, after=20) == "compensating"
    assert undos(frozen, run_id) == {"two": ("unknown", None)}
    assert go(app, frozen, run_id, after=10) == "compensating"
    assert SHELF.undone == ["two"], "nothing is sent while it is in doubt"

    for seconds in (60, 5):
        frozen.advance(seconds)
        reconcile(app, run_id, undo_key(keys[1]), looker=f"looker.{seconds}")
    assert undos(frozen, run_id) == {"two": ("absent", None)}
    assert go(app, frozen, run_id, after=25) == "compensated"
    assert SHELF.undos == [
        ("two", undo_key(keys[1])), ("two", undo_key(keys[1])), ("one", undo_key(keys[0])),
    ]  # fmt: skip


def test_an_undo_whose_answer_was_lost_is_found_and_not_sent_again(
    frozen: Journal, app: Celery
) -> None:
    run_id, keys = failed_run((PutAndSee(), "one"))
    SHELF.after["one"] = [RuntimeError("connection reset")]
    compensations.request(run_id, **BY)
    assert go(app, frozen, run_id, after=20) == "compensating"
    frozen.advance(5)
    reconcile(app, run_id, undo_key(keys[0]), looker="looker.1")
    assert go(app, frozen, run_id, after=25) == "compensated"
    assert SHELF.undone == ["one"]
    assert undos(frozen, run_id) == {"one": ("settled", "lookup")}


def test_an_undo_whose_key_is_honoured_is_sent_again_with_it(frozen: Journal, app: Celery) -> None:
    run_id, keys = failed_run((PutByKey(), "one"))
    SHELF.after["one"] = [RuntimeError("connection reset")]
    compensations.request(run_id, **BY)
    assert go(app, frozen, run_id) == "compensating"
    assert go(app, frozen, run_id, after=5) == "compensated"
    assert SHELF.undos == [("one", undo_key(keys[0]))] * 2


def test_an_undo_that_can_be_neither_repeated_nor_looked_up_goes_to_a_person(
    frozen: Journal, app: Celery
) -> None:
    run_id, keys = failed_run((PutBlindly(), "one"))
    SHELF.after["one"] = [RuntimeError("connection reset")]
    compensations.request(run_id, **BY)
    assert go(app, frozen, run_id) == "compensating"
    reconcile(app, run_id, undo_key(keys[0]), looker="looker.1")
    assert go(app, frozen, run_id) == "blocked"
    assert undo_key(keys[0]) in frozen.run(run_id)["detail"]
    compensations.request(run_id, **BY)
    reconcile(app, run_id, undo_key(keys[0]), looker="looker.2")
    assert go(app, frozen, run_id) == "blocked", (
        "pressing again sends nothing that may have happened"
    )
    assert SHELF.undone == ["one"]
    resolving.found(
        undo_key(keys[0]),
        external_id="credit-1",
        result="null",
        by="ada",
        reason="seen in the books",
    )
    assert go(app, frozen, run_id) == "compensated"
    assert undos(frozen, run_id) == {"one": ("settled", "person")}


def test_a_lookup_that_cannot_tell_is_asked_again_or_goes_to_a_person(
    frozen: Journal, app: Celery
) -> None:
    run_id, _ = failed_run((PutAndSee(), "one"))
    SHELF.look_up = lambda _key: Undecided("still provisioning", again_in=7.0)
    compensations.request(run_id, **BY)
    assert go(app, frozen, run_id, after=20) == "compensating"
    assert go(app, frozen, run_id, after=6) == "compensating"
    assert len(SHELF.looks) == 1
    SHELF.look_up = lambda _key: Undecided("two of them match")
    assert go(app, frozen, run_id, after=2) == "blocked"
    assert "two of them match" in frozen.run(run_id)["detail"]
    assert SHELF.undone == []


def test_lookups_that_fail_are_counted_and_end_with_a_person(frozen: Journal, app: Celery) -> None:
    def fail(_key: str) -> Undecided:
        raise SystemExit("the service is down")

    run_id, _ = failed_run((PutAndSee(), "one"))
    SHELF.look_up = fail
    compensations.request(run_id, **BY)
    state = go(app, frozen, run_id, after=20)
    for _ in range(GOES):
        state = go(app, frozen, run_id, after=60) if state == "compensating" else state
    assert state == "blocked"
    assert len(SHELF.looks) == GOES
    assert "the service is down" in frozen.run(run_id)["detail"]


def test_a_doer_that_vanishes_leaves_its_undo_in_doubt(frozen: Journal, app: Celery) -> None:
    run_id, keys = failed_run((PutAndSee(), "one"))

    def vanish() -> None:
        frozen.advance(settings().lease_ttl + 1)
        for one, _ in compensations.take_due(limit=10):
            compensate(app, one)

    SHELF.before["one"] = [vanish]
    compensations.request(run_id, **BY)
    assert go(app, frozen, run_id, after=20) == "compensating"
    assert SHELF.undone == ["one"], "whoever came next asked first"
    assert undos(frozen, run_id)["one"][0] == "unknown"
    kinds = frozen.events(run_id)
    assert "effect_unknown" in kinds
    assert kinds[-1] == "effect_late_answer", "the late answer is kept as evidence"
    reconcile(app, run_id, undo_key(keys[0]), looker="looker.1")
    assert go(app, frozen, run_id, after=25) == "compensated"
    assert SHELF.undone == ["one"]
    assert undos(frozen, run_id) == {"one": ("settled", "late_answer")}


def test_a_tool_that_ends_its_process_again_and_again_is_left_to_a_person(
    frozen: Journal, app: Celery
) -> None:
    run_id, _ = failed_run((PutAndSee(), "one"))
    compensations.request(run_id, **BY)
    frozen.look.execute("UPDATE compensation SET failures = %s", (GOES,))
    assert go(app, frozen, run_id, after=20) == "blocked"
    assert SHELF.undone == []
    assert f"{GOES} goes" in frozen.run(run_id)["detail"]


def test_effects_in_doubt_are_reconciled_before_anything_is_undone(
    frozen: Journal, app: Celery
) -> None:
    run_id = submit_run(row_of("a", "b"))
    claimed = Worker().take(run_id, "a")
    did(claimed, PutByKey(), "first")
    doubtful = ask(claimed, PutAndSee(), "second")
    SHELF.things[doubtful] = "second"
    effects.doubt(doubtful, claimed, error="cut", call_over=True)
    Worker().interrupt(claimed)
    compensations.cancel_and_request(run_id, cancellation_id="cancel-1", **BY)
    assert go(app, frozen, run_id) == "compensating"
    assert SHELF.undone == []
    assert watch.why(run_id).sentence.startswith("Its effects are being undone")
    reconcile(app, run_id, doubtful, looker="looker.1")
    assert go(app, frozen, run_id, after=25) == "compensated"
    assert SHELF.undone == ["second", "first"]
    assert frozen.states(run_id) == {"a": "cancelled", "b": "not_reached"}


def test_single_effects_of_a_completed_run_are_undone_beside_it(
    frozen: Journal, app: Celery
) -> None:
    run_id = submit_run(row_of("a"))
    worker = Worker()
    claimed = worker.take(run_id, "a")
    keys = [did(claimed, PutByKey(), name) for name in ("one", "two", "three")]
    worker.complete(claimed)
    before = frozen.run(run_id)
    assert before["state"] == "completed"
    compensations.request(run_id, only=[keys[1]], **BY)
    assert go(app, frozen, run_id) == "completed"
    assert SHELF.undone == ["two"]
    assert frozen.run(run_id) == before, "the run is what it was"
    compensations.request(run_id, only=[keys[0]], **BY)
    go(app, frozen, run_id)
    assert SHELF.undone == ["two", "one"]
    assert not compensations.request(run_id, only=keys[:2], **BY).changed
    assert compensation(frozen, run_id)["state"] == "done"


def test_a_failed_single_undo_blocks_the_compensation_and_not_the_run(
    frozen: Journal, app: Celery
) -> None:
    run_id, keys = failed_run((PutByKey(), "one"), (Mail(), "letter"))
    compensations.request(run_id, only=[keys[1]], **BY)
    assert go(app, frozen, run_id) == "failed"
    assert compensation(frozen, run_id)["state"] == "blocked"
    assert runs.send_back(run_id, by="ada") == ["b"]
    resolving.abandon(undo_key(keys[1]), by="ada", reason="read")
    assert go(app, frozen, run_id) == "running"
    assert compensation(frozen, run_id)["state"] == "done"
