"""Why a run does not move: one word, one sentence, and whether somebody has to act."""

from typing import Any

import pytest

from recovery.reasons import BranchFacts, Reason, explain

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
    words = ["no_worker", "unknown", "stale", "retry", "scheduled", "waiting", "queued", "running"]
    branches = [
        facts(queue="other"),
        facts(state="unknown"),
        facts(**RUNNING | {"lease_left": -1.0}),
        facts(due_in=3.0, failures=1),
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
