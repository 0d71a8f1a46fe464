"""What a look-up leads to, over everything it can find: above all, when absence may be believed."""

from dataclasses import replace
from itertools import product
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.journal.effect_values import OpenEffect
from models.journal.untracked import StepInDoubt
from models.journal.values import Claimed, StaleStep
from models.settings import settings
from models.states import EffectClass
from recovery.conclude import (
    AskPerson,
    BelieveAbsent,
    CannotTell,
    CheckFailed,
    Conclusion,
    Finding,
    LookAgain,
    Misfit,
    NotAskable,
    Nothing,
    Seen,
    Settle,
    TryAgain,
    conclude,
    conclude_step,
    pause,
)

LIMIT = settings().lookup_failure_limit
SILENT = settings().presume_dead_after

EFFECT = OpenEffect(
    key="run-1:file:registry.file:1", run_id="run-1", step_key="file", branch="0", tool="registry.file",
    tool_version="1", effect_class=EffectClass.QUERYABLE, undoes=None, request="{}", token=1, sends=1,
    looks=0, checks=1, failed_checks=0, error=None, pid=1, pid_started=1, pid_space="host",
    call_over=False, looker="look-1", revision=3, evidence=None, undone_result=None, resendable=False,
    sender_died=False, absent_in=-1.0, silent_for=0.0, rewound=False, earlier_doubt=False,
)  # fmt: skip

SIGNIFICANT = (EffectClass.IDEMPOTENT, EffectClass.QUERYABLE, EffectClass.ONCE)
BOTH = (False, True)
Case: TypeAlias = tuple[OpenEffect, bool]

#: Everything that absence depends on, in every combination.
EVERYTHING: list[Case] = [
    (
        replace(
            EFFECT, effect_class=kind, absent_in=absent_in, looks=looks, call_over=call_over,
            silent_for=silent_for, rewound=rewound, earlier_doubt=earlier, undoes=undoes,
            resendable=resendable,
        ),
        gone,
    )
    for kind, absent_in, looks, call_over, silent_for, rewound, earlier, undoes, resendable, gone in product(
        SIGNIFICANT, (None, 30.0, 0.0, -30.0), (0, 1, 2, 7), BOTH, (0.0, SILENT - 1, SILENT), BOTH, BOTH,
        (None, "run-1:file:registry.file:0"), BOTH, BOTH,
    )
]  # fmt: skip

FINDINGS: tuple[Finding, ...] = (
    Seen('"filed"', "lookup"), Seen('"filed"', "late_answer"), Misfit("not a number"), Nothing(),
    CannotTell("two of them"), CannotTell("provisioning", 5.0), NotAskable(), CheckFailed("no route"),
)  # fmt: skip


def nothing_arrives(effect: OpenEffect) -> bool:
    return effect.absent_in is not None and effect.absent_in <= 0


def nobody_sends(effect: OpenEffect, gone: bool) -> bool:
    """The three proofs of the design; what is known of one sender says nothing of another."""
    of_the_one_known = effect.call_over or gone
    only_one = not effect.rewound and not effect.earlier_doubt
    return effect.silent_for >= SILENT or (only_one and of_the_one_known)


def test_absence_is_believed_only_when_all_three_conditions_hold() -> None:
    believed = 0
    for effect, gone in EVERYTHING:
        conclusion = conclude(effect, Nothing(), sender_gone=gone)
        twice = effect.looks >= 1
        holds = nothing_arrives(effect) and nobody_sends(effect, gone) and twice
        expected = holds and effect.effect_class is not EffectClass.ONCE
        assert isinstance(conclusion, BelieveAbsent) == expected, (effect, gone)
        believed += expected
    assert believed > 100


def test_nothing_but_a_look_that_found_nothing_makes_it_absent() -> None:
    for (effect, gone), finding in product(EVERYTHING, FINDINGS):
        if not isinstance(finding, Nothing):
            assert not isinstance(conclude(effect, finding, sender_gone=gone), BelieveAbsent)


def test_a_look_counts_only_when_nothing_could_still_arrive() -> None:
    for (effect, gone), finding in product(EVERYTHING, FINDINGS):
        conclusion = conclude(effect, finding, sender_gone=gone)
        if isinstance(conclusion, LookAgain) and conclusion.counts:
            assert isinstance(finding, Nothing)
            assert nothing_arrives(effect)
            assert nobody_sends(effect, gone)
            assert effect.looks == 0


def test_what_is_found_settles_whatever_else_is_known() -> None:
    seen = (Seen('"it"', "lookup"), Seen('"it"', "late_answer"))
    for (effect, gone), finding in product(EVERYTHING, seen):
        conclusion = conclude(effect, finding, sender_gone=gone)
        assert isinstance(conclusion, Settle)
        assert (conclusion.result, conclusion.source) == ('"it"', finding.source)


def test_absence_that_proves_nothing_for_ever_goes_to_a_person() -> None:
    for effect, gone in EVERYTHING:
        conclusion = conclude(effect, Nothing(), sender_gone=gone)
        if effect.absent_in is None:
            assert isinstance(conclusion, AskPerson)
            assert "max_request_lifetime" in conclusion.said


def test_what_a_look_up_may_still_miss_is_looked_for_until_it_no_longer_may() -> None:
    effect = replace(EFFECT, absent_in=None, silent_for=19.0)
    again = conclude(effect, Nothing(), sender_gone=True, consistency_window=20.0)
    assert isinstance(again, LookAgain)
    assert not again.counts
    over = replace(effect, silent_for=20.0)
    asked = conclude(over, Nothing(), sender_gone=True, consistency_window=20.0)
    assert isinstance(asked, AskPerson)


@pytest.mark.parametrize("looks", [0, 1, 5])
def test_a_tool_that_is_never_asked_twice_goes_to_a_person_instead(looks: int) -> None:
    effect = replace(EFFECT, effect_class=EffectClass.ONCE, call_over=True, looks=looks)
    conclusion = conclude(effect, Nothing(), sender_gone=False)
    assert isinstance(conclusion, AskPerson if looks else LookAgain)


def test_without_a_look_up_only_a_key_that_is_still_honoured_needs_no_person() -> None:
    for effect, gone in EVERYTHING:
        conclusion = conclude(effect, NotAskable(), sender_gone=gone)
        assert isinstance(conclusion, LookAgain if effect.resendable else AskPerson)


@pytest.mark.parametrize("failed", [0, 1, LIMIT - 2, LIMIT - 1, LIMIT, LIMIT + 5])
def test_look_ups_may_fail_so_often_and_then_a_person_is_asked(failed: int) -> None:
    effect = replace(EFFECT, failed_checks=failed)
    conclusion = conclude(effect, CheckFailed("no route"), sender_gone=True)
    assert isinstance(conclusion, TryAgain if failed + 1 < LIMIT else AskPerson)
    assert "no route" in conclusion.said


@pytest.mark.parametrize(
    ("again_in", "after"),
    [(5.0, 5.0), (-3.0, 2.0), (0.0, 2.0), (1e9, 86_400.0), (float("nan"), None), (float("inf"), None)],
)  # fmt: skip
def test_what_is_not_ready_is_looked_at_when_it_says_but_in_bounds(
    again_in: float, after: float | None
) -> None:
    conclusion = conclude(EFFECT, CannotTell("provisioning", again_in), sender_gone=True)
    if after is None:
        assert isinstance(conclusion, AskPerson)
    else:
        assert conclusion == LookAgain(after, counts=False, said=conclusion.said)


def test_every_word_says_why_and_none_is_empty() -> None:
    for (effect, gone), finding in product(EVERYTHING, FINDINGS):
        assert conclude(effect, finding, sender_gone=gone).said.strip()


@given(
    st.builds(
        replace, st.just(EFFECT), checks=st.integers(1, 10**6), failed_checks=st.integers(0, 10**6),
        looks=st.integers(0, 10**6), absent_in=st.none() | st.floats(-1e9, 1e9),
        silent_for=st.floats(0, 1e9), call_over=st.booleans(), rewound=st.booleans(),
        resendable=st.booleans(), earlier_doubt=st.booleans(), effect_class=st.sampled_from(SIGNIFICANT),
    ),
    st.sampled_from(FINDINGS) | st.builds(CannotTell, st.text(), st.none() | st.floats()),
    st.booleans(),
    st.floats(0, 1e6),
)  # fmt: skip
def test_there_is_one_answer_and_every_pause_is_bounded(
    effect: OpenEffect, finding: Finding, gone: bool, window: float
) -> None:
    def answer() -> Conclusion:
        return conclude(effect, finding, sender_gone=gone, consistency_window=window)

    conclusion = answer()
    assert answer() == conclusion
    if isinstance(conclusion, LookAgain | TryAgain):
        assert settings().look_pause <= conclusion.after <= 86_400.0


def test_pauses_double_up_to_the_longest() -> None:
    assert [pause(count) for count in range(10)] == [2, 2, 4, 8, 16, 32, 64, 128, 256, 300]
    assert pause(10**9) == settings().look_pause_max


def test_a_late_request_is_looked_for_before_its_time_has_come_as_well() -> None:
    for checks, absent_in in product(range(1, 20), (0.5, 7.0, 60.0, 1e6)):
        effect = replace(EFFECT, checks=checks, absent_in=absent_in)
        conclusion = conclude(effect, Nothing(), sender_gone=True)
        assert isinstance(conclusion, LookAgain)
        assert conclusion.after <= max(absent_in, settings().look_pause)


def a_step(*, silent_for: float = 0.0, failed_looks: int = 0) -> StepInDoubt:
    stale = StaleStep(
        run_id="run-1", branch="0", step_key="deploy", revision=4, crashes=0, lost=1, untracked=False,
        cancel_requested=False, cause="expired", reason="silent", worker="worker-1",
    )  # fmt: skip
    claimed = Claimed.__new__(Claimed)
    return StepInDoubt(
        claimed, stale, failed_looks, pid=1, pid_started=1, pid_space="host", silent_for=silent_for
    )


@pytest.mark.parametrize(
    ("finding", "expected"),
    [
        (Seen("1", "lookup"), Settle), (Misfit("no"), AskPerson), (NotAskable(), AskPerson),
        (CannotTell("two"), AskPerson), (CannotTell("soon", 3.0), LookAgain), (CheckFailed("no"), TryAgain),
    ],
)  # fmt: skip
@pytest.mark.parametrize("gone", BOTH)
def test_a_steps_own_look_up_decides(
    finding: Finding, expected: type[Conclusion], gone: bool
) -> None:
    assert isinstance(conclude_step(a_step(), finding, owner_gone=gone), expected)


def test_a_step_is_not_run_again_beside_an_owner_that_may_still_act() -> None:
    for gone, silent_for in product(BOTH, (0.0, 3.0, SILENT - 1, SILENT)):
        conclusion = conclude_step(a_step(silent_for=silent_for), Nothing(), owner_gone=gone)
        assert isinstance(conclusion, BelieveAbsent) == (gone or silent_for >= SILENT)


def test_a_steps_look_up_may_fail_so_often() -> None:
    for failed in range(LIMIT + 3):
        conclusion = conclude_step(a_step(failed_looks=failed), CheckFailed("no"), owner_gone=True)
        assert isinstance(conclusion, TryAgain if failed + 1 < LIMIT else AskPerson)
