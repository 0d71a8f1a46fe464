"""Resolving an effect of a run that is being undone takes its locks in the doer's order: effect, compensation, run."""

from collections.abc import Callable

import pytest

from models.journal import effects, lookups, resolving
from models.journal.effect_values import OpenEffect
from tests.support.intents import KEY, at_work, send
from tests.support.journal import Journal, Worker
from tests.support.threads import aside
from tests.support.waiting import wait_until

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
            lambda: journal.one(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                " AND cardinality(pg_blocking_pids(pid)) > 0"
            ),
            what="it waits for the compensation",
        )
        free = journal.rows(
            "SELECT 1 FROM run WHERE run_id = %s FOR UPDATE SKIP LOCKED", claimed.run_id
        )
        blocker.release()
        act.result()
    assert free, "the doer, which has the compensation and wants the run, would wait in a circle"
