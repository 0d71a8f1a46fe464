"""Locks about undoing: in the doer's order (effect, compensation, run), and held where two could pass each other."""

import threading
from collections.abc import Callable

import pytest

from models import database
from models.journal import compensations, effects, lookups, resolving, runs
from models.journal.effect_values import OpenEffect
from models.journal.errors import Refused
from tests.support.intents import KEY, at_work, send
from tests.support.journal import Journal, Worker
from tests.support.shelf import PutByKey, failed_run
from tests.support.threads import DEADLINE, aside
from tests.support.waiting import wait_until

BLOCKED = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    " AND cardinality(pg_blocking_pids(pid)) > 0"
)

WAYS: dict[str, Callable[[OpenEffect], object]] = {
    "found": lambda seen: lookups.found(seen, result="1", source="lookup", said="there"),
    "absent": lambda seen: lookups.believe_absent(seen, said="not there"),
    "ask person": lambda seen: lookups.ask_person(seen, said="two of them"),
    "resolve": lambda seen: resolving.abandon(seen.key, by="ada", reason="gone"),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_who_waits_for_the_compensation_does_not_hold_the_run(
    journal: Journal, way: Callable[[OpenEffect], object]
) -> None:
    claimed = at_work()
    send(claimed)
    effects.doubt(KEY, claimed, error="cut", call_over=True)
    Worker().interrupt(claimed)
    journal.look.execute(
        "INSERT INTO compensation (run_id, state, run_state, requested_by, queue)"
        " VALUES (%s, 'undoing', 'failed', 'bob', 'q')",
        (claimed.run_id,),
    )
    seen = lookups.begin(KEY, looker="looker-1")
    assert seen is not None
    with (
        journal.holding(
            "SELECT 1 FROM compensation WHERE run_id = %s FOR UPDATE", claimed.run_id
        ) as blocker,
        aside(lambda: way(seen)) as act,
    ):
        wait_until(
            lambda: journal.one(BLOCKED),
            what="it waits for the compensation",
        )
        free = journal.rows(
            "SELECT 1 FROM run WHERE run_id = %s FOR UPDATE SKIP LOCKED", claimed.run_id
        )
        blocker.release()
        act.result()
    assert free, "the doer, which has the compensation and wants the run, would wait in a circle"


@pytest.mark.parametrize("first", ["undo", "retry"])
def test_a_run_is_not_sent_back_and_undone_in_part_at_one_moment(
    journal: Journal, first: str
) -> None:
    run_id, keys = failed_run((PutByKey(), "one"))

    def undo() -> object:
        return compensations.request(run_id, by="ada", reason="wrong", only=keys)

    def retry() -> object:
        return runs.send_back(run_id, by="bob")

    one, other = (undo, retry) if first == "undo" else (retry, undo)
    asked, may_commit = threading.Event(), threading.Event()

    def held() -> object:
        with database.transaction():
            told = one()
            asked.set()
            assert may_commit.wait(DEADLINE)
        return told

    with aside(held) as earlier:
        assert asked.wait(DEADLINE)
        with aside(other) as later:
            wait_until(lambda: journal.one(BLOCKED), what="the later one waits for the earlier")
            may_commit.set()
            earlier.result()
            with pytest.raises(
                Refused, match="being undone" if first == "undo" else "cancel it first"
            ):
                later.result()
