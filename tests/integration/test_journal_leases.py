"""What a process believes of its leases, and how long it goes on trying to write an outcome."""

import time

import pytest

from models import database
from models.journal.errors import CommitUnknown, JournalUnavailable, LeaseLost
from models.journal.values import Completed
from models.settings import settings
from tasks import patience
from tasks.leases import Held, Keeper
from tests.support.journal import Journal, Worker, row_of, submit_run
from tests.support.waiting import wait_until

DONE = Completed(finished=True)


@pytest.fixture
def hasty(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> Journal:
    """A journal whose leases last for a moment."""
    for name, value in {"LEASE_TTL": "0.4", "HEARTBEAT": "0.1", "TRUST_MARGIN": "0.05"}.items():
        monkeypatch.setenv(f"ONWARD_{name}", value)
    settings.cache_clear()
    return journal


def test_a_renewed_lease_is_trusted_from_when_the_renewal_was_sent(journal: Journal) -> None:
    journal.freeze()
    claimed = Worker().take(submit_run(row_of("a")), "a")
    keeper = Keeper()
    with keeper.hold(claimed.lease, sent_at=time.monotonic() - 29) as held:
        with pytest.raises(LeaseLost, match="could not be renewed in time"):
            held.require_trust()
        journal.advance(20)
        before = time.monotonic()
        keeper.renew_once()
        held.require_trust()
        window = settings().lease_ttl - settings().trust_margin
        assert before + window <= held.trusted_until <= time.monotonic() + window
    left = journal.live(claimed.run_id)["lease_expires_at"] - journal.one("SELECT onward_now()")
    assert left.total_seconds() == settings().lease_ttl


def test_a_lease_that_was_taken_is_known_to_be_lost(journal: Journal) -> None:
    journal.freeze()
    lost, kept = (Worker().take(submit_run(row_of("a")), "a") for _ in range(2))
    keeper, now = Keeper(), time.monotonic()
    with keeper.hold(lost.lease, sent_at=now) as gone, keeper.hold(kept.lease, sent_at=now) as ours:
        journal.make(lost.run_id, state="unknown", owner=None, lease_expires_at=None)
        keeper.renew_once()
        with pytest.raises(LeaseLost, match="was taken"):
            gone.require_trust()
        ours.require_trust()


def test_nothing_is_renewed_that_is_not_held(journal: Journal) -> None:
    journal.freeze()
    claimed = Worker().take(submit_run(row_of("a")), "a")
    keeper = Keeper()
    with keeper.hold(claimed.lease, sent_at=time.monotonic()):
        pass
    before = journal.image()
    keeper.renew_once()
    assert journal.image() == before


def test_the_heartbeat_keeps_a_lease_alive_through_a_lost_connection(hasty: Journal) -> None:
    claimed = Worker().take(submit_run(row_of("a")), "a")
    keeper = Keeper()
    with keeper.hold(claimed.lease, sent_at=time.monotonic()) as held:
        hasty.look.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'onward'"
            " AND datname = current_database()"
        )
        database.close()
        first = held.trusted_until
        wait_until(lambda: held.trusted_until > first, what="the lease was renewed again")


def test_trust_ends_on_the_workers_own_clock(journal: Journal) -> None:
    claimed = Worker().take(submit_run(row_of("a")), "a")
    Held(claimed.lease, time.monotonic() + 60).require_trust()
    with pytest.raises(LeaseLost):
        Held(claimed.lease, time.monotonic() - 0.001).require_trust()


class Writes:
    """A write that fails in given ways before it goes through."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.tries = 0
        self.asked = 0

    def __call__(self) -> Completed:
        self.tries += 1
        if self.errors:
            raise self.errors.pop(0)
        return DONE

    def confirmed(self) -> Completed | None:
        self.asked += 1
        return None


def test_the_write_is_repeated_and_read_back_only_when_in_doubt(hasty: Journal) -> None:
    plain = Writes(JournalUnavailable("down"), JournalUnavailable("down"))
    assert patience.recorded(plain, confirmed=plain.confirmed) == DONE
    assert (plain.tries, plain.asked) == (3, 0)

    doubtful = Writes(CommitUnknown("cut"), JournalUnavailable("down"))
    assert patience.recorded(doubtful, confirmed=doubtful.confirmed) == DONE
    assert (doubtful.tries, doubtful.asked) == (3, 2)


def test_a_confirmed_outcome_is_not_written_again_nor_published(hasty: Journal) -> None:
    write = Writes(CommitUnknown("cut"))
    assert patience.recorded(write, confirmed=lambda: DONE) == DONE
    assert write.tries == 1


def test_other_errors_are_not_waited_out(hasty: Journal) -> None:
    write = Writes(LeaseLost("taken"))
    with pytest.raises(LeaseLost):
        patience.recorded(write, confirmed=write.confirmed)
    assert write.tries == 1


def test_patience_ends_after_two_leases(hasty: Journal) -> None:
    write = Writes(*(JournalUnavailable("down") for _ in range(100)))
    began = time.monotonic()
    with pytest.raises(JournalUnavailable):
        patience.recorded(write, confirmed=write.confirmed)
    assert time.monotonic() - began >= 2 * settings().lease_ttl
    assert write.tries < 20
