"""What the demo concludes from the journal's answers and those that the model server counts."""

from decimal import Decimal
from typing import Any

import pytest

from ops.demo.records import Replays
from ops.demo.replays import OnRecord, compare

KILLED = OnRecord("run-1", "risks", "a", replayed=True, attempts=2)
QUIET = OnRecord("run-2", "risks", "z", replayed=False, attempts=1)


def counted(step: str, *ids: str, run: str = "run-1") -> dict[str, Any]:
    """What the model server says of one step: each answer took 400 tokens in and 100 out, 0.002 USD."""
    answers = [{"id": id_, "tokens_in": 400, "tokens_out": 100} for id_ in ids]
    return {"run": run, "step": step, "calls": len(ids), "answers": answers}


def test_what_was_replayed_counts_with_what_the_model_server_billed_for_it() -> None:
    found = compare([KILLED, QUIET], [counted("risks", "a"), counted("risks", "z", run="run-2")])
    assert found == Replays(
        calls=1, tokens=500, cost=Decimal("0.002"), asked_again=0, spent=Decimal("0.004")
    )


@pytest.mark.parametrize(
    ("given", "attempts", "again"),
    [
        (("a",), 2, 0),
        (("lost", "a"), 2, 0),  # the first attempt died with it in the air
        (("a", "b"), 2, 1),  # on record, and asked for all the same
        (("lost", "lost too", "a"), 2, 1),  # an attempt loses one at most
        (("lost", "lost too", "a"), 3, 0),
        (("a", "b"), None, 0),  # it is asking now
    ],
)
def test_an_answer_that_was_lost_in_the_air_is_no_answer_asked_for_again(
    given: tuple[str, ...], attempts: int | None, again: int
) -> None:
    record = OnRecord("run-1", "risks", "a", replayed=True, attempts=attempts)
    assert compare([record], [counted("risks", *given)]).asked_again == again


def test_the_next_question_of_a_step_is_not_the_last_one_again() -> None:
    """Its answer was refused and on record; the second request was lost, the third one answered."""
    records = [
        KILLED,
        OnRecord("run-1", "risks", "c", replayed=False, attempts=2),
    ]
    assert compare(records, [counted("risks", "a", "lost", "c")]).asked_again == 0


def test_an_answer_that_the_model_server_never_gave_is_named_and_saves_nothing() -> None:
    found = compare([KILLED], [])
    assert (found.never_given, found.tokens, found.cost) == (1, 0, Decimal(0))
