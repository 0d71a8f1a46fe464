"""Fifty children of one wallet, each on a connection of its own, a hundred times: never a cent too much."""

import threading
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from decimal import Decimal

import pytest

from models import database
from models.journal import submitting, wallets
from models.journal.call_values import Charge, NewWallet, Reservation, Reserved
from models.journal.values import Claimed
from tests.support.calling import WRONG_BOOKS, amounts, asked, at_position, charge_strays, record
from tests.support.journal import Journal, Worker, row_of, submit_run

CHILDREN, REPETITIONS, PLACES = 50, 100, 20
DEADLINE = 30.0  #: seconds
BATCH = "one-wallet"
TOKENS, COST = 100, Decimal("0.10")

#: What the journal itself may never show, at any commit.
NO_OVERSPEND = """
ALTER TABLE wallet ADD CONSTRAINT no_overspend CHECK (
    (limit_tokens IS NULL OR spent_tokens + held_tokens <= limit_tokens)
    AND (limit_cost IS NULL OR spent_cost + held_cost <= limit_cost))"""


@pytest.fixture
def children(journal: Journal) -> list[Claimed]:
    journal.look.execute(NO_OVERSPEND)
    submitting.create_batch(BATCH, "fifty children")
    run_ids = [submit_run(row_of("a"), batch_id=BATCH) for _ in range(CHILDREN)]
    wallets.open_wallets(
        [NewWallet(wallet_id=BATCH, kind="batch")]
        + [NewWallet(wallet_id=run_id, kind="run") for run_id in run_ids]
    )
    journal.look.execute("UPDATE wallet SET limit_tokens = 0, limit_cost = 0 WHERE kind = 'batch'")
    claims = [Worker().take(run_id, "a") for run_id in run_ids]
    journal.look.execute("UPDATE live SET lease_expires_at = '2100-01-01Z'")
    return claims


@contextmanager
def pool() -> Iterator[ThreadPoolExecutor]:
    """A thread for each child, whose connection lasts; all of them close theirs in the end."""
    with ThreadPoolExecutor(CHILDREN) as threads:
        yield threads
        together = threading.Barrier(CHILDREN)

        def leave(_: int) -> None:
            together.wait(DEADLINE)
            database.close()

        list(threads.map(leave, range(CHILDREN)))


def asking(repetition: int, child: int) -> Reservation:
    place = at_position(repetition)
    return Reservation(place=place, send=child, tokens=TOKENS, cost=COST, model="gpt-x")


def settle(claimed: Claimed, made: Reservation, *, chance: int) -> None:
    """One of the ways in which a request ends, its owner's death among them."""
    cost = Charge(chance % (TOKENS + 1), COST * (chance % 11) / 10, 0.1)
    match chance // 1000 % 5:
        case 0:
            wallets.release(claimed, made)
        case 1:
            wallets.charge(claimed, made, cost, recovery=True)
        case 2:
            return  # its owner died: the hold stays
        case _:
            record(claimed, asked(made.place), reservation=made, charge=cost)


def repeat(
    journal: Journal, children: list[Claimed], threads: ThreadPoolExecutor, *, number: int
) -> None:
    """All children ask at the same moment for what only some of them can have."""
    journal.look.execute(
        "UPDATE wallet SET limit_tokens = spent_tokens + held_tokens + %(places)s * %(tokens)s,"
        " limit_cost = spent_cost + held_cost + %(places)s * %(cost)s + 0.05 WHERE kind = 'batch'",
        {"places": PLACES, "tokens": TOKENS, "cost": COST},
    )
    together = threading.Barrier(CHILDREN)

    def ask(child: int) -> bool:
        together.wait(DEADLINE)
        return wallets.reserve(children[child], asking(number, child)) == Reserved()

    def end(child: int) -> None:
        chance = zlib.crc32(f"{number}.{child}".encode())  # the same in every run of the test
        settle(children[child], asking(number, child), chance=chance)

    granted = [child for child, had in enumerate(threads.map(ask, range(CHILDREN))) if had]
    assert len(granted) == PLACES
    list(threads.map(end, granted))


def test_fifty_children_never_overspend_one_wallet(
    journal: Journal, children: list[Claimed]
) -> None:
    with pool() as threads:
        for number in range(REPETITIONS):
            repeat(journal, children, threads, number=number)
            if number % 10 == 0:
                assert journal.rows(WRONG_BOOKS) == []
    assert charge_strays(10_000) == 0
    for claimed in children:
        Worker().complete(claimed)
    while charge_strays(100):
        assert journal.rows(WRONG_BOOKS) == []
    assert amounts(journal, BATCH)[0] == (0, 0, 0)
    assert journal.rows("SELECT 1 FROM hold") == []
    assert journal.deadlocks() == 0
