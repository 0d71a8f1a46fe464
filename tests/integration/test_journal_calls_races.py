"""Calls and money with everybody at once, on connections of their own: who waits, and who charges."""

import threading
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import psycopg
import pytest

from models import database
from models.journal import calls, submitting, wallets
from models.journal.call_values import Limits, NewWallet, Reserved
from models.journal.errors import JournalError, LeaseLost
from models.journal.values import Claimed
from tests.support.calling import (
    WRONG_BOOKS,
    amounts,
    asked,
    at_position,
    charge,
    charge_strays,
    hold,
    record,
    reservation,
)
from tests.support.intents import again as next_attempt
from tests.support.intents import at_work
from tests.support.journal import Blocker, Journal, Worker, row_of, submit_run
from tests.support.threads import DEADLINE, aside, at_once
from tests.support.waiting import wait_until

BATCH = "night"


def in_batch(count: int) -> list[Claimed]:
    submitting.create_batch(BATCH, "nightly")
    run_ids = [submit_run(row_of("a", "b"), batch_id=BATCH) for _ in range(count)]
    return [Worker().take(run_id, "a") for run_id in run_ids]


def settling(claimed: Claimed, number: int) -> Callable[[], object]:
    """What records an answer at this position."""
    place = at_position(number)
    return lambda: record(claimed, asked(place), reservation=reservation(place), charge=charge())


def test_a_reservation_that_meets_the_loss_of_its_step_finds_it_lost(journal: Journal) -> None:
    claimed = at_work()
    hold(claimed)
    before = amounts(journal, claimed.run_id)
    with psycopg.connect(journal.conninfo) as other:
        other.execute(
            "UPDATE live SET state = 'unknown', owner = NULL, lease_expires_at = NULL, lost = lost + 1"
        )
        with aside(lambda: wallets.reserve(claimed, reservation(at_position(1)))) as late:
            Blocker(journal, other).wait_for(1)
            other.commit()
            assert isinstance(late.error(), LeaseLost)
    assert amounts(journal, claimed.run_id) == before


def test_the_same_reservation_from_two_sides_is_held_once(journal: Journal) -> None:
    claimed = at_work()
    for number in range(10):
        asked_for = reservation(at_position(number))
        both = at_once(*[lambda: wallets.reserve(claimed, asked_for)] * 4)  # noqa: B023 - called at once
        assert both == [Reserved()] * 4
    assert amounts(journal, claimed.run_id)[0] == (1000, Decimal("1.00"), 10)


def test_a_reservation_is_not_refused_for_what_it_holds_itself(journal: Journal) -> None:
    """The connection broke, and the server commits only after the same reservation is asked for again."""
    claimed = at_work()
    wallets.open_wallets([NewWallet(wallet_id=claimed.run_id, kind="run", limits=Limits(calls=1))])
    wrote, commit = threading.Event(), threading.Event()

    def late() -> None:
        with database.transaction():
            assert wallets.reserve(claimed, reservation()) == Reserved()
            wrote.set()
            assert commit.wait(DEADLINE)

    with (
        aside(late),
        aside(lambda: wrote.wait(DEADLINE) and wallets.reserve(claimed, reservation())) as again,
    ):
        wait_until(lambda: waiting_for_locks(journal) == 1, what="the second waits for the first")
        commit.set()
        assert again.result() == Reserved()
    assert amounts(journal, claimed.run_id)[0] == (100, Decimal("0.10"), 1)


def waiting_for_locks(journal: Journal) -> int:
    return int(
        journal.one(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'onward'"
            " AND datname = current_database() AND wait_event_type = 'Lock'"
        )
    )


def test_the_same_answer_from_two_sides_is_recorded_once(journal: Journal) -> None:
    claimed = at_work()
    for number in range(10):
        made = hold(claimed, reservation(at_position(number)))
        call = asked(at_position(number))
        at_once(*[lambda: record(claimed, call, reservation=made, charge=charge())] * 3)  # noqa: B023
    assert len(calls.of_run(claimed.run_id)) == 10
    assert amounts(journal, claimed.run_id) == ((0, 0, 0), (120, Decimal("0.20"), 10))


def test_nobody_takes_a_step_over_while_an_answer_of_it_is_being_recorded(journal: Journal) -> None:
    """Else the next attempt would read its history without the answer, and ask again."""
    claimed = at_work()
    wrote, commit = threading.Event(), threading.Event()

    def late() -> None:
        with database.transaction():
            record(claimed)
            wrote.set()
            assert commit.wait(DEADLINE)

    def give_back() -> int:
        assert wrote.wait(DEADLINE)
        Worker().interrupt(claimed)
        return len(calls.history(claimed).calls)

    with aside(late), aside(give_back) as given_back:
        try:
            wait_until(lambda: waiting_for_locks(journal) == 1, what="the other waits")
        finally:
            commit.set()
        assert given_back.result() == 1


def test_two_answers_at_one_place_are_told_apart(journal: Journal) -> None:
    claimed = at_work()

    def keep(answer: str) -> Callable[[], bool]:
        def act() -> bool:
            try:
                record(claimed, asked(answer=answer))
            except JournalError:
                return False
            return True

        return act

    assert sorted(at_once(keep("one"), keep("two"))) == [False, True]
    assert len(calls.of_run(claimed.run_id)) == 1


def test_who_settles_first_charges_and_nobody_else(journal: Journal) -> None:
    journal.freeze()
    for number in range(8):
        first = at_work()
        made = hold(first)
        second = next_attempt(journal, first)

        def late(claimed: Claimed = first) -> int:
            with pytest.raises(LeaseLost):
                record(claimed, reservation=made, charge=charge())  # noqa: B023 - called at once
            return 0

        at_once(
            late,
            lambda: charge_strays(10),
            lambda: wallets.charge_lost(second),  # noqa: B023
            lambda: charge_strays(10),
        )
        held, spent = amounts(journal, first.run_id)
        assert held == (0, 0, 0)
        assert spent in ((12, Decimal("0.02"), 1), (100, Decimal("0.10"), 1))
        assert journal.one("SELECT count(*) FROM spend") == number + 1
    assert journal.rows(WRONG_BOOKS) == []


def test_sweeps_and_children_of_one_batch_never_lock_each_other_out(journal: Journal) -> None:
    claims = in_batch(16)
    dead, alive = claims[:8], claims[8:]
    for number in range(6):
        for claimed in claims:
            hold(claimed, reservation(at_position(number)))
        journal.look.execute(
            "UPDATE live SET token = token + 1 WHERE run_id = ANY(%s)",
            ([claimed.run_id for claimed in dead],),
        )
        at_once(
            *(settling(claimed, number) for claimed in alive),
            *[lambda: charge_strays(3)] * 3,
            *[lambda: charge_strays(100)] * 2,
        )
        dead = [replace(claimed, token=claimed.token + 1) for claimed in dead]
        claims = dead + alive
    while charge_strays(5):
        pass
    assert journal.rows(WRONG_BOOKS) == []
    assert amounts(journal, BATCH)[0] == (0, 0, 0)
    assert wallets.standing(BATCH).recovery_tokens == 6 * 8 * 100
    assert journal.deadlocks() == 0


def test_a_wallet_is_opened_once_however_many_need_it_first(journal: Journal) -> None:
    claims = in_batch(8)
    at_once(*[lambda claimed=claimed: hold(claimed) for claimed in claims])
    assert amounts(journal, BATCH)[0] == (800, Decimal("0.80"), 8)
    wallets.open_wallets([NewWallet(wallet_id=BATCH, kind="batch")])
    assert len(journal.rows("SELECT 1 FROM wallet")) == 9
