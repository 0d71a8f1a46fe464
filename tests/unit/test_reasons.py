"""Why a run does not move: one word, one sentence, and whether somebody has to act."""

from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import pytest

from models.journal.stories import EffectView
from recovery.reasons import BranchFacts, DoubtFacts, Reason, UndoFacts, advice_on, explain

QUEUE = "steps.toy@1"


def facts(**changes: Any) -> BranchFacts:
    usual: dict[str, Any] = {
        "step_key": "read", "state": "pending", "missing": 0, "queue": QUEUE, "attempt": 0,
        "failures": 0, "due_in": -1.0, "lease_left": None, "held_for": None, "worker": None,
        "publications": 1, "block_reason": None, "error": None,
    }  # fmt: skip
    return BranchFacts(**(usual | changes))


def why(
    *branches: BranchFacts, state: str = "running", hold: str | None = None, served: bool = True
) -> Reason:
    return explain(
        state=state,
        hold=hold,
        reason=None,
        detail=None,
        branches=branches,
        served={QUEUE} if served else set(),
    )


RUNNING = {"state": "running", "worker": "worker-1", "lease_left": 20.0, "held_for": 12.0}


@pytest.mark.parametrize(
    ("changes", "word", "shown"),
    [
        (RUNNING, "running", "runs on worker-1 for 12 s"),
        (RUNNING | {"progress": "3 of 4"}, "running", "(3 of 4)"),
        (RUNNING | {"lease_left": -2.0}, "stale", "worker-1 is silent"),
        (RUNNING | {"lease_left": 0.0}, "stale", "worker-1 is silent"),
        ({"state": "unknown", "error": "signal 9"}, "unknown", "signal 9"),
        ({"state": "failed", "error": "no clause"}, "failed", "no clause"),
        ({"state": "waiting", "due_in": 90.0}, "waiting", "90 s"),
        ({"due_in": 30.0, "failures": 2, "error": "429"}, "retry", "in 30 s after 2 failures: 429"),
        ({"due_in": 30.0}, "scheduled", "due in 30 s"),
        (
            {"due_in": 30.0, "failures": 2, "error_type": "call_postponed", "error": "it is away"},
            "endpoint",
            "goes on in 30 s: it is away",
        ),
        (
            {"due_in": 9.0, "error_type": "throttled", "error": "its limit"},
            "scheduled",
            "its limit",
        ),
        ({"error_type": "call_postponed", "error": "it was away"}, "queued", "in the queue"),
        ({}, "queued", "its message is in the queue"),
        ({"publications": 0}, "queued", "when the queue has room"),
    ],
)
def test_the_reason_of_a_branch(changes: dict[str, Any], word: str, shown: str) -> None:
    reason = why(facts(**changes))
    assert reason.word == word
    assert "'read'" in reason.sentence
    assert shown in reason.sentence
    assert not reason.stuck


def test_a_queue_without_a_worker_needs_somebody() -> None:
    reason = why(facts(), served=False)
    assert (reason.word, reason.stuck) == ("no_worker", True)
    assert QUEUE in reason.sentence
    assert "ONWARD_AGENTS" in reason.sentence


def test_a_step_that_is_not_due_yet_is_not_without_a_worker() -> None:
    assert why(facts(due_in=5.0), served=False).word == "scheduled"


def test_what_needs_a_person_is_said_first_then_what_takes_time() -> None:
    words = [
        "no_worker",
        "unknown",
        "stale",
        "retry",
        "endpoint",
        "scheduled",
        "waiting",
        "queued",
        "running",
    ]
    branches = [
        facts(queue="other"),
        facts(state="unknown"),
        facts(**RUNNING | {"lease_left": -1.0}),
        facts(due_in=3.0, failures=1),
        facts(due_in=3.0, error_type="call_postponed"),
        facts(due_in=3.0),
        facts(state="waiting"),
        facts(),
        facts(**RUNNING),
    ]
    for first, word in enumerate(words):
        assert why(*reversed(branches[first:])).word == word


def test_joins_that_wait_for_members_are_no_reason() -> None:
    assert why(facts(missing=2), facts(**RUNNING)).word == "running"


@pytest.mark.parametrize("state", ["completed", "cancelled"])
def test_a_run_that_is_over_says_so(state: str) -> None:
    assert why(state=state) == Reason(state, f"The run is {state}.")


@pytest.mark.parametrize("state", ["blocked", "failed"])
def test_a_stopped_run_shows_its_own_reason(state: str) -> None:
    found = explain(
        state=state, hold=None, reason="poison_step", detail="killed three", branches=[], served=[]
    )
    assert found == Reason("poison_step", f"{state}: killed three", stuck=True)
    assert why(state=state) == Reason(state, f"{state}: see its history", stuck=True)


def test_a_cancelled_run_is_on_its_way() -> None:
    assert why(facts(), hold="cancel", served=False).word == "cancelling"


def test_a_failing_run_waits_for_its_running_siblings_not_for_workers() -> None:
    reason = why(facts(), facts(state="failed"), facts(**RUNNING), hold="failed", served=False)
    assert (reason.word, reason.stuck) == ("failed", False)


def test_a_run_without_a_branch_is_lost_and_says_what_to_do() -> None:
    reason = why()
    assert (reason.word, reason.stuck) == ("lost", True)
    assert "onward runs verify" in reason.sentence


KEY = "run:read:registry.file:1"


def doubt(**changes: Any) -> DoubtFacts:
    usual: dict[str, Any] = {
        "key": KEY, "step_key": "read", "tool": "registry.file", "is_undo": False, "person": None,
        "since": datetime(2026, 3, 1, 2, 30, tzinfo=UTC), "lasts": 45.0, "due_in": 3.0,
        "looking": False, "checks": 2, "last": "nothing there yet", "queue": QUEUE,
    }  # fmt: skip
    return DoubtFacts(**(usual | changes))


def undo(**changes: Any) -> UndoFacts:
    usual: dict[str, Any] = {
        "state": "undoing", "doing": False, "due_in": 5.0, "queue": QUEUE, "error": None,
    }  # fmt: skip
    return UndoFacts(**(usual | changes))


def of(*doubts: DoubtFacts, served: bool = True, **given: Any) -> Reason:
    usual: dict[str, Any] = {
        "state": "running", "hold": None, "reason": None, "detail": None,
        "branches": [facts(state="unknown")],
    }  # fmt: skip
    return explain(**(usual | given), doubts=doubts, served={QUEUE} if served else set())


IN_DOUBT = f"effect {KEY} of registry.file in doubt since 2026-03-01 02:30:00 (45 s)"
RESOLVE = f"`onward effects resolve {KEY} --found ID`, or --absent, or --abandon"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "next look in 3 s (2 looks, last: nothing there yet)."),
        ({"due_in": -1.0, "checks": 0, "last": None}, "next look now (0 looks)."),
        ({"looking": True}, "next look now (2 looks, last: nothing there yet)."),
    ],
)
def test_an_effect_in_doubt_says_since_when_and_what_is_next(
    changes: dict[str, Any], told: str
) -> None:
    assert of(doubt(**changes)) == Reason("unknown_effect", f"step 'read': {IN_DOUBT}, {told}")


def test_effects_of_other_steps_are_not_this_steps() -> None:
    assert of(doubt(step_key="other"), doubt(is_undo=True)).word == "unknown"


def test_a_look_that_no_worker_makes_needs_somebody() -> None:
    reason = of(doubt(), served=False)
    assert (reason.word, reason.stuck) == ("no_worker", True)
    assert f"looked up by a worker of queue {QUEUE!r}" in reason.sentence


def test_several_effects_show_the_first_and_count_the_others() -> None:
    reason = of(doubt(due_in=9.0), doubt(due_in=3.0), doubt(due_in=5.0))
    assert "next look in 3 s" in reason.sentence
    assert reason.sentence.endswith("And 2 more of its effects.")


@pytest.mark.parametrize("reason", ["unknown_effect", "journal_rewound", "compensation_failed"])
def test_a_blocked_run_names_the_effect_and_the_command(reason: str) -> None:
    found = of(
        doubt(person="its tool cannot be asked"), doubt(), state="blocked", reason=reason, detail="old"
    )  # fmt: skip
    told = f"blocked: needs a person: {IN_DOUBT} (its tool cannot be asked) -> {RESOLVE}"
    assert found == Reason(reason, told, stuck=True)


def test_more_effects_for_a_person_are_counted() -> None:
    waiting = [doubt(person="look"), doubt(person="look", key="other")]
    found = of(*waiting, state="blocked", reason="unknown_effect", detail=None)
    assert found.sentence.endswith("and 1 more effects (`onward effects list --needs-person`)")


def test_another_block_is_not_the_effects() -> None:
    found = of(doubt(person="look"), state="blocked", reason="poison_step", detail="killed three")
    assert found == Reason("poison_step", "blocked: killed three", stuck=True)


def test_a_branch_that_waits_for_a_person_in_a_run_that_moves() -> None:
    branches = [facts(**RUNNING | {"step_key": "other"}), facts(state="unknown")]
    found = of(doubt(person="look"), branches=branches)
    assert (found.word, found.stuck) == ("unknown_effect", True)
    assert RESOLVE in found.sentence


def test_a_conflict_says_how_it_ends() -> None:
    found = of(state="blocked", reason="idempotency_conflict", detail="another request.")
    assert "blocked: another request. When what it is bound to did not happen" in found.sentence
    told = of(state="blocked", reason="idempotency_conflict", detail="`onward effects resolve x`")
    assert told.sentence == "blocked: `onward effects resolve x`"


def test_a_cancelled_run_says_what_it_asks_first() -> None:
    found = of(doubt(), hold="cancel")
    assert found.word == "cancelling"
    assert IN_DOUBT in found.sentence


@pytest.mark.parametrize(
    ("changes", "served", "expected"),
    [
        ({}, True, Reason("compensating", "Its effects are being undone, next in 5 s.")),
        (
            {"doing": True, "error": "429"}, False,
            Reason("compensating", "Its effects are being undone, next now (last: 429)."),
        ),
        (
            {"state": "blocked", "error": "no such order"}, True,
            Reason("compensation_failed", "Undoing its effects is blocked: no such order", stuck=True),
        ),
    ],
)  # fmt: skip
def test_a_compensation_says_where_it_stands(
    changes: dict[str, Any], served: bool, expected: Reason
) -> None:
    assert of(state="compensating", undoing=undo(**changes), served=served) == expected
    assert of(state="completed", undoing=undo(**changes), served=served) == expected


def test_a_compensation_without_a_worker_needs_somebody() -> None:
    found = of(state="compensating", undoing=undo(), served=False)
    assert (found.word, found.stuck) == ("no_worker", True)


def test_a_compensation_names_what_it_waits_for() -> None:
    found = of(doubt(is_undo=True), state="compensating", undoing=undo())
    assert found.sentence.startswith(f"Its effects are being undone; undo {KEY} of registry.file")
    blocked = of(
        doubt(is_undo=True, person="refused"), state="completed", undoing=undo(state="blocked")
    )  # fmt: skip
    assert (blocked.word, blocked.stuck) == ("compensation_failed", True)
    assert RESOLVE in blocked.sentence


def view(**changes: Any) -> EffectView:
    usual: dict[str, Any] = dict.fromkeys(field.name for field in fields(EffectView))
    return EffectView(**(usual | {"key": KEY} | changes))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"state": "unknown", "person": "look"}, f"It needs a person (look): {RESOLVE}."),
        ({"state": "refused", "person": "no"}, f"It needs a person (no): {RESOLVE}."),
        (
            {"state": "unknown"},
            f"It is asked for by itself. Who knows already may say so: {RESOLVE}.",
        ),
        (
            {"state": "intended"},
            "It is under way: its answer, or the loss of its owner, says how it goes on.",
        ),
        ({"state": "absent"}, "It did not happen."),
        ({"state": "settled"}, None),
    ],
)
def test_advice_on_an_effect(changes: dict[str, Any], told: str | None) -> None:
    assert advice_on(view(**changes)) == told


@pytest.mark.parametrize("state", ["refused", "absent", "settled", "abandoned"])
def test_advice_on_a_conflict(state: str) -> None:
    told = advice_on(view(state=state), conflict=True)
    assert told is not None
    assert f"`onward effects resolve {KEY} --absent` frees the key" in told
