"""Who may intend: the holder of a live lease, in a run that goes on. Everybody else writes nothing."""

from dataclasses import replace

import pytest
from psycopg import errors as pg
from psycopg import sql

from models.journal import effects, runs
from models.journal.effect_values import Granted, Recorded, Withheld
from models.journal.errors import LeaseLost
from models.journal.values import Claimed
from tests.support.intents import (
    IDEMPOTENT,
    KEY,
    SENDER,
    again,
    asking,
    at_work,
    effect,
    intend,
    put,
    send,
    settle_as,
)
from tests.support.journal import Journal, row_of, submit_run


def hold(journal: Journal, run_id: str, how: str | None) -> None:
    if how == "cancel":
        runs.cancel(run_id, by="ada", reason="no", cancellation_id="c")
    else:
        journal.look.execute("UPDATE run SET hold = %s WHERE run_id = %s", (how, run_id))


@pytest.mark.parametrize("how", ["cancel", "compensate"])
@pytest.mark.parametrize("state", [None, "unknown", "refused", "absent"])
def test_nothing_is_sent_for_a_run_that_is_held(
    journal: Journal, how: str, state: str | None
) -> None:
    journal.freeze()
    claimed = at_work()
    if state is not None:
        send(claimed, asking(promise=IDEMPOTENT))
        put(journal, state=state)
        claimed = again(journal, claimed)
    hold(journal, claimed.run_id, how)
    before = journal.image()
    assert intend(claimed, asking(promise=IDEMPOTENT)) == Withheld(how)
    assert journal.image() == before


def test_siblings_of_a_failed_step_finish(journal: Journal) -> None:
    claimed = at_work()
    hold(journal, claimed.run_id, "failed")
    assert send(claimed) == Granted(1)
    put(journal, state="absent")
    assert send(claimed) == Granted(2)


def test_what_is_recorded_is_given_to_a_held_run_too(journal: Journal) -> None:
    claimed = at_work()
    send(claimed)
    effects.settle(KEY, claimed, result="1")
    hold(journal, claimed.run_id, "cancel")
    assert intend(claimed) == Recorded("1", 1)


def test_a_lease_that_is_over_sends_nothing_before_any_sweep_saw_it(journal: Journal) -> None:
    journal.freeze()
    claimed = at_work()
    journal.advance(29.9)
    assert send(claimed) == Granted(1)
    journal.advance(0.1)
    before = journal.image()
    with pytest.raises(LeaseLost, match=r"registry\.file was not called"):
        intend(claimed, asking("another key"))
    assert journal.image() == before


def test_a_displaced_owner_intends_nothing(journal: Journal) -> None:
    journal.freeze()
    first = at_work()
    second = again(journal, first)
    wrong = [first, *strangers(second)]
    before = journal.image()
    for claimed in wrong:
        with pytest.raises(LeaseLost):
            intend(claimed)
        effects.record_pure(asking(), claimed, SENDER, result="1")
        assert journal.image() == before
    assert send(second) == Granted(1)


def strangers(claimed: Claimed) -> list[Claimed]:
    """Claims that differ from this one in one field of the guard."""
    other = submit_run(row_of("a"))
    return [
        replace(claimed, run_id=other),
        replace(claimed, branch="0/1.0"),
        replace(claimed, step_key="b"),
        replace(claimed, token=claimed.token - 1),
        replace(claimed, token=claimed.token + 1),
        replace(claimed, owner="start-1.someone"),
    ]


def test_a_settled_effect_is_never_open_again(journal: Journal) -> None:
    claimed = at_work()
    send(claimed)
    row = effect(journal)
    settle_as(journal, "settled")
    names = sql.SQL(", ").join(map(sql.Identifier, row))
    values = sql.SQL(", ").join(map(sql.Literal, row.values()))
    with pytest.raises(pg.SerializationFailure, match="has just been settled"):
        journal.look.execute(sql.SQL("INSERT INTO effect ({}) VALUES ({})").format(names, values))
