"""Any order of requests, answers, losses and sweeps: never too much is spent, never less than what was billed.

The machine plays every owner, displaced ones among them, and the provider, whose book says what it billed.
"""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from models.journal import submitting, wallets
from models.journal.call_values import Charge, Exceeded, Limits, NewWallet, Reservation, Reserved
from models.journal.errors import LeaseLost
from models.journal.values import Claimed
from tests.support.calling import WRONG_BOOKS, amounts, asked, at_position, charge_strays, record
from tests.support.intents import again
from tests.support.journal import Journal, Worker, row_of, submit_run
from tests.support.machines import play

RUNS = 3
LIMIT = 1500
picks = st.integers(0, 10**6)
tokens = st.sampled_from((1, 99, 100, 100, 400))


class WalletMachine(RuleBasedStateMachine):
    """A few runs of one batch, whose wallet has a limit, and one of them has its own."""

    batches = 0

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self.journal = journal
        self.claims: list[Claimed] = []  #: every claim there ever was
        self.current: dict[str, Claimed] = {}
        self.under_way: list[
            tuple[Claimed, Reservation]
        ] = []  #: granted, and not settled by their owner
        self.billed = 0
        self.limit = LIMIT
        self.position = 0

    @initialize()
    def submit(self) -> None:
        WalletMachine.batches += 1
        self.batch = f"batch-{WalletMachine.batches}"
        submitting.create_batch(self.batch, "-")
        run_ids = [submit_run(row_of("a"), batch_id=self.batch) for _ in range(RUNS)]
        wallets.open_wallets(
            [
                NewWallet(wallet_id=self.batch, kind="batch", limits=Limits(tokens=LIMIT)),
                NewWallet(wallet_id=run_ids[0], kind="run", limits=Limits(tokens=LIMIT // 3)),
            ]
        )
        self.current = {run_id: Worker().take(run_id, "a") for run_id in run_ids}
        self.claims = list(self.current.values())

    @rule(pick=picks, asked_for=tokens)
    def ask(self, pick: int, asked_for: int) -> None:
        """A request is granted when it is the holder's and there is room; then it leaves, and is billed."""
        claimed = self.claims[pick % len(self.claims)]
        self.position += 1
        made = Reservation(
            place=at_position(self.position),
            send=0,
            tokens=asked_for,
            cost=Decimal(asked_for) / 1000,
        )
        if self.current[claimed.run_id] is not claimed:
            with pytest.raises(LeaseLost):
                wallets.reserve(claimed, made)
            return
        before = amounts(self.journal, self.batch)
        found = wallets.reserve(claimed, made)
        if found == Reserved():
            self.under_way.append((claimed, made))
            self.billed += asked_for * (pick % 5) // 4
            return
        assert isinstance(found, Exceeded)
        assert found.spent + found.held + (found.asked or 0) > found.limit  # type: ignore[operator]
        assert amounts(self.journal, self.batch) == before

    @precondition(lambda self: self.under_way)
    @rule(pick=picks)
    def answer(self, pick: int) -> None:
        """An answer comes, late ones too; it costs what was billed, at most all that was set aside."""
        claimed, made = self.under_way.pop(pick % len(self.under_way))
        cost = Charge(made.tokens, made.cost, 1.0)
        call = asked(made.place)
        if self.current[claimed.run_id] is claimed:
            record(claimed, call, reservation=made, charge=cost)
            return
        with pytest.raises(LeaseLost):
            record(claimed, call, reservation=made, charge=cost)

    @rule(pick=picks)
    def lose(self, pick: int) -> None:
        """Every owner falls silent, and one of the steps is taken up again; its calls are charged at once."""
        run_id = list(self.current)[pick % RUNS]
        claimed = again(self.journal, self.current[run_id])
        self.current[run_id] = claimed
        self.claims.append(claimed)
        wallets.charge_lost(claimed)
        for other in set(self.current) - {run_id}:
            self.journal.make(other, state="pending", due_at="2000-01-01Z")
            self.current[other] = Worker("worker-2", "start-2").take(other, "a")
            self.claims.append(self.current[other])

    @rule(limit=st.integers(1, 3))
    def sweep(self, limit: int) -> None:
        charge_strays(limit)

    @rule(more=tokens)
    def raise_limit(self, more: int) -> None:
        self.limit += more
        wallets.raise_limits(self.batch, by="ada", reason="more", tokens=self.limit)

    @invariant()
    def the_books_are_right(self) -> None:
        if not self.current:
            return
        assert self.journal.rows(WRONG_BOOKS) == []
        held, spent = amounts(self.journal, self.batch)
        assert held[0] + spent[0] <= self.limit
        assert held[0] + spent[0] >= self.billed

    def teardown(self) -> None:
        if self.current:
            self.end()
        super().teardown()

    def end(self) -> None:
        """Once every step is over and swept, nothing is held any more."""
        for claimed in self.current.values():
            Worker().complete(claimed)
        while charge_strays(2):
            pass
        assert amounts(self.journal, self.batch)[0] == (0, 0, 0)
        assert self.journal.rows(WRONG_BOOKS) == []


def test_money_is_right_whatever_comes_in_whatever_order(journal: Journal) -> None:
    play(WalletMachine, journal, examples=20, moves=30)


def test_the_machine_notices_what_is_wrong(journal: Journal) -> None:
    """Its book of books is no formality: one token too few in a wallet is found."""
    machine: Any = WalletMachine(journal)
    machine.submit()
    machine.ask(4, 100)
    machine.the_books_are_right()
    journal.look.execute("UPDATE wallet SET held_tokens = held_tokens - 1 WHERE kind = 'batch'")
    with pytest.raises(AssertionError):
        machine.the_books_are_right()
    journal.look.execute("UPDATE wallet SET held_tokens = held_tokens + 1 WHERE kind = 'batch'")
