"""What is next about a compensation, case by case."""

from dataclasses import replace

import pytest

from models.journal.undoing import Standstill, Target
from recovery.undo_plan import End, Leave, Next, Stop, Try, Wait, next_action

REST = Standstill(moving=False, in_doubt=0, for_person=0)
LAST, FIRST = (
    Target(key, "step", "0", "tool.undo", "queue", None, 0, None) for key in ("last", "first")
)
LETTER = replace(LAST, key="letter", tool="tool.letter")


def act(*targets: Target, still: Standstill = REST) -> Next:
    return next_action(still, targets, can_undo=lambda tool: tool == "tool.undo")


@pytest.mark.parametrize(
    ("still", "expected"),
    [
        (replace(REST, moving=True), Wait),
        (replace(REST, in_doubt=1), Wait),
        (replace(REST, for_person=1), Stop),
        (replace(REST, moving=True, in_doubt=2, for_person=1), Stop),
    ],
)
def test_nothing_is_undone_before_everything_is_known(
    still: Standstill, expected: type[Next]
) -> None:
    assert isinstance(act(LAST, FIRST, still=still), expected)


def test_the_last_is_first() -> None:
    assert act(LAST, FIRST) == Try(LAST)


@pytest.mark.parametrize("state", [None, "refused", "absent", "unknown", "intended"])
def test_one_that_was_begun_is_gone_on_with(state: str | None) -> None:
    begun = replace(LAST, state=state)
    assert act(begun, FIRST) == Try(begun)


def test_one_that_needs_a_person_stops_those_before_it() -> None:
    assert act(replace(LAST, person="at sea"), FIRST) == Stop()


def test_what_no_tool_can_undo_is_passed_over_and_left_in_the_end() -> None:
    assert act(LETTER, FIRST) == Try(FIRST)
    assert act(LETTER) == Leave((LETTER,))
    left = replace(LETTER, person="its tool cannot")
    assert act(left, FIRST) == Try(FIRST)
    assert act(left) == Stop()
    assert act(left, LETTER) == Leave((LETTER,))


def test_nothing_left_is_the_end() -> None:
    assert act() == End()
