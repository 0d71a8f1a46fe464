"""A journal that rolls back, breaks or is away while an effect is under way: writes are repeated, calls never."""

from collections.abc import Iterator, Mapping

import psycopg
import pytest

from models import database
from models.journal.values import Claimed
from models.prepared import Prepared, Row
from models.settings import settings
from tasks.effects import Ledger
from tasks.errors import AttemptLost
from tests.support.desk import DESK, Made, Queryable, Wanted, a_ledger
from tests.support.intents import at_work
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
    return ledger.call(Queryable(), Wanted(), name=None)


def roll_back(journal: Journal, table: str, *, times: int) -> None:
    """Let so many inserts into a table fail as a serialization failure does."""
    journal.look.execute(
        f"""
        CREATE SEQUENCE collisions;
        CREATE FUNCTION collide() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF nextval('collisions') <= {times} THEN
                RAISE EXCEPTION 'collision' USING ERRCODE = 'serialization_failure';
            END IF;
            RETURN NEW;
        END $$;
        CREATE TRIGGER collide BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION collide();
        """.encode()
    )


@pytest.mark.parametrize("times", [1, 2, 6, 20])
@pytest.mark.parametrize("table", ["effect", "effect_settlement"])
def test_a_write_that_is_rolled_back_is_repeated_and_the_call_is_not(
    journal: Journal, claimed: Claimed, table: str, times: int
) -> None:
    roll_back(journal, table, times=times)
    ledger = a_ledger(claimed)
    assert call(ledger) == Made("res-1")
    assert len(DESK.calls) == 1
    assert journal.one("SELECT sends FROM effect_settlement") == 1
    assert ledger.close() is None
    assert journal.one("SELECT last_value FROM collisions") > times


def test_a_settlement_that_never_succeeds_leaves_the_effect_to_recovery(
    journal: Journal, claimed: Claimed, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("LEASE_TTL", "1"), ("HEARTBEAT", "0.3"), ("TRUST_MARGIN", "0.1")):
        monkeypatch.setenv(f"ONWARD_{name}", value)
    settings.cache_clear()
    roll_back(journal, "effect_settlement", times=10**9)
    ledger = a_ledger(claimed)
    with pytest.raises(AttemptLost, match="rolled back"):
        call(ledger)
    assert isinstance(ledger.close(), AttemptLost)
    assert len(DESK.calls) == 1
    assert journal.one("SELECT state FROM effect") == "intended"


def test_a_connection_that_breaks_while_the_tool_works_loses_no_answer(
    journal: Journal, claimed: Claimed
) -> None:
    own = database.connection().info.backend_pid

    def served() -> Made:
        journal.look.execute("SELECT pg_terminate_backend(%s, 5000)", (own,))
        return Made("res-9")

    DESK.then(served)
    assert call(a_ledger(claimed)) == Made("res-9")
    assert len(DESK.calls) == 1
    assert journal.one("SELECT count(*) FROM effect_settlement") == 1


def test_a_connection_that_breaks_before_the_intent_sends_once(
    journal: Journal, claimed: Claimed
) -> None:
    own = database.connection().info.backend_pid
    journal.look.execute("SELECT pg_terminate_backend(%s, 5000)", (own,))
    assert call(a_ledger(claimed)) == Made("res-1")
    assert journal.one("SELECT sends FROM effect_settlement") == 1


def test_a_commit_whose_answer_is_lost_is_known_again(
    journal: Journal, claimed: Claimed, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, lost = Prepared.first, []

    def losing(self: Prepared, params: Mapping[str, object]) -> Row | None:
        row = first(self, params)
        for kind in (b"made AS", b"INSERT INTO effect_settlement"):
            if kind in self.text and kind not in lost:
                lost.append(kind)
                raise psycopg.OperationalError("the connection was cut before the answer came")
        return row

    monkeypatch.setattr(Prepared, "first", losing)
    assert call(a_ledger(claimed)) == Made("res-1")
    assert len(lost) == 2
    assert len(DESK.calls) == 1
    assert journal.one("SELECT sends FROM effect_settlement") == 1
