"""Effects with everybody at once, on connections of their own: who waits, who is seen, who is repeated."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
import pytest

from models import database
from models.journal import effects, losing
from models.journal.effect_values import Granted, InDoubt, Recorded, Standing
from models.journal.errors import LeaseLost
from models.journal.values import Claimed
from tests.support.intents import (
    IDEMPOTENT,
    KEY,
    again,
    asking,
    at_work,
    effect,
    intend,
    put,
    send,
    settle_as,
)
from tests.support.journal import Blocker, Journal
from tests.support.threads import DEADLINE, Aside, aside, at_once
from tests.support.waiting import wait_until

T = TypeVar("T")


@contextmanager
def uncommitted(
    journal: Journal, act: Callable[[], T]
) -> Iterator[tuple[Aside[T], Callable[[], None]]]:
    """A verb that has written and has not committed yet, and what lets it commit."""
    wrote, commit = threading.Event(), threading.Event()

    def verb() -> T:
        with database.transaction():
            done = act()
            wrote.set()
            assert commit.wait(DEADLINE)
        return done

    with aside(verb) as under_way:
        wait_until(lambda: wrote.is_set() or under_way.done, what="the verb has written")
        try:
            yield under_way, commit.set
        finally:
            commit.set()


def blocked(journal: Journal) -> int:
    return int(
        journal.one(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'onward'"
            " AND datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0"
        )
    )


@contextmanager
def intending(
    claimed: Claimed, **changes: object
) -> Iterator[tuple[Aside[Standing], Callable[[], None]]]:
    """An intent about to be made on a connection that is open, with the clock of this moment."""
    ready, go = threading.Event(), threading.Event()

    def act() -> Standing:
        database.connection()
        ready.set()
        assert go.wait(DEADLINE)
        return intend(claimed, asking(**changes))  # type: ignore[arg-type]

    with aside(act) as under_way:
        assert ready.wait(DEADLINE)
        try:
            yield under_way, go.set
        finally:
            go.set()


def expire() -> int:
    return losing.expire(losing.expired(limit=10))


def test_an_intent_that_meets_an_expiry_finds_its_lease_gone(journal: Journal) -> None:
    journal.freeze()
    claimed = at_work()
    with intending(claimed) as (intent, go):
        journal.advance(31)
        with uncommitted(journal, expire) as (expiry, commit):
            go()
            wait_until(lambda: blocked(journal) == 1, what="the intent waits for the expiry")
            commit()
            assert expiry.result() == 1
        assert isinstance(intent.error(), LeaseLost)
    assert journal.rows("SELECT 1 FROM effect") == []


def test_an_expiry_leaves_a_step_whose_intent_is_being_written(journal: Journal) -> None:
    journal.freeze()
    claimed = at_work()
    with uncommitted(journal, lambda: intend(claimed)) as (intent, commit):
        journal.advance(31)
        assert expire() == 0
        commit()
        assert intent.result() == Granted(1)
    assert expire() == 1
    assert effect(journal)["state"] == "intended"


def test_a_seen_death_waits_for_an_intent_that_is_being_written(journal: Journal) -> None:
    claimed = at_work()
    facts = {"task_id": f"{claimed.run_id}:a", "start_id": "start-1", "reason": "signal 9"}

    def died() -> tuple[int, int]:
        lost = losing.mark_died(claimed.run_id, **facts)
        (row,) = database.fetch("SELECT count(*) FROM effect", {})
        return lost, row[0]

    with uncommitted(journal, lambda: intend(claimed)) as (_, commit), aside(died) as death:
        wait_until(lambda: blocked(journal) == 1, what="the death waits for the intent")
        commit()
        assert death.result() == (1, 1)


def test_whoever_loses_a_step_sees_every_intent_of_it(journal: Journal) -> None:
    journal.freeze()
    seen_before_any, granted = 0, 0
    for round_ in range(30):
        claimed = at_work()
        key = f"key-{round_}"

        def lose(run_id: str = claimed.run_id) -> int | None:
            ref = journal.ref(run_id)
            journal_lease_over(run_id)
            if not losing.expire([ref]):
                return None
            (row,) = database.fetch(
                "SELECT count(*) FROM effect WHERE run_id = %(run_id)s", {"run_id": run_id}
            )
            return int(row[0])

        def ask(claimed: Claimed = claimed, key: str = key) -> int | None:
            try:
                return int(isinstance(intend(claimed, asking(key)), Granted))
            except LeaseLost:
                return 0

        seen, sent = at_once(lose, ask)
        granted += sent or 0
        seen_before_any += seen == 0
        if seen is not None:
            assert seen == sent, "an intent that nobody who lost the step saw"
    assert granted + seen_before_any >= 20


def journal_lease_over(run_id: str) -> None:
    """Let a lease end at this moment, as time would: without a write that others would notice."""
    database.fetch(
        "UPDATE live SET lease_expires_at = onward_now() WHERE run_id = %(run_id)s AND owner IS NOT NULL",
        {"run_id": run_id},
    )


def test_of_an_old_and_a_new_holder_the_new_one_sends(journal: Journal) -> None:
    journal.freeze()
    for round_ in range(5):
        first = at_work()
        second = again(journal, first)

        def ask(claimed: Claimed, key: str = f"key-{round_}") -> object:
            try:
                return intend(claimed, asking(key))
            except LeaseLost:
                return None

        assert at_once(lambda one=first: ask(one), lambda two=second: ask(two)) == [  # type: ignore[misc]
            None,
            Granted(1),
        ]


def test_what_a_look_up_settles_meanwhile_is_not_sent_again(journal: Journal) -> None:
    journal.freeze()
    first = at_work()
    send(first, asking(promise=IDEMPOTENT))
    second = again(journal, first)
    with psycopg.connect(journal.conninfo) as other:
        settle_as(other, "settled", source="lookup")
        with aside(lambda: intend(second, asking(promise=IDEMPOTENT))) as intent:
            Blocker(journal, other).wait_for(1)
            other.commit()
            assert intent.result() == Recorded('"found"', 1)
    assert journal.rows("SELECT 1 FROM effect") == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"state": "absent"}, Granted(2)),
        ({"person": "ask them"}, InDoubt("ask them")),
        ({"resend_until": None}, InDoubt("an earlier attempt may have sent it")),
    ],
    ids=str,
)
def test_what_others_find_meanwhile_decides(
    journal: Journal, changes: dict[str, Any], expected: Standing
) -> None:
    journal.freeze()
    first = at_work()
    send(first, asking(promise=IDEMPOTENT))
    second = again(journal, first)
    with psycopg.connect(journal.conninfo) as other:
        put(other, **changes)
        with aside(lambda: intend(second, asking(promise=IDEMPOTENT))) as intent:
            Blocker(journal, other).wait_for(1)
            other.commit()
            assert intent.result() == expected


def test_one_key_asked_for_by_two_calls_at_once_is_sent_by_one(journal: Journal) -> None:
    claimed = at_work()
    lock = "SELECT 1 FROM live WHERE run_id = %s FOR UPDATE"
    with (
        journal.holding(lock, claimed.run_id) as blocker,
        aside(lambda: intend(claimed)) as one,
        aside(lambda: intend(claimed)) as two,
    ):
        blocker.wait_for(1)
        wait_until(lambda: blocked(journal) == 2, what="both wait, and have read what there is")
        blocker.release()
        met = [one.result(), two.result()]
    assert sorted(isinstance(standing, Granted) for standing in met) == [False, True]
    assert Granted(1) in met
    assert effect(journal)["sends"] == 1


@pytest.mark.parametrize("verb", ["settle", "refuse", "doubt"])
def test_an_answer_that_meets_a_doubt_comes_too_late(journal: Journal, verb: str) -> None:
    claimed = at_work()
    send(claimed)

    def tell() -> None:
        match verb:
            case "settle":
                effects.settle(KEY, claimed, result="1")
            case "refuse":
                effects.refuse(KEY, claimed, error="no")
            case _:
                effects.doubt(KEY, claimed, error="cut", call_over=True)

    with psycopg.connect(journal.conninfo) as other:
        other.execute("UPDATE effect SET state = 'unknown', error = 'its owner is gone'")
        with aside(tell) as told:
            Blocker(journal, other).wait_for(1)
            other.commit()
            lost = told.error()
    assert isinstance(lost, LeaseLost) == (verb == "settle")
    row = effect(journal)
    assert (row["state"], row["error"]) == ("unknown", "its owner is gone")
    assert len(journal.rows("SELECT 1 FROM effect_evidence")) == (verb == "settle")
