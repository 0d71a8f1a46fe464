"""Who records an answer: the holder, and what becomes of the answer, the verdict and the money of one who is not."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from models.journal import calls, wallets
from models.journal.errors import LeaseLost
from models.journal.values import Claimed
from tests.support.calling import (
    amounts,
    asked,
    at_position,
    charge,
    charge_strays,
    hold,
    record,
)
from tests.support.intents import again, at_work
from tests.support.journal import Journal


def recorded(journal: Journal) -> list[dict[str, Any]]:
    return journal.rows("SELECT * FROM recorded_call ORDER BY answered_at, scope, position")


def displaced(claimed: Claimed) -> list[Claimed]:
    """What differs from the claim in one field of its guard."""
    return [
        replace(claimed, run_id="run-none"),
        replace(claimed, branch="0/1.0"),
        replace(claimed, step_key="b"),
        replace(claimed, token=claimed.token + 1),
        replace(claimed, owner="start-1.other"),
    ]


def test_only_the_holder_writes(journal: Journal) -> None:
    claimed = at_work()
    record(claimed, asked(at_position(9)))
    before = journal.image(), recorded(journal)
    for other in displaced(claimed):
        with pytest.raises(LeaseLost, match="was not recorded"):
            record(other)
        with pytest.raises(LeaseLost, match="its verdict was not recorded"):
            calls.judge(other, at_position(9), verdict="accepted")
        with pytest.raises(LeaseLost, match="were not set aside"):
            calls.open_branch(other, "because")
    assert (journal.image(), recorded(journal)) == before
    assert journal.rows("SELECT 1 FROM call_verdict UNION ALL SELECT 1 FROM call_reset") == []


def test_a_displaced_owner_is_charged_and_its_answer_is_dropped(journal: Journal) -> None:
    journal.freeze()
    first = at_work()
    made = hold(first)
    second = again(journal, first)
    with pytest.raises(LeaseLost):
        record(first, reservation=made, charge=charge())
    assert recorded(journal) == []
    assert amounts(journal, first.run_id) == ((0, 0, 0), (12, Decimal("0.02"), 1))
    (spend,) = journal.rows("SELECT token, recovery FROM spend")
    assert (spend["token"], spend["recovery"]) == (1, True)
    with pytest.raises(LeaseLost):
        record(first, reservation=made, charge=charge())
    assert len(journal.rows("SELECT 1 FROM spend")) == 1
    (late,) = journal.rows("SELECT * FROM attempt WHERE outcome = 'superseded'")
    assert (late["token"], late["owner"], late["error_type"]) == (1, first.owner, "late_answer")
    assert "was not recorded" in late["error"]
    record(second)


def test_a_verdict_that_comes_too_late_leaves_evidence_of_its_owner(journal: Journal) -> None:
    journal.freeze()
    first = at_work()
    record(first)
    again(journal, first)
    with pytest.raises(LeaseLost):
        calls.judge(first, at_position(0), verdict="accepted")
    (late,) = journal.rows("SELECT token, error FROM attempt WHERE outcome = 'superseded'")
    assert late["token"] == 1
    assert "its verdict was not recorded" in late["error"]


def test_a_displaced_owner_without_a_charge_gives_its_money_back(journal: Journal) -> None:
    journal.freeze()
    first = at_work()
    made = hold(first)
    again(journal, first)
    with pytest.raises(LeaseLost):
        record(first, reservation=made, charge=None)
    assert amounts(journal, first.run_id) == ((0, 0, 0), (0, 0, 0))


def test_an_owner_whose_lease_is_over_records_until_it_is_displaced(journal: Journal) -> None:
    journal.freeze()
    claimed = at_work()
    journal.advance(31)
    record(claimed)
    assert len(recorded(journal)) == 1


def test_a_pending_answer_keeps_its_money_until_a_later_attempt_has_the_final_one(
    journal: Journal,
) -> None:
    journal.freeze()
    first = at_work()
    made = hold(first)
    record(first, asked(state="pending", response_id="resp-1"))
    second = again(journal, first)
    assert wallets.charge_lost(second) == 0
    assert charge_strays(10) == 0
    final = replace(made, token=first.token)
    record(second, asked(at_position(1)), reservation=final, charge=charge())
    assert amounts(journal, first.run_id) == ((0, 0, 0), (12, Decimal("0.02"), 1))
    assert journal.one("SELECT token FROM spend") == 1
