"""Connections that break at the COMMIT of a call: money is held once, charged once, and answers kept once."""

from collections.abc import Iterator
from decimal import Decimal

import pytest

from models import database
from models.journal import calls, wallets
from models.journal.call_values import Exceeded, Limits, NewWallet, Reserved
from models.journal.errors import CommitUnknown, LeaseLost
from models.settings import settings
from tests.support.calling import (
    HERE,
    amounts,
    at_position,
    charge,
    exceeded,
    hold,
    record,
    reservation,
)
from tests.support.intents import again, at_work
from tests.support.journal import Journal
from tests.support.proxy import Cut, Wire, wire_to

ZERO = (0, 0, 0)
HELD = (100, Decimal("0.10"), 1)
SPENT = (12, Decimal("0.02"), 1)


@pytest.fixture
def wire(journal: Journal, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    """The verbs reach the journal over this wire; the test's own look at it does not."""
    with wire_to(database_url) as (wire, url):
        monkeypatch.setenv("ONWARD_DATABASE_URL", url)
        settings.cache_clear()
        yield wire
        database.close()


@pytest.mark.parametrize("cut", Cut)
def test_a_reservation_cut_off_is_held_once(journal: Journal, wire: Wire, cut: Cut) -> None:
    claimed = at_work()
    wallets.open_wallets(
        [NewWallet(wallet_id=claimed.run_id, kind="run", limits=Limits(calls=1, tokens=100))]
    )
    wire.cut_next(cut)
    assert wallets.reserve(claimed, reservation()) == Reserved()
    assert wire.cuts == 1
    assert amounts(journal, claimed.run_id) == (HELD, ZERO)
    assert isinstance(wallets.reserve(claimed, reservation(at_position(1))), Exceeded)


@pytest.mark.parametrize("cut", Cut)
def test_the_first_reservation_of_a_run_cut_off_opens_its_wallet_once(
    journal: Journal, wire: Wire, cut: Cut
) -> None:
    claimed = at_work()
    database.connection()
    wire.cut_next(cut)
    assert wallets.reserve(claimed, reservation()) == Reserved()
    assert amounts(journal, claimed.run_id) == (HELD, ZERO)


@pytest.mark.parametrize("cut", Cut)
def test_an_answer_cut_off_is_recorded_and_charged_once(
    journal: Journal, wire: Wire, cut: Cut
) -> None:
    claimed = at_work()
    made = hold(claimed)
    wire.cut_next(cut)
    record(claimed, reservation=made, charge=charge())
    assert wire.cuts == 1
    assert len(calls.history(claimed).calls) == 1
    assert amounts(journal, claimed.run_id) == (ZERO, SPENT)


@pytest.mark.parametrize("cut", Cut)
def test_a_displaced_owners_charge_cut_off_is_charged_once(
    journal: Journal, wire: Wire, cut: Cut
) -> None:
    journal.freeze()
    first = at_work()
    made = hold(first)
    again(journal, first)
    database.connection()
    wire.cut_next(cut)
    with pytest.raises((LeaseLost, CommitUnknown)):
        record(first, reservation=made, charge=charge())
    with pytest.raises(LeaseLost):
        record(first, reservation=made, charge=charge())
    assert amounts(journal, first.run_id) == (ZERO, SPENT)


@pytest.mark.parametrize("cut", Cut)
def test_what_is_repeated_after_a_broken_commit_is_done_once(
    journal: Journal, wire: Wire, cut: Cut
) -> None:
    claimed = at_work()
    made = hold(claimed)
    record(claimed)
    for act in (
        lambda: calls.judge(claimed, HERE, verdict="rejected", reason="no total"),
        lambda: wallets.charge(claimed, made, charge(), recovery=True),
        lambda: calls.open_branch(claimed, "because"),
    ):
        wire.cut_next(cut)
        with pytest.raises(CommitUnknown):
            act()
        act()
    assert amounts(journal, claimed.run_id) == (ZERO, SPENT)
    assert calls.history(claimed).generation == 1
    assert len(journal.rows("SELECT 1 FROM call_verdict")) == 1
    assert journal.events(claimed.run_id).count("calls_branched") == 1


def test_a_refusal_is_one_after_a_broken_connection_too(journal: Journal, wire: Wire) -> None:
    claimed = at_work()
    wallets.open_wallets(
        [NewWallet(wallet_id=claimed.run_id, kind="run", limits=Limits(tokens=99))]
    )
    wire.cut_next(Cut.ANSWER)
    assert exceeded(claimed).what == "tokens"
    assert amounts(journal, claimed.run_id) == (ZERO, ZERO)
