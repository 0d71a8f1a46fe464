"""What each finding of a look-up leaves behind, and under what it counts."""

from dataclasses import replace
from typing import Any

import psycopg
import pytest

from models.journal import effects, lookups
from models.journal.effect_values import Recorded
from tasks import group
from tests.support.intents import (
    KEY,
    ONCE,
    asking,
    effect,
    put,
    send,
    settlement,
    stories,
)
from tests.support.journal import Journal, Worker, at, row_of, submit_run
from tests.support.looking import OTHER, VERBS, begun, declare_rewind, due, in_doubt
from tests.support.threads import at_once

# What is written counts only under what the look began with


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("field", ["key", "looker", "revision"])
def test_a_finding_needs_the_looker_and_the_revision(
    journal: Journal, verb: str, field: str
) -> None:
    in_doubt(journal, keys=(KEY, OTHER))
    found = begun()
    wrong: dict[str, Any] = {"key": OTHER, "looker": "look-2", "revision": found.revision - 1}
    before = journal.image()
    assert not VERBS[verb](replace(found, **{field: wrong[field]}))
    assert journal.image() == before
    assert VERBS[verb](found)
    assert journal.image() != before


@pytest.mark.parametrize("verb", VERBS)
def test_a_late_answer_that_comes_during_a_look_counts_instead(journal: Journal, verb: str) -> None:
    claimed = in_doubt(journal)
    found = begun()
    effects.keep_evidence(KEY, claimed, result='"late"')
    assert not VERBS[verb](found)
    lookups.let_go(found)
    assert begun(looker="look-2").evidence == '"late"'


@pytest.mark.parametrize("verb", VERBS)
def test_only_what_is_in_doubt_is_decided(journal: Journal, verb: str) -> None:
    in_doubt(journal)
    found = begun()
    for state in ("intended", "refused", "absent"):
        journal.look.execute("UPDATE effect SET state = %s", (state,))
        before = journal.image()
        assert not VERBS[verb](found)
        assert journal.image() == before


# What each finding leaves behind


def test_found_is_settled_for_good_and_its_step_goes_on(journal: Journal) -> None:
    claimed = in_doubt(journal)
    journal.make(claimed.run_id, due_at="9999-01-01Z")
    assert VERBS["found"](begun())
    row = settlement(journal)
    assert (row["outcome"], row["result"], row["source"]) == ("settled", '"filed"', "lookup")
    assert (row["actor"], row["reason"], row["token"]) == ("onward", "there", 1)
    assert journal.one("SELECT count(*) FROM effect") == 0
    live = journal.live(claimed.run_id)
    assert (live["state"], live["due_at"]) == ("unknown", journal.one("SELECT onward_now()"))
    assert stories(journal, claimed.run_id)[-1] == ("effect_settled", "there")
    assert effects.recall(KEY, asking().request_digest) == Recorded('"filed"', 1)


def test_found_after_its_step_went_on_without_it_is_reported(journal: Journal) -> None:
    claimed = in_doubt(journal)
    journal.make(claimed.run_id, state="pending", due_at="2000-01-01Z")
    Worker().complete(Worker().take(claimed.run_id, "a"))
    assert VERBS["found"](begun())
    assert journal.events(claimed.run_id)[-2:] == ["effect_settled", "effect_not_asked_again"]
    told = journal.one("SELECT detail FROM event WHERE kind = 'effect_not_asked_again'")
    assert told == KEY


def test_believed_absent_it_may_be_sent_again(journal: Journal) -> None:
    claimed = in_doubt(journal)
    journal.make(claimed.run_id, due_at="9999-01-01Z")
    assert VERBS["believe absent"](begun())
    row = effect(journal)
    assert (row["state"], row["failed_checks"], row["looker"]) == ("absent", 0, None)
    assert journal.live(claimed.run_id)["due_at"] == journal.one("SELECT onward_now()")
    assert stories(journal, claimed.run_id)[-1] == ("effect_absent", "not there")
    journal.make(claimed.run_id, state="pending", due_at="2000-01-01Z")
    assert send(Worker().take(claimed.run_id, "a")).sends == 2


def test_absence_that_is_known_after_a_rewind_is_not_doubted_for_it_again(journal: Journal) -> None:
    claimed = in_doubt(journal)
    journal.advance(1.0)
    declare_rewind(journal)
    journal.advance(1.0)
    assert VERBS["believe absent"](begun())
    journal.make(claimed.run_id, state="pending", due_at="2000-01-01Z")
    assert send(Worker().take(claimed.run_id, "a")).sends == 2


@pytest.mark.parametrize(("counts", "looks"), [(True, 2), (False, 0)])
def test_a_look_that_decides_nothing(journal: Journal, counts: bool, looks: int) -> None:
    claimed = in_doubt(journal)
    put(journal, looks=1, failed_checks=3)
    assert lookups.look_again(begun(), after=7.0, counts=counts, said="not yet")
    row, now = effect(journal), journal.one("SELECT onward_now()")
    assert (row["looks"], row["failed_checks"], row["state"]) == (looks, 0, "unknown")
    assert (row["looker"], row["looker_until"]) == (None, None)
    assert (row["due_at"] - now).total_seconds() == 7.0
    assert stories(journal, claimed.run_id)[-1] == ("effect_looked", "not yet")
    assert "not yet" in journal.live(claimed.run_id)["error"]
    assert journal.live(claimed.run_id)["block_reason"] is None


@pytest.mark.parametrize(
    "values", [{"state": "pending"}, {"block_reason": "untracked_step"}], ids=["pending", "blocked"]
)
def test_what_a_look_says_is_shown_only_by_a_step_that_waits_for_it(
    journal: Journal, values: dict[str, Any]
) -> None:
    claimed = in_doubt(journal)
    journal.make(claimed.run_id, error="as it was", **values)
    before = journal.live(claimed.run_id)
    assert VERBS["look again"](begun())
    assert journal.live(claimed.run_id) == before


def test_a_failed_check_changes_nothing_but_the_time_of_the_next(journal: Journal) -> None:
    claimed = in_doubt(journal)
    put(journal, looks=1, failed_checks=3)
    before = effect(journal)
    assert VERBS["check failed"](begun())
    row, now = effect(journal), journal.one("SELECT onward_now()")
    assert (row["looks"], row["failed_checks"], row["state"]) == (1, 4, "unknown")
    assert (row["due_at"] - now).total_seconds() == 7.0
    changed = {name for name, value in row.items() if before[name] != value}
    assert changed == {"checks", "failed_checks", "due_at", "error", "revision"}
    assert stories(journal, claimed.run_id)[-1] == ("effect_looked", "no route")


def test_a_step_that_waits_for_a_person_is_blocked_with_what_to_do(journal: Journal) -> None:
    claimed = in_doubt(journal)
    assert VERBS["ask person"](begun())
    row, live, run = effect(journal), journal.live(claimed.run_id), journal.run(claimed.run_id)
    assert (row["person"], row["state"], row["looker"]) == ("two of them", "unknown", None)
    assert (live["state"], live["block_reason"]) == ("unknown", "unknown_effect")
    assert (run["state"], run["reason"]) == ("blocked", "unknown_effect")
    for said in ("registry.file", "two of them", f"onward effects resolve {KEY}"):
        assert said in run["detail"]
    assert journal.events(claimed.run_id)[-2:] == ["effect_needs_person", "run_blocked"]
    assert due() == []


def test_a_person_is_asked_by_another_word_when_the_journal_went_back(journal: Journal) -> None:
    claimed = in_doubt(journal, ONCE)
    declare_rewind(journal)
    assert VERBS["ask person"](begun())
    assert journal.live(claimed.run_id)["block_reason"] == "journal_rewound"
    assert journal.run(claimed.run_id)["reason"] == "journal_rewound"


@pytest.mark.parametrize("state", ["pending", "failed"])
def test_a_step_that_is_not_lost_is_blocked_only_when_it_cannot_go_on(
    journal: Journal, state: str
) -> None:
    claimed = in_doubt(journal)
    journal.make(claimed.run_id, state=state, error="as it was")
    assert VERBS["ask person"](begun())
    live = journal.live(claimed.run_id)
    assert live["block_reason"] == (None if state == "pending" else "unknown_effect")
    assert live["error"] == "as it was"


def test_a_step_that_is_stopped_by_something_else_keeps_its_own_reason(journal: Journal) -> None:
    claimed = in_doubt(journal)
    journal.make(claimed.run_id, state="failed", block_reason="poison_step", error="three deaths")
    before = journal.live(claimed.run_id)
    assert VERBS["ask person"](begun())
    assert journal.live(claimed.run_id) == before
    assert "run_blocked" not in journal.events(claimed.run_id)


def test_a_late_answer_makes_a_blocked_step_go_on(journal: Journal) -> None:
    claimed = in_doubt(journal)
    VERBS["ask person"](begun())
    effects.keep_evidence(KEY, claimed, result='"late"')
    assert due() == [KEY]
    found = begun(looker="look-2")
    assert lookups.found(found, result='"late"', source="late_answer", said="its late answer")
    live, run = journal.live(claimed.run_id), journal.run(claimed.run_id)
    assert (live["block_reason"], live["state"]) == (None, "unknown")
    assert (run["state"], run["reason"]) == ("running", None)
    assert settlement(journal)["source"] == "late_answer"


@pytest.mark.parametrize("verb", ["found", "believe absent", "ask person"])
def test_a_finding_and_what_it_does_to_the_step_are_one(journal: Journal, verb: str) -> None:
    claimed = in_doubt(journal)
    found = begun()
    journal.look.execute(
        """
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'no ink'; END $$;
        CREATE TRIGGER refuse BEFORE UPDATE ON live FOR EACH ROW EXECUTE FUNCTION refuse()"""
    )
    before = journal.image()
    with pytest.raises(psycopg.errors.RaiseException):
        VERBS[verb](found)
    assert journal.image() == before
    journal.look.execute("DROP TRIGGER refuse ON live")
    assert VERBS[verb](found)
    assert journal.live(claimed.run_id)["revision"] > 2


@pytest.mark.parametrize("verb", ["found", "believe absent"])
def test_a_step_stays_blocked_while_a_person_is_wanted_for_another_effect(
    journal: Journal, verb: str
) -> None:
    claimed = in_doubt(journal, keys=(KEY, OTHER))
    VERBS["ask person"](begun(OTHER))
    VERBS[verb](begun(KEY, "look-2"))
    assert journal.live(claimed.run_id)["block_reason"] == "unknown_effect"
    assert journal.run(claimed.run_id)["state"] == "blocked"


@pytest.mark.parametrize("_time", range(5))
def test_two_effects_of_a_step_found_at_once_wake_it(journal: Journal, _time: int) -> None:
    claimed = in_doubt(journal, keys=(KEY, OTHER))
    journal.make(claimed.run_id, due_at="9999-01-01Z")
    first, second = begun(KEY, "look-1"), begun(OTHER, "look-2")
    at_once(lambda: VERBS["found"](first), lambda: VERBS["found"](second))
    assert journal.live(claimed.run_id)["due_at"] == journal.one("SELECT onward_now()")


def test_a_run_blocked_elsewhere_stays_blocked_by_that(journal: Journal) -> None:
    journal.freeze()
    run_id = submit_run(at("a") | group(at("m0"), at("m1")) | at("join"))
    worker = Worker()
    worker.do(run_id, "a")
    claimed = worker.take(run_id, "m0", "0/1.0")
    send(claimed)
    effects.doubt(KEY, claimed, error="no answer", call_over=True)
    worker.interrupt(claimed)
    VERBS["ask person"](begun())
    journal.make(run_id, "0/1.1", state="failed", block_reason="poison_step", error="three deaths")
    effects.keep_evidence(KEY, claimed, result='"late"')
    VERBS["found"](begun(looker="look-2"))
    run = journal.run(run_id)
    assert (run["state"], run["reason"], run["detail"]) == (
        "blocked",
        "poison_step",
        "three deaths",
    )


def test_looks_at_an_undo_leave_steps_alone(journal: Journal) -> None:
    claimed = in_doubt(journal)
    put(journal, undoes="run:a:registry.file:0")
    before = journal.live(claimed.run_id)
    for verb in ("look again", "ask person"):
        put(journal, due_at="2000-01-01Z", person=None)
        assert VERBS[verb](begun(looker=verb))
        assert journal.live(claimed.run_id) == before


def test_rows_of_two_steps_are_not_mixed_up(journal: Journal) -> None:
    claimed = in_doubt(journal)
    other = submit_run(row_of("a"))
    before = journal.live(other)
    VERBS["ask person"](begun())
    assert journal.live(other) == before
    assert journal.run(claimed.run_id)["state"] == "blocked"
