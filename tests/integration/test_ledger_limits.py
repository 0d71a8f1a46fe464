"""Rate limits of tools: places over the whole cluster, waited for in place or not at all."""

import time
from collections.abc import Iterator

import pytest

from models.journal.values import Claimed
from tasks import asking, leaving
from tasks.effects import Ledger
from tasks.errors import EffectPostponed
from tests.support.desk import DESK, Rationed, Wanted, a_ledger
from tests.support.intents import again, at_work
from tests.support.journal import Journal


@pytest.fixture(autouse=True)
def desk() -> Iterator[None]:
    DESK.reset()
    yield
    DESK.reset()


@pytest.fixture
def claimed(journal: Journal) -> Claimed:
    return at_work()


def call(ledger: Ledger) -> object:
    return ledger.call(Rationed(), Wanted(), name=None)


def test_a_rate_limit_holds_over_all_who_call(journal: Journal, claimed: Claimed) -> None:
    ledger = a_ledger(claimed)
    began = time.monotonic()
    for _ in range(3):
        call(ledger)
    assert time.monotonic() - began >= 0.95  # two intervals of half a second
    assert journal.one("SELECT count(*) FROM throttle WHERE name = 'tool:desk.rationed'") == 1


def test_a_long_queue_holds_no_worker(
    journal: Journal, claimed: Claimed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "WAIT_IN_PLACE", 2.0)
    journal.look.execute(
        "INSERT INTO throttle (name, next_at) VALUES ('tool:desk.rationed', onward_now() + interval '1 min')"
    )
    ledger = a_ledger(claimed)
    with pytest.raises(EffectPostponed, match="rate limit 2/s: nothing was sent") as stop:
        call(ledger)
    assert 55 < stop.value.delay <= 60
    assert not journal.rows("SELECT * FROM effect")
    assert journal.one("SELECT next_at < onward_now() + interval '61 s' FROM throttle")
    assert ledger.close() is stop.value


def test_a_worker_that_is_to_leave_does_not_wait(
    journal: Journal, claimed: Claimed, monkeypatch: pytest.MonkeyPatch
) -> None:
    call(ledger := a_ledger(claimed))
    monkeypatch.setattr(leaving, "is_leaving", lambda: True)
    with pytest.raises(EffectPostponed):
        call(ledger)
    assert len(DESK.calls) == 1


def test_a_replay_takes_no_place(journal: Journal, claimed: Claimed) -> None:
    journal.freeze()
    call(a_ledger(claimed))
    before = journal.one("SELECT next_at FROM throttle")
    call(a_ledger(again(journal, claimed)))
    assert journal.one("SELECT next_at FROM throttle") == before
    assert len(DESK.calls) == 1
