"""When an effect comes into doubt, and that nothing of a step is given up or repeated before it is looked up."""

from typing import Any

import pytest

from models.journal import doubts, effects, lookups, losing, rescue, runs
from models.journal.effect_values import Promise
from models.journal.values import Claimed, StaleStep
from models.settings import settings
from tasks import group
from tests.support.intents import (
    IDEMPOTENT,
    KEY,
    ONCE,
    QUERYABLE,
    asking,
    at_work,
    effect,
    put,
    send,
    stories,
)
from tests.support.journal import Blocker, Journal, Worker, at, submit_run, wrong_refs
from tests.support.looking import OTHER, begun, declare_rewind, due, in_doubt
from tests.support.threads import aside


def lost(journal: Journal, *keys: str, promise: Promise | None = None) -> Claimed:
    """A step whose owner fell silent after it had sent these."""
    journal.freeze()
    claimed = at_work()
    for key in keys or (KEY,):
        send(claimed, asking(key, promise) if promise else asking(key))
    journal.lose()
    return claimed


def stale() -> StaleStep:
    (found,) = rescue.unknown_steps(limit=10)
    return found


# What decide is told


@pytest.mark.parametrize("state", ["intended", "unknown"])
def test_effects_in_doubt_are_counted(journal: Journal, state: str) -> None:
    lost(journal, KEY, OTHER)
    put(journal, state=state)
    assert (stale().unsettled_effects, stale().sends) == (2, 1)


@pytest.mark.parametrize("values", [{"state": "refused"}, {"state": "absent"}, {"undoes": "other"}])
def test_what_did_not_happen_and_undos_are_not_counted(
    journal: Journal, values: dict[str, Any]
) -> None:
    lost(journal)
    put(journal, **values)
    assert stale().unsettled_effects == 0


def test_what_is_settled_is_not_counted(journal: Journal) -> None:
    in_doubt(journal)
    assert stale().unsettled_effects == 1
    lookups.found(begun(), result="1", source="lookup", said="there")
    assert stale().unsettled_effects == 0


def test_other_steps_effects_are_not_counted(journal: Journal) -> None:
    lost(journal)
    put(journal, step_key="b")
    assert stale().unsettled_effects == 0


def test_what_is_sent_again_under_its_key_is_not_counted_but_slows_the_step_down(
    journal: Journal,
) -> None:
    lost(journal, promise=IDEMPOTENT)
    put(journal, sends=5, pardoned_sends=1)
    assert (stale().unsettled_effects, stale().sends) == (0, 4)


@pytest.mark.parametrize("why", ["forgotten", "too often", "a person's", "cancelled", "undone"])
def test_what_is_not_sent_again_is_counted(journal: Journal, why: str) -> None:
    lost(journal, promise=IDEMPOTENT)
    if why == "forgotten":
        journal.advance(3600.0)
    if why == "too often":
        put(journal, sends=settings().resend_limit + 1)
    if why == "a person's":
        put(journal, state="unknown", person="two of them")
    if why in ("cancelled", "undone"):
        hold = {"cancelled": "cancel", "undone": "compensate"}[why]
        journal.look.execute("UPDATE run SET hold = %s", (hold,))
    assert stale().unsettled_effects == 1


def test_the_reason_of_a_loss_outlives_what_look_ups_say(journal: Journal) -> None:
    claimed = at_work()
    send(claimed)
    task_id = f"{claimed.run_id}:a"
    losing.mark_died(claimed.run_id, task_id=task_id, start_id="start-1", reason="signal 9")
    doubts.doubt_step(journal.ref(claimed.run_id), pause=0.0)
    lookups.look_again(begun(), after=0.0, counts=False, said="not yet")
    assert "not yet" in journal.live(claimed.run_id)["error"]
    assert (stale().cause, stale().reason) == ("died", "signal 9")


# A lost step's intents come into doubt


def test_a_lost_steps_intents_are_taken_up(journal: Journal) -> None:
    claimed = lost(journal, KEY, OTHER)
    assert doubts.doubt_step(journal.ref(claimed.run_id), pause=60.0) == 2
    now = journal.one("SELECT onward_now()")
    for key in (KEY, OTHER):
        row = effect(journal, key)
        assert (row["state"], row["doubted_at"], row["due_at"]) == ("unknown", now, now)
        assert row["call_over"] is False
    live = journal.live(claimed.run_id)
    assert (live["state"], live["block_reason"]) == ("unknown", None)
    assert (live["due_at"] - now).total_seconds() == 60.0
    assert journal.run(claimed.run_id)["state"] == "running"
    told = [story for story in stories(journal, claimed.run_id) if story[0] == "effect_unknown"]
    assert told == 2 * [("effect_unknown", "its owner is gone: the owner fell silent")]
    assert sorted(due()) == sorted([KEY, OTHER])


def test_they_are_taken_up_once(journal: Journal) -> None:
    claimed = lost(journal)
    ref = journal.ref(claimed.run_id)
    assert doubts.doubt_step(ref, pause=60.0) == 1
    before = journal.image()
    assert doubts.doubt_step(ref, pause=60.0) == 0
    assert journal.image() == before


def test_whoever_saw_another_revision_takes_up_nothing(journal: Journal) -> None:
    claimed = lost(journal)
    before = journal.image()
    for ref in wrong_refs(journal.ref(claimed.run_id)):
        assert doubts.doubt_step(ref, pause=60.0) == 0
    journal.make(claimed.run_id, state="pending")
    now = journal.ref(claimed.run_id)
    assert doubts.doubt_step(now, pause=60.0) == 0
    assert journal.image()["effect"] == before["effect"]


def test_what_is_sent_again_is_left_to_that(journal: Journal) -> None:
    claimed = lost(journal, promise=IDEMPOTENT)
    assert doubts.doubt_step(journal.ref(claimed.run_id), pause=60.0) == 0
    assert effect(journal)["state"] == "intended"


@pytest.mark.parametrize("rewound", [False, True])
def test_a_step_about_whose_effect_a_person_was_asked_is_blocked_again(
    journal: Journal, rewound: bool
) -> None:
    claimed = lost(journal, promise=ONCE)
    put(journal, state="unknown", doubted_at="2000-01-01Z", person="two of them")
    if rewound:
        declare_rewind(journal)
    doubts.doubt_step(journal.ref(claimed.run_id), pause=60.0)
    live, run = journal.live(claimed.run_id), journal.run(claimed.run_id)
    word = "journal_rewound" if rewound else "unknown_effect"
    assert (live["block_reason"], run["state"], run["reason"]) == (word, "blocked", word)
    assert "two of them" in run["detail"]
    assert rescue.unknown_steps(limit=10) == []


# Intents that no step comes back to


def test_an_intent_under_way_is_no_stray(journal: Journal) -> None:
    claimed = at_work()
    send(claimed)
    assert doubts.doubt_strays(limit=10) == 0
    journal.lose()
    assert doubts.doubt_strays(limit=10) == 0, "the decision about its step takes it up"


@pytest.mark.parametrize("promise", [None, IDEMPOTENT])
def test_what_a_finished_step_did_not_ask_for_again_is_taken_up(
    journal: Journal, promise: Any
) -> None:
    claimed = lost(journal, promise=promise)
    journal.make(claimed.run_id, state="pending", due_at="2000-01-01Z")
    Worker().complete(Worker().take(claimed.run_id, "a"))
    assert doubts.doubt_strays(limit=10) == 1
    assert doubts.doubt_strays(limit=10) == 0
    assert effect(journal)["state"] == "unknown"
    assert due() == [KEY]


def test_an_undo_is_the_business_of_whoever_compensates(journal: Journal) -> None:
    claimed = lost(journal)
    put(journal, undoes="other")
    journal.look.execute("DELETE FROM live WHERE run_id = %s", (claimed.run_id,))
    assert doubts.doubt_strays(limit=10) == 0


@pytest.mark.parametrize("state", ["pending", "failed", "waiting"])
@pytest.mark.parametrize(
    "case", ["goes on", "cancelled", "undone", "failed run", "forgotten", "no promise"]
)
def test_a_step_that_will_send_it_again_keeps_it(journal: Journal, state: str, case: str) -> None:
    claimed = lost(journal, promise=None if case == "no promise" else IDEMPOTENT)
    journal.make(claimed.run_id, state=state)
    holds = {"cancelled": "cancel", "undone": "compensate", "failed run": "failed"}
    if case in holds:
        journal.look.execute("UPDATE run SET hold = %s", (holds[case],))
    if case == "forgotten":
        journal.advance(3600.0)
    assert doubts.doubt_strays(limit=10) == (0 if case in ("goes on", "failed run") else 1)


def test_of_many_so_many_at_a_time(journal: Journal) -> None:
    claimed = lost(journal, *(f"run:a:registry.file:{number}" for number in range(5)))
    journal.look.execute("DELETE FROM live WHERE run_id = %s", (claimed.run_id,))
    assert [doubts.doubt_strays(limit=2) for _ in range(4)] == [2, 2, 1, 0]


def test_a_stray_that_is_sent_again_at_the_same_moment_is_left_to_its_sender(
    journal: Journal,
) -> None:
    claimed = lost(journal, promise=IDEMPOTENT)
    journal.make(claimed.run_id, state="pending", due_at="2000-01-01Z")
    put(journal, resend_until="2000-01-01Z")
    with journal.connect() as link:
        link.execute("BEGIN")
        link.execute("UPDATE effect SET revision = revision + 1 WHERE key = %s", (KEY,))
        with aside(lambda: doubts.doubt_strays(limit=10)) as sweeping:
            Blocker(journal, link).wait_for(1)
            link.execute("COMMIT")
            assert sweeping.result() == 0
    assert effect(journal)["state"] == "intended"


# Nothing of a step is given up while it is in doubt


def cancelled(journal: Journal, claimed: Claimed) -> None:
    runs.cancel(claimed.run_id, by="ada", reason="enough", cancellation_id="c-1")


@pytest.mark.parametrize("state", ["pending", "failed", "waiting", "unknown"])
@pytest.mark.parametrize("of", ["intended", "unknown"])
def test_a_branch_with_an_effect_in_doubt_is_not_cancelled(
    journal: Journal, state: str, of: str
) -> None:
    claimed = lost(journal)
    put(journal, state=of)
    journal.make(claimed.run_id, state=state)
    cancelled(journal, claimed)
    assert rescue.cancellable(limit=10) == []
    assert rescue.cancel_branches([journal.ref(claimed.run_id)]) == []
    assert runs.settle(claimed.run_id) is None

    put(journal, state="unknown", doubted_at="2000-01-01Z", due_at="2000-01-01Z")
    lookups.found(begun(), result='"filed"', source="lookup", said="there")
    if state != "unknown":
        assert [ref.run_id for ref in rescue.cancellable(limit=10)] == [claimed.run_id]
    assert rescue.cancel_branches([journal.ref(claimed.run_id)]) == [claimed.run_id]
    assert runs.settle(claimed.run_id) == "cancelled"
    assert journal.one("SELECT outcome FROM effect_settlement") == "settled"


@pytest.mark.parametrize("values", [{"state": "refused"}, {"state": "absent"}, {"undoes": "other"}])
def test_what_did_not_happen_is_given_up_at_once(journal: Journal, values: dict[str, Any]) -> None:
    claimed = lost(journal)
    put(journal, **values)
    cancelled(journal, claimed)
    assert rescue.cancel_branches([journal.ref(claimed.run_id)]) == [claimed.run_id]


def test_a_blocked_branch_of_a_cancelled_run_shows_what_it_waits_for(journal: Journal) -> None:
    claimed = in_doubt(journal, ONCE)
    journal.make(claimed.run_id, state="pending")
    cancelled(journal, claimed)
    lookups.ask_person(begun(), said="its tool can neither be asked twice nor asked")
    assert journal.live(claimed.run_id)["block_reason"] == "unknown_effect"
    assert journal.run(claimed.run_id)["state"] == "blocked"
    effects.keep_evidence(KEY, claimed, result='"late"')
    lookups.found(begun(looker="look-2"), result='"late"', source="late_answer", said="late")
    assert journal.live(claimed.run_id)["block_reason"] is None
    assert [ref.run_id for ref in rescue.cancellable(limit=10)] == [claimed.run_id]


def ended_beside(journal: Journal, of: str, promise: Promise = QUERYABLE) -> tuple[str, str]:
    """A tolerated failure ends the group member in which a step has an effect in doubt."""
    journal.freeze()
    inner = at("in") | group(at("i0"), at("i1")) | at("inner")
    run_id = submit_run(at("a") | group(inner, at("m1"), tolerant=True) | at("join"))
    worker = Worker()
    worker.do(run_id, "a")
    worker.do(run_id, "in", branch="0/1.0")
    first, second = sorted(journal.branches(run_id) - {"0", "0/1.0", "0/1.1"})
    claimed = worker.take(run_id, "i1", second)
    send(claimed, asking(promise=promise))
    put(journal, state=of)
    worker.retry(claimed)
    worker.fail(worker.take(run_id, "i0", first))
    return run_id, second


@pytest.mark.parametrize("of", ["intended", "unknown"])
def test_a_tolerated_failure_leaves_a_branch_whose_effect_is_in_doubt(
    journal: Journal, of: str
) -> None:
    run_id, branch = ended_beside(journal, of)
    assert branch in journal.branches(run_id)
    assert branch not in {ref.branch for ref in rescue.cancellable(limit=10)}
    assert doubts.doubt_strays(limit=10) == (of == "intended")
    put(journal, doubted_at="2000-01-01Z", due_at="2000-01-01Z")
    lookups.found(begun(), result='"filed"', source="lookup", said="there")
    rescue.cancel_branches(rescue.cancellable(limit=10))
    assert branch not in journal.branches(run_id)
    assert journal.states(run_id)["i1"] == "cancelled"


def test_nobody_there_sends_again_what_a_provider_would_still_honour(journal: Journal) -> None:
    run_id, branch = ended_beside(journal, "intended", IDEMPOTENT)
    assert branch in journal.branches(run_id)
    assert doubts.doubt_strays(limit=10) == 1
    assert due() == [KEY]


def test_and_ends_one_whose_effect_did_not_happen(journal: Journal) -> None:
    run_id, branch = ended_beside(journal, "refused")
    assert branch not in journal.branches(run_id)
