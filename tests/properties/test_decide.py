"""The safety policy over everything it can be asked: one answer, and the order of its rules."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.journal.values import StaleStep
from models.states import BlockReason
from recovery.decide import Block, Cancel, Decision, LookUp, Reconcile, Requeue, backoff, decide

CRASH_LIMIT, LOST_LIMIT = 3, 10
COUNTS = (0, 1, 2, CRASH_LIMIT - 1, CRASH_LIMIT, CRASH_LIMIT + 1)
LOSSES = (0, 1, LOST_LIMIT - 1, LOST_LIMIT, LOST_LIMIT + 1)

QUIET = StaleStep(
    run_id="run-1", branch="0", step_key="read", revision=7, crashes=0, lost=0, untracked=False,
    cancel_requested=False, cause="died", reason="signal 9", worker="worker-1",
)  # fmt: skip

EVERYTHING = [
    replace(
        QUIET, unsettled_effects=e, cancel_requested=c, untracked=u, has_lookup=a, crashes=k, lost=n, sends=s
    )
    for e, c, u, a, k, n, s in product(
        (0, 1, 5), (False, True), (False, True), (False, True), COUNTS, LOSSES, (0, 1, 6)
    )
]  # fmt: skip


def judge(step: StaleStep) -> Decision:
    return decide(step, crash_limit=CRASH_LIMIT, lost_limit=LOST_LIMIT)


def expected(step: StaleStep) -> tuple[type[Decision], BlockReason | None]:
    """The rules in their order, written as a table."""
    rules: list[tuple[bool, type[Decision], BlockReason | None]] = [
        (step.unsettled_effects > 0, Reconcile, None),
        (step.untracked and step.has_lookup, LookUp, None),
        (step.cancel_requested, Cancel, None),
        (step.untracked, Block, BlockReason.UNTRACKED_STEP),
        (step.crashes >= CRASH_LIMIT, Block, BlockReason.POISON_STEP),
        (step.lost >= LOST_LIMIT, Block, BlockReason.POISON_STEP),
        (True, Requeue, None),
    ]
    return next((kind, reason) for holds, kind, reason in rules if holds)


def test_every_case_has_the_answer_of_the_first_rule_that_holds() -> None:
    for step in EVERYTHING:
        decision = judge(step)
        reason = decision.reason if isinstance(decision, Block) else None
        assert (type(decision), reason) == expected(step), step


def test_nothing_is_repeated_or_given_up_while_an_effect_is_in_doubt() -> None:
    assert {type(judge(step)) for step in EVERYTHING if step.unsettled_effects} == {Reconcile}


def test_an_untracked_step_is_never_repeated_by_itself() -> None:
    assert not any(isinstance(judge(step), Requeue) for step in EVERYTHING if step.untracked)


def test_what_can_be_asked_is_asked_even_when_the_run_is_cancelled() -> None:
    asked = [step for step in EVERYTHING if isinstance(judge(step), LookUp)]
    assert any(step.cancel_requested for step in asked)
    assert all(step.untracked and step.has_lookup for step in asked)


def test_a_request_that_is_left_unanswered_again_and_again_is_sent_later_and_later() -> None:
    pauses = [decide(replace(QUIET, sends=sends)) for sends in range(6)]
    assert pauses == [Requeue(after) for after in (0.0, 0.0, 1.0, 2.0, 4.0, 8.0)]


def test_a_block_says_what_happened_to_what_and_what_to_do() -> None:
    for step in EVERYTHING:
        decision = judge(step)
        if isinstance(decision, Block):
            assert "'read'" in decision.detail
            assert "onward runs" in decision.detail


@pytest.mark.parametrize(("crashes", "lost"), [(3, 0), (0, 10)])
def test_the_limits_of_the_settings_hold_without_others(crashes: int, lost: int) -> None:
    assert isinstance(decide(replace(QUIET, crashes=crashes, lost=lost)), Block)
    below = replace(QUIET, crashes=max(0, crashes - 1), lost=max(0, lost - 1))
    assert isinstance(decide(below), Requeue)


@given(
    st.builds(
        replace,
        st.just(QUIET),
        unsettled_effects=st.integers(0, 10**6),
        cancel_requested=st.booleans(),
        untracked=st.booleans(),
        has_lookup=st.booleans(),
        sends=st.integers(0, 10**6),
        crashes=st.integers(0, 10**6),
        lost=st.integers(0, 10**6),
        cause=st.text(),
        reason=st.text(),
    )
)
def test_there_is_always_one_answer_and_it_is_the_same_again(step: StaleStep) -> None:
    decision = judge(step)
    assert type(decision) is expected(step)[0]
    assert judge(step) == decision
    if isinstance(decision, Requeue):
        assert decision.after == backoff(max(step.crashes + step.lost, step.sends))


@given(st.integers(0, 10**4))
def test_pauses_grow_and_are_bounded(losses: int) -> None:
    assert 0.0 <= backoff(losses) <= backoff(losses + 1) <= 300.0


def test_the_first_loss_costs_no_time_and_each_further_one_twice_as_much() -> None:
    pauses = [backoff(losses) for losses in range(12)]
    assert pauses == [0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300]
