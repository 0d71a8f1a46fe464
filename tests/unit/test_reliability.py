"""The judge of ``make reliability``: what is twice, lost or otherwise wrong, and where a kill fell."""

import random  # noqa: TID251 - seeded
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from tests.reliability.judging import Fell, Verdict, Way, judge
from tests.reliability.kills import BEFORE, BETWEEN, Instant, Kill, Kind, Plan, kills_of, plans
from tests.reliability.looking import Recorded, Seen, Witnessed

KILL = Kill("a", Instant.E4)
SETTLED = Recorded(
    key="k", state="settled", source="answer", sends=2, result="res-1", settled_at=9.0
)
WAITING = replace(SETTLED, state="unknown", person="nobody can tell", result=None, settled_at=None)
MADE = Witnessed(made=[("res-1", 3.0)], asked=[2.0], keys=frozenset({"k"}))


def seen(kind: Kind = Kind.IDEMPOTENT, **changes: Any) -> Seen:
    """A run whose first effect was killed at 5.0, and whose second went well."""
    facts: dict[str, Any] = {
        "state": "completed", "fired": {KILL: 5.0}, "claims": [1.0, 6.5], "died": 1,
        "recorded": {"a": SETTLED, "b": replace(SETTLED, sends=1)},
        "witnessed": {"a": MADE, "b": MADE},
    }  # fmt: skip
    return Seen(Plan(kind, 1, (KILL,)), **{**facts, **changes})


def judged(recorded: Recorded | None = SETTLED, witnessed: Witnessed = MADE, **changes: Any) -> Verdict:  # fmt: skip
    """What is said of a run whose first effect is like this."""
    run = seen(**changes)
    run.witnessed["a"] = witnessed
    if recorded is None:
        del run.recorded["a"]
    else:
        run.recorded["a"] = recorded
    return judge(run)


def sentences(verdict: Verdict) -> int:
    return len(verdict.twice) + len(verdict.lost) + len(verdict.wrong)


def test_a_run_as_promised_has_nothing_said_of_it() -> None:
    verdict = judged()
    assert sentences(verdict) == 0
    (shot,) = verdict.shots
    assert (shot.fell, shot.way, shot.recovery) == (Fell.BETWEEN, Way.AGAIN, 1.5)


def test_what_exists_twice_is_twice() -> None:
    verdict = judged(witnessed=replace(MADE, made=[("res-1", 3.0), ("res-2", 7.0)]))
    assert len(verdict.twice) == 1
    assert "idempotent-0001-aE4.a" in verdict.twice[0]


@pytest.mark.parametrize(
    ("recorded", "witnessed", "state"),
    [
        (SETTLED, Witnessed(), "completed"),
        (None, MADE, "completed"),
        (None, Witnessed(), "completed"),
        (replace(WAITING, person=None), MADE, "blocked"),
    ],
)
def test_what_nobody_has_or_nobody_is_asked_about_is_lost(
    recorded: Recorded | None, witnessed: Witnessed, state: str
) -> None:
    assert len(judged(recorded, witnessed, state=state).lost) == 1


def test_once_may_wait_for_a_person_and_nothing_else_may() -> None:
    waits = judged(WAITING, kind=Kind.ONCE, state="blocked")
    assert sentences(waits) == 0
    assert waits.waiting == ("a",)
    assert waits.shots[0].way is Way.WAITS
    assert judged(WAITING, kind=Kind.QUERYABLE, state="blocked").wrong


def test_once_is_never_sent_twice() -> None:
    sent_twice = replace(MADE, asked=[2.0, 6.0])
    assert judged(witnessed=sent_twice, kind=Kind.ONCE).wrong
    assert not judged(witnessed=sent_twice, kind=Kind.IDEMPOTENT).wrong


def test_after_a_persons_word_nothing_waits() -> None:
    run = seen(Kind.ONCE, state="blocked")
    run.recorded["a"] = WAITING
    assert judge(run, told=True).wrong


@pytest.mark.parametrize(
    ("recorded", "changes"),
    [
        (replace(SETTLED, result="res-9"), {}),
        (SETTLED, {"witnessed": replace(MADE, keys=frozenset({"k", "l"}))}),
        (SETTLED, {"state": "running"}),
        (SETTLED, {"died": 0}),
    ],
)
def test_what_is_neither_twice_nor_lost_may_be_wrong(
    recorded: Recorded, changes: dict[str, Any]
) -> None:
    assert len(judged(recorded, **changes).wrong) == 1


@pytest.mark.parametrize(
    ("made", "settled", "fell"),
    [(3.0, 9.0, Fell.BETWEEN), (6.0, 9.0, Fell.BEFORE), (3.0, 4.0, Fell.AFTER)],
)
def test_where_a_kill_fell_is_read_off_the_clocks(made: float, settled: float, fell: Fell) -> None:
    verdict = judged(replace(SETTLED, settled_at=settled), replace(MADE, made=[("res-1", made)]))
    assert verdict.shots[0].fell is fell


@pytest.mark.parametrize("kind", list(Kind))
def test_the_instants_are_even_and_the_same_by_seed(kind: Kind) -> None:
    found = plans(kind, random.Random(3), kills=60, first=1)  # noqa: S311 - seeded
    counts = Counter(kill.instant for plan in found for kill in plan.kills)
    between = {instant: count for instant, count in counts.items() if instant not in BEFORE}
    assert set(between) == set(BETWEEN[kind])
    assert set(between.values()) == {60 // len(BETWEEN[kind])}
    assert found == plans(kind, random.Random(3), kills=60, first=1)  # noqa: S311 - seeded
    assert all(kills_of(plan.run_id) == plan.kills for plan in found)
    assert len({plan.run_id for plan in found}) == len(found)
    assert max(len(plan.kills) for plan in found) == (1 if kind is Kind.ONCE else 2)
