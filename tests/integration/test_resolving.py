"""What a person may say about an effect, and when it is refused."""

from collections.abc import Callable

import pytest

from models.journal import effects, rescue, stories
from models.journal.effect_values import GivenUp, Granted, InDoubt, Recorded
from models.journal.errors import Refused
from models.journal.resolving import Resolved
from models.journal.stories import UnknownEffect
from models.states import BlockReason
from tests.support.deciding import (
    LOOK_WHO,
    OTHER,
    abandon,
    absent,
    found,
    in_doubt,
    needs_person,
    next_attempt,
)
from tests.support.intents import (
    DIGEST,
    KEY,
    at_work,
    effect,
    intend,
    put,
    send,
    settlement,
)
from tests.support.intents import (
    stories as told,
)
from tests.support.journal import Journal, Worker
from tests.support.threads import aside, at_once

EVERY = pytest.mark.parametrize("resolve", [found, absent, abandon])


def test_what_was_found_is_the_result_of_the_call(journal: Journal) -> None:
    claimed = needs_person(journal)
    assert found() == Resolved(KEY, claimed.run_id, "a", "found as srv-1")
    row = settlement(journal)
    assert (row["outcome"], row["result"], row["source"]) == ("settled", '"srv-1"', "person")
    assert (row["actor"], row["reason"]) == ("alice", "asked the provider")
    assert journal.rows("SELECT 1 FROM effect") == []
    (event,) = journal.rows("SELECT * FROM event WHERE kind = 'effect_resolved'")
    assert (event["actor"], event["step_key"], event["token"]) == ("alice", "a", 1)
    assert event["detail"] == f"{KEY}: found as srv-1: asked the provider"
    assert intend(next_attempt(claimed)) == Recorded('"srv-1"', 1)


def test_what_is_absent_may_be_sent_as_another_request(journal: Journal) -> None:
    claimed = needs_person(journal)
    put(journal, sends=20)
    absent()
    row = effect(journal)
    assert (row["state"], row["request_digest"], row["person"]) == ("absent", None, None)
    assert row["pardoned_sends"] == 20
    assert send(next_attempt(claimed), OTHER) == Granted(21)
    assert effect(journal)["request_digest"] == "sha256:other"


def test_what_is_given_up_fails_its_call_for_good(journal: Journal) -> None:
    claimed = needs_person(journal)
    abandon()
    assert (settlement(journal)["outcome"], settlement(journal)["result"]) == ("abandoned", None)
    assert intend(next_attempt(claimed)) == GivenUp("asked the provider")


@EVERY
def test_the_step_goes_on_at_once(journal: Journal, resolve: Callable[[], Resolved]) -> None:
    claimed = needs_person(journal)
    journal.make(claimed.run_id, due_at="2100-01-01Z")
    resolve()
    live, run = journal.live(claimed.run_id), journal.run(claimed.run_id)
    assert (live["state"], live["block_reason"]) == ("unknown", None)
    assert live["due_at"] <= journal.one("SELECT onward_now()")
    assert (run["state"], run["reason"], run["detail"]) == ("running", None, None)
    assert [stale.step_key for stale in rescue.unknown_steps(limit=10)] == ["a"]


@EVERY
def test_a_step_waits_for_the_last_of_its_effects(
    journal: Journal, resolve: Callable[[str], Resolved]
) -> None:
    claimed = needs_person(journal, "first", "second")
    resolve("first")
    assert journal.live(claimed.run_id)["block_reason"] == "unknown_effect"
    assert journal.run(claimed.run_id)["state"] == "blocked"
    resolve("second")
    assert journal.live(claimed.run_id)["block_reason"] is None
    assert journal.run(claimed.run_id)["state"] == "running"


def test_two_people_at_once_do_not_leave_the_step_behind(journal: Journal) -> None:
    """Each would see the other's effect in doubt, and neither would wake the step."""
    keys = [f"effect-{number}" for number in range(4)]
    claimed = needs_person(journal, *keys)
    at_once(*(lambda key=key: absent(key) for key in keys))
    assert journal.live(claimed.run_id)["block_reason"] is None
    assert journal.run(claimed.run_id)["state"] == "running"


def test_a_run_stays_blocked_by_its_other_branches(journal: Journal) -> None:
    claimed = needs_person(journal)
    journal.look.execute(
        "INSERT INTO live (run_id, branch, step_key, queue, state, block_reason, error)"
        " VALUES (%s, '0/1.0', 'b', 'q', 'unknown', 'untracked_step', 'look yourself')",
        (claimed.run_id,),
    )
    found()
    run = journal.run(claimed.run_id)
    assert (run["state"], run["reason"]) == ("blocked", "untracked_step")
    assert run["detail"] == "look yourself"
    assert journal.live(claimed.run_id)["block_reason"] is None


def test_another_block_of_the_same_step_stays(journal: Journal) -> None:
    claimed = in_doubt()
    rescue.block(
        journal.ref(claimed.run_id), BlockReason.UNTRACKED_STEP, detail="look yourself", failed=False
    )  # fmt: skip
    found()
    assert journal.live(claimed.run_id)["block_reason"] == "untracked_step"
    assert journal.run(claimed.run_id)["state"] == "blocked"


@EVERY
def test_a_request_under_way_is_its_owners(
    journal: Journal, resolve: Callable[[], Resolved]
) -> None:
    claimed = at_work()
    send(claimed)
    before = journal.image()
    with pytest.raises(Refused, match=r"is being sent by worker-1 \(attempt 1\), which still hold"):
        resolve()
    assert journal.image() == before
    Worker().interrupt(claimed)
    resolve()
    (kind, _) = told(journal, claimed.run_id)[-1]
    assert kind == "effect_resolved"


@EVERY
def test_what_is_over_stays_so(journal: Journal, resolve: Callable[[], Resolved]) -> None:
    claimed = at_work()
    send(claimed)
    effects.settle(KEY, claimed, result='"done"')
    before = journal.image()
    with pytest.raises(Refused, match=r"was settled at .* \(answer, by onward\).*nothing was chan"):
        resolve()
    assert journal.image() == before


@EVERY
def test_only_the_first_decision_counts(journal: Journal, resolve: Callable[[], Resolved]) -> None:
    needs_person(journal)
    abandon()
    before = journal.image()
    with pytest.raises(Refused, match=r"was abandoned at .* by alice"):
        resolve()
    assert journal.image() == before


def test_a_key_is_freed_once(journal: Journal) -> None:
    needs_person(journal)
    absent()
    with pytest.raises(Refused, match="was resolved as absent before: its key is free"):
        absent()


@EVERY
def test_an_unknown_key_is_named(journal: Journal, resolve: Callable[[str], Resolved]) -> None:
    with pytest.raises(UnknownEffect, match="There is no effect 'nothing'; `onward effects list`"):
        resolve("nothing")


def test_a_look_under_way_counts_more_than_absent(journal: Journal) -> None:
    needs_person(journal)
    put(journal, person=None, looker="look-1", looker_until="2100-01-01Z")
    with pytest.raises(Refused, match="is being looked up at this moment"):
        absent()
    put(journal, looker_until="2000-01-01Z")
    absent()


def test_what_was_found_needs_no_look(journal: Journal) -> None:
    needs_person(journal)
    put(journal, person=None, looker="look-1", looker_until="2100-01-01Z")
    found()


def test_a_late_answer_counts_more_than_absent(journal: Journal) -> None:
    claimed = needs_person(journal)
    effects.keep_evidence(KEY, claimed, result='"srv-9"')
    with pytest.raises(Refused, match=r"has a late answer that says it happened \(\"srv-9\"\)"):
        absent()
    found()


def test_a_request_that_may_still_arrive_is_told(journal: Journal) -> None:
    needs_person(journal)
    row = effect(journal)
    assert absent().arrives_until == row["absent_after"]


def test_an_absent_effect_found_after_all(journal: Journal) -> None:
    claimed = needs_person(journal)
    put(journal, state="absent", person=None)
    found()
    assert intend(next_attempt(claimed)) == Recorded('"srv-1"', 1)


def test_a_person_and_a_new_attempt_do_not_both_have_it(journal: Journal) -> None:
    """The person comes first or the intent does; the other sees what became of it."""
    claimed = next_attempt(in_doubt())
    with (
        journal.holding(
            "SELECT 1 FROM live WHERE run_id = %s FOR NO KEY UPDATE", claimed.run_id
        ) as blocker,
        aside(absent) as person,
    ):
        blocker.wait_for(1)
        blocker.release()
        person.result()
    assert intend(claimed) == Granted(2)
    with pytest.raises(Refused, match="is being sent by"):
        absent()
    assert effect(journal)["request_digest"] == DIGEST


def test_a_doubt_without_a_decision_stays_one(journal: Journal) -> None:
    assert isinstance(intend(next_attempt(in_doubt())), InDoubt)


def test_effects_are_listed_by_what_they_need(journal: Journal) -> None:
    claimed = needs_person(journal, "first", "second")
    put(journal, key="second", person=None)
    assert {one.key for one in stories.list_effects()} == {"first", "second"}
    (listed,) = stories.list_effects(run_id=claimed.run_id, needs_person=True)
    assert (listed.key, listed.state, listed.person) == ("first", "unknown", LOOK_WHO)
    assert stories.list_effects(run_id="run-none") == []
    assert len(stories.list_effects(limit=1)) == 1


def test_a_stamp_of_a_message_is_no_look(journal: Journal) -> None:
    needs_person(journal)
    put(journal, person=None, looker=None, looker_until="2100-01-01Z")
    absent()
