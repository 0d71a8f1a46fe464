"""Looking up effects in doubt: whose turn it is, one look at a time, and what the look is told."""

from typing import Any

import pytest

from models.journal import effects, lookups, losing, runs
from models.settings import settings
from models.states import EffectClass
from tests.support.intents import (
    IDEMPOTENT,
    KEY,
    ONCE,
    QUERYABLE,
    at_work,
    effect,
    intend,
    put,
    send,
    stories,
)
from tests.support.journal import Journal
from tests.support.looking import OTHER, VERBS, begun, declare_rewind, due, in_doubt
from tests.support.threads import aside, at_once

# Whose turn it is


def test_what_is_in_doubt_is_handed_out_with_its_queue(journal: Journal) -> None:
    claimed = in_doubt(journal)
    assert lookups.take_due(limit=10) == [(claimed.run_id, KEY, "steps.toy@1")]


@pytest.mark.parametrize(
    "values",
    [
        {"state": "intended"}, {"state": "refused"}, {"state": "absent"}, {"person": "two of them"},
        {"due_at": "9999-01-01Z"}, {"looker": "other", "looker_until": "9999-01-01Z"},
    ],
    ids=["under way", "refused", "absent", "a person's", "not due", "being looked up"],
)  # fmt: skip
def test_others_are_not(journal: Journal, values: dict[str, Any]) -> None:
    in_doubt(journal)
    put(journal, **values)
    before = journal.image()
    assert due() == []
    assert lookups.begin(KEY, looker="look-1") is None
    assert journal.image() == before


def test_one_run_may_be_asked_for_and_a_limit_holds(journal: Journal) -> None:
    claimed = in_doubt(journal, keys=(KEY, OTHER))
    assert due(run_id="run-other") == []
    assert len(lookups.take_due(limit=1, run_id=claimed.run_id)) == 1
    assert len(due()) == 1


def test_a_lost_message_is_sent_again_after_its_grace_and_then_later_and_later(
    journal: Journal,
) -> None:
    in_doubt(journal)
    waits = []
    for _ in range(6):
        assert due() == [KEY]
        assert due() == []
        handed = effect(journal)["looker_until"]
        waits.append((handed - journal.one("SELECT onward_now()")).total_seconds())
        journal.advance(waits[-1])
    assert waits == [10.0, 10.0, 20.0, 40.0, 60.0, 60.0]


def test_two_publishers_share_none(journal: Journal) -> None:
    keys = tuple(f"run:a:registry.file:{number}" for number in range(20))
    in_doubt(journal, keys=keys)
    handed = at_once(*(due for _ in range(4)))
    assert sorted(key for one in handed for key in one) == sorted(keys)


def test_a_publisher_does_not_wait_for_what_another_has_in_hand(journal: Journal) -> None:
    in_doubt(journal, keys=(KEY, OTHER))
    with (
        journal.holding("SELECT 1 FROM effect WHERE key = %s FOR UPDATE", KEY),
        aside(due) as publishing,
    ):
        assert publishing.result() == [OTHER]
    assert due() == [KEY]


def test_what_could_not_be_sent_is_handed_out_again_soon(journal: Journal) -> None:
    in_doubt(journal)
    assert due() == [KEY]
    lookups.give_back([KEY, "none"], after=1.0)
    journal.advance(0.5)
    assert due() == []
    journal.advance(0.5)
    assert due() == [KEY]


def test_what_somebody_looks_up_is_not_given_back(journal: Journal) -> None:
    in_doubt(journal)
    begun()
    before = effect(journal)
    lookups.give_back([KEY], after=0.0)
    assert effect(journal) == before


# A key that the provider still honours is not looked up: its step sends it again


def test_what_is_simply_sent_again_is_not_looked_up(journal: Journal) -> None:
    in_doubt(journal, IDEMPOTENT)
    assert due() == []


@pytest.mark.parametrize(
    "why", ["forgotten", "too often", "cancelled", "undone", "gone", "another promise"]
)
def test_what_nobody_will_send_again_is(journal: Journal, why: str) -> None:
    claimed = in_doubt(journal, QUERYABLE if why == "another promise" else IDEMPOTENT)
    if why == "forgotten":
        journal.advance(3600.0)
    if why == "too often":
        put(journal, sends=settings().resend_limit + 1)
    if why == "cancelled":
        runs.cancel(claimed.run_id, by="ada", reason="no", cancellation_id="c-1")
    if why == "undone":
        journal.look.execute("UPDATE run SET hold = 'compensate', state = 'compensating'")
    if why == "gone":
        journal.look.execute("DELETE FROM live")
    assert due() == [KEY]


def test_sends_that_a_person_pardoned_do_not_count(journal: Journal) -> None:
    in_doubt(journal, IDEMPOTENT)
    put(journal, sends=settings().resend_limit + 3, pardoned_sends=3)
    assert due() == []


def test_a_failed_run_may_still_be_sent_back_and_send_it_again(journal: Journal) -> None:
    in_doubt(journal, IDEMPOTENT)
    journal.look.execute("UPDATE run SET hold = 'failed'")
    assert due() == []


# One look at a time, counted before it begins


def test_a_look_is_counted_before_it_runs_and_has_the_time_of_its_task(journal: Journal) -> None:
    in_doubt(journal)
    found = begun()
    row, now = effect(journal), journal.one("SELECT onward_now()")
    assert (row["checks"], row["failed_checks"], row["looker"]) == (1, 1, "look-1")
    held = (row["looker_until"] - now).total_seconds()
    assert held == settings().lookup_time_limit + lookups.SPARE
    assert (found.checks, found.failed_checks, found.revision) == (1, 0, row["revision"])


def test_nobody_looks_while_another_does_and_the_next_may_when_its_time_is_over(
    journal: Journal,
) -> None:
    in_doubt(journal)
    first = begun()
    assert lookups.begin(KEY, looker="look-2") is None
    assert due() == []
    journal.advance(settings().lookup_time_limit + lookups.SPARE)
    assert due() == [KEY]
    second = begun(looker="look-2")
    assert (second.checks, second.failed_checks) == (2, 1)
    for verb in VERBS.values():
        assert not verb(first)


def test_of_many_messages_one_looks(journal: Journal) -> None:
    in_doubt(journal)
    looks = at_once(
        *(lambda number=number: lookups.begin(KEY, looker=f"look-{number}") for number in range(6))
    )
    assert sum(look is not None for look in looks) == 1
    assert effect(journal)["checks"] == 1


def test_a_message_that_comes_late_does_not_look_before_the_next_is_due(journal: Journal) -> None:
    in_doubt(journal)
    lookups.look_again(begun(), after=60.0, counts=False, said="not yet")
    assert lookups.begin(KEY, looker="look-2") is None
    journal.advance(60.0)
    assert lookups.begin(KEY, looker="look-3") is not None


def test_a_looker_that_died_before_its_parents_eyes_is_not_waited_for(journal: Journal) -> None:
    claimed = in_doubt(journal)
    first = begun()
    lookups.looker_died("look-0", said="not this one")
    assert effect(journal)["looker"] == "look-1"
    lookups.looker_died("look-1", said="signal 9")
    row, now = effect(journal), journal.one("SELECT onward_now()")
    assert (row["looker"], row["looker_until"], row["failed_checks"]) == (None, None, 1)
    assert (row["due_at"] - now).total_seconds() == settings().look_pause
    assert stories(journal, claimed.run_id)[-1] == ("effect_looked", "signal 9")
    assert not lookups.found(first, result="1", source="lookup", said="there")


def test_a_looker_that_is_told_to_end_has_not_failed(journal: Journal) -> None:
    in_doubt(journal)
    lookups.let_go(begun())
    row = effect(journal)
    assert (row["looker"], row["looker_until"], row["failed_checks"]) == (None, None, 0)
    assert lookups.begin(KEY, looker="look-2") is not None


# What it is told of the effect


def test_what_the_look_is_told(journal: Journal) -> None:
    claimed = in_doubt(journal)
    journal.advance(12.0)
    found = begun()
    assert (found.run_id, found.step_key, found.branch) == (claimed.run_id, "a", "0")
    assert (found.tool, found.tool_version, found.request) == (
        "registry.file",
        "2",
        '{"servers":1}',
    )
    assert found.effect_class is EffectClass.QUERYABLE
    assert (found.pid, found.pid_started, found.pid_space) == (4242, 4243, "host:1")
    assert (found.token, found.sends, found.looks) == (1, 1, 0)
    assert (found.call_over, found.sender_died, found.evidence) == (True, False, None)
    assert (found.resendable, found.rewound, found.earlier_doubt) == (False, False, False)
    assert found.silent_for == 12.0
    assert found.absent_in == 5.0 + 10.0 + 60.0 + 20.0 - 12.0
    assert (found.undoes, found.undone_result) == (None, None)


def test_without_a_declared_lifetime_absence_never_proves_anything(journal: Journal) -> None:
    in_doubt(journal, ONCE)
    assert begun().absent_in is None


@pytest.mark.parametrize("seen", [True, False])
def test_a_death_that_the_parent_saw_is_proof(journal: Journal, seen: bool) -> None:
    journal.freeze()
    claimed = at_work()
    send(claimed)
    if seen:
        task_id = f"{claimed.run_id}:a"
        losing.mark_died(claimed.run_id, task_id=task_id, start_id="start-1", reason="signal 9")
    else:
        journal.lose()
    put(journal, state="unknown", doubted_at="2000-01-01Z")
    assert begun().sender_died is seen


def test_the_latest_late_answer_comes_with_it(journal: Journal) -> None:
    claimed = in_doubt(journal)
    effects.keep_evidence(KEY, claimed, result='"late"')
    assert begun().evidence == '"late"'


def test_of_an_undo_the_result_of_what_it_undoes_comes_with_it(journal: Journal) -> None:
    in_doubt(journal, keys=(KEY, OTHER))
    lookups.found(begun(), result='"filed"', source="lookup", said="there")
    put(journal, key=OTHER, undoes=KEY)
    found = begun(OTHER, "look-2")
    assert (found.undoes, found.undone_result) == (KEY, '"filed"')


def test_when_the_journal_went_back_the_time_counts_from_when_that_was_noticed(
    journal: Journal,
) -> None:
    in_doubt(journal)
    journal.advance(500.0)
    declare_rewind(journal)
    journal.advance(5.0)
    found = begun()
    assert found.rewound
    assert found.silent_for == 5.0
    assert found.absent_in == 95.0 - 5.0


def test_a_first_send_after_a_rewind_is_in_doubt_from_its_declaration_on(journal: Journal) -> None:
    journal.freeze()
    claimed = at_work()
    journal.advance(1.0)
    declare_rewind(journal)
    journal.advance(3.0)
    intend(claimed)
    found = begun()
    assert (found.rewound, found.silent_for, found.absent_in) == (True, 3.0, 95.0 - 3.0)


def test_what_was_sent_after_a_rewind_has_nothing_to_do_with_it(journal: Journal) -> None:
    journal.freeze()
    declare_rewind(journal)
    journal.advance(1.0)
    in_doubt(journal)
    journal.advance(4.0)
    found = begun()
    assert (found.rewound, found.silent_for) == (False, 4.0)
