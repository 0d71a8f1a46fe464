"""Statements about effects that Postgres undid: repeated as statements, and never as effects (C22)."""

from typing import LiteralString

import psycopg
import pytest

from models.journal import effects
from models.journal.effect_values import Granted
from models.journal.errors import RolledBack
from models.states import EffectState
from tests.support.intents import KEY, at_work, effect, intend, put, send, settlement
from tests.support.journal import Blocker, Journal
from tests.support.threads import aside


def test_an_intent_caught_in_a_deadlock_is_made_again_and_counted_once(journal: Journal) -> None:
    claimed = at_work()
    send(claimed)
    put(journal, state="absent")
    with psycopg.connect(journal.conninfo) as other:
        other.execute("SET deadlock_timeout = '1min'")  # so that the intent is the one to be undone
        other.execute("SELECT 1 FROM effect FOR UPDATE")
        with aside(lambda: intend(claimed)) as intent:
            Blocker(journal, other).wait_for(1)
            other.execute("SELECT 1 FROM live FOR UPDATE")
            other.commit()
            assert intent.result() == Granted(2)
    assert effect(journal)["sends"] == 2
    assert journal.deadlocks() == 1


REFUSING: LiteralString = """
CREATE SEQUENCE refusals;
CREATE FUNCTION refuse_some() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF nextval('refusals') <= {} THEN
        RAISE EXCEPTION 'could not serialize access' USING ERRCODE = 'serialization_failure';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER refuse_some BEFORE INSERT ON effect_settlement FOR EACH ROW EXECUTE FUNCTION refuse_some()"""


@pytest.mark.parametrize("times", [1, 2, 6])
def test_a_settlement_that_cannot_be_serialised_is_written_again(
    journal: Journal, times: int
) -> None:
    claimed = at_work()
    send(claimed)
    journal.look.execute(REFUSING.format(times).encode())
    effects.settle(KEY, claimed, result="1")
    assert journal.one("SELECT last_value FROM refusals") == times + 1
    assert settlement(journal)["sends"] == 1


def test_a_settlement_that_never_goes_through_leaves_the_effect_as_it_was(journal: Journal) -> None:
    claimed = at_work()
    send(claimed)
    journal.look.execute(REFUSING.format(1000).encode())
    before = journal.image()
    with pytest.raises(RolledBack):
        effects.settle(KEY, claimed, result="1")
    assert journal.image() == before
    assert effect(journal)["state"] == EffectState.INTENDED
