"""The gateway's ledger on a real PostgreSQL: one act a key, and what becomes of owners that die."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text

from tasks.toolkit.gateway import (
    GatewayLedger,
    GatewayRefusal,
    InDoubt,
    InProgress,
    KeyConflict,
    digest_of,
)
from tasks.tools import Absent, Found, NotSent, Refused, Undecided
from tests.support.gateways import LEASE, a_ledger, never, row
from tests.support.proxy import Cut, wire_to


@pytest.fixture
def engine(empty_database_url: str) -> Iterator[Engine]:
    engine = create_engine(empty_database_url)
    yield engine
    engine.dispose()


@pytest.fixture
def ledger(engine: Engine) -> GatewayLedger:
    made = a_ledger(engine)
    made.create_table()
    return made


def acts() -> tuple[Callable[[], dict[str, Any]], list[int]]:
    """Something to do, and the list of its doings."""
    done: list[int] = []

    def act() -> dict[str, Any]:
        done.append(len(done) + 1)
        return {"payment": f"p-{done[-1]}", "sum": Decimal("1.10")}

    return act, done


def fail(error: BaseException) -> Any:
    raise error


def lost(engine: Engine, key: str, *, seconds: float = 60) -> None:
    """As if the owner had died so long ago, while acting."""
    with engine.begin() as connection:
        connection.execute(
            text(
                "UPDATE gateway_ledger SET state = 'in_progress', answer = NULL, doubted_at = NULL,"
                " lease_until = clock_timestamp() - make_interval(secs => :seconds) WHERE key = :key"
            ),
            {"key": key, "seconds": seconds},
        )


def test_a_key_acts_once_and_is_answered_from_the_ledger_with_the_same_types(
    ledger: GatewayLedger,
) -> None:
    act, done = acts()
    first = ledger.once("k", "d", act=act)
    assert first == ledger.once("k", "d", act=never) == {"payment": "p-1", "sum": Decimal("1.10")}
    assert done == [1]
    assert ledger.once("other", "d", act=act)["payment"] == "p-2"


def test_the_same_key_for_another_request_is_refused_whatever_its_state(
    ledger: GatewayLedger, engine: Engine
) -> None:
    ledger.once("k", digest_of({"servers": 1}), act=acts()[0])
    assert ledger.once("k", digest_of({"servers": 1.0}), act=never), (
        "the same request, spelled otherwise"
    )
    for _ in range(2):
        with pytest.raises(KeyConflict) as caught:
            ledger.once("k", digest_of({"servers": 10}), act=never)
        assert caught.value.status == 422
        lost(engine, "k")


def test_what_certainly_did_not_happen_frees_the_key(ledger: GatewayLedger) -> None:
    act, done = acts()

    for error in (Refused("no such account"), NotSent("no route")):
        with pytest.raises(type(error)):
            ledger.once("k", "d", act=partial(fail, error))
    with pytest.raises(KeyConflict):
        ledger.once("k", "another", act=never)
    ledger.once("k", "d", act=act)
    assert done == [1]


@pytest.mark.parametrize("error", [TimeoutError("60 s"), KeyboardInterrupt(), RuntimeError("\x00")])
def test_any_other_end_of_the_act_is_a_doubt_at_once(
    ledger: GatewayLedger, error: BaseException
) -> None:
    with pytest.raises(type(error)):
        ledger.once("k", "d", act=partial(fail, error))
    with pytest.raises(InDoubt, match="a person decides"):
        ledger.once("k", "d", act=never)
    [waiting] = ledger.doubtful()
    assert waiting["key"] == "k"


def test_an_answer_that_cannot_be_recorded_is_a_doubt_and_no_second_act(
    ledger: GatewayLedger,
) -> None:
    with pytest.raises(Exception, match="cannot be recorded"):
        ledger.once("k", "d", act=object)
    with pytest.raises(InDoubt):
        ledger.once("k", "d", act=never)


def test_a_person_decides_once_and_only_what_is_in_doubt(
    ledger: GatewayLedger, engine: Engine
) -> None:
    act, done = acts()
    for key in ("happened", "did-not"):
        ledger.once(key, "d", act=act)
        lost(engine, key)
        with pytest.raises(InDoubt):
            ledger.once(key, "d", act=never)
    ledger.settle("happened", {"payment": "p-1"}, by="ann", reason="seen in the bank's list")
    ledger.release("did-not", by="ann", reason="not in the bank's list")
    assert ledger.once("happened", "d", act=never) == {"payment": "p-1"}
    assert ledger.once("did-not", "d", act=act)["payment"] == "p-3"
    assert done == [1, 2, 3]
    assert row(ledger, engine, "happened")["decided_by"] == "ann"
    for key in ("happened", "did-not", "unheard-of"):
        with pytest.raises(GatewayRefusal, match="not in doubt"):
            ledger.release(key, by="ann", reason="again")
    assert ledger.doubtful() == []


def test_a_lost_owners_act_is_found_and_recorded(engine: Engine, ledger: GatewayLedger) -> None:
    ledger.once("k", "d", act=acts()[0])
    lost(engine, "k")
    found = ledger.once("k", "d", act=never, lookup=lambda: Found({"payment": "p-1"}))
    assert found == ledger.once("k", "d", act=never) == {"payment": "p-1"}
    assert row(ledger, engine, "k")["source"] == "lookup"


def test_nothing_found_is_believed_when_nothing_can_land_any_more(
    engine: Engine, ledger: GatewayLedger
) -> None:
    act, done = acts()
    patient = a_ledger(engine, lifetime=60)
    patient.once("k", "d", act=act)
    lost(engine, "k", seconds=20)
    with pytest.raises(InProgress, match="may still land") as caught:
        patient.once("k", "d", act=never, lookup=Absent)
    assert 35 < caught.value.retry_after <= 40
    lost(engine, "k", seconds=61)
    assert patient.once("k", "d", act=act, lookup=Absent)["payment"] == "p-2"
    assert done == [1, 2]

    lost(engine, "k", seconds=3600)
    with pytest.raises(InDoubt, match="declare max_request_lifetime"):
        ledger.once("k", "d", act=never, lookup=Absent)
    assert patient.once("k", "d", act=act, lookup=Absent)["payment"] == "p-3"


def test_a_look_up_that_cannot_tell_and_one_that_fails(
    engine: Engine, ledger: GatewayLedger
) -> None:
    ledger.once("k", "d", act=acts()[0])
    lost(engine, "k")
    with pytest.raises(ConnectionError):
        ledger.once("k", "d", act=never, lookup=partial(fail, ConnectionError("no route")))
    with pytest.raises(InProgress) as caught:
        ledger.once("k", "d", act=never, lookup=lambda: Undecided("provisioning", again_in=3.0))
    assert caught.value.retry_after == 3.0
    with pytest.raises(InDoubt, match="two of them"):
        ledger.once("k", "d", act=never, lookup=lambda: Undecided("two of them"))
    with pytest.raises(InDoubt):
        ledger.once("k", "d", act=never)
    assert ledger.once("k", "d", act=never, lookup=lambda: Found("p")) == "p", "later it can"


def test_an_owner_that_dies_while_looking_leaves_the_first_doubt(
    engine: Engine, ledger: GatewayLedger
) -> None:
    patient = a_ledger(engine, lifetime=60)
    patient.once("k", "d", act=acts()[0])
    lost(engine, "k", seconds=61)
    with pytest.raises(SystemExit):
        patient.once("k", "d", act=never, lookup=lambda: sys.exit(1))
    act, done = acts()
    patient.once("k", "d", act=act, lookup=Absent)
    assert done == [1], "the minute is counted from the first loss"


def test_a_living_owner_keeps_its_lease_however_long_it_takes(ledger: GatewayLedger) -> None:
    began, go_on = threading.Event(), threading.Event()

    def long() -> str:
        began.set()
        assert go_on.wait(20)
        return "at last"

    with ThreadPoolExecutor(1) as pool:
        owner = pool.submit(ledger.once, "k", "d", act=long)
        assert began.wait(10)
        until = time.monotonic() + 3 * LEASE
        while time.monotonic() < until:
            with pytest.raises(InProgress) as caught:
                ledger.once("k", "d", act=never)
            assert 0 < caught.value.retry_after <= LEASE
        with pytest.raises(GatewayRefusal, match="not in doubt"):
            ledger.release("k", by="ann", reason="impatient")
        go_on.set()
        assert owner.result(timeout=20) == "at last"


def test_recording_is_repeated_through_a_cut_connection_and_acting_is_not(
    empty_database_url: str, ledger: GatewayLedger
) -> None:
    act, done = acts()
    with wire_to(empty_database_url) as (wire, url):
        engine = create_engine(url)
        try:

            def act_and_cut() -> Any:
                wire.cut_next(Cut.REQUEST)
                return act()

            assert a_ledger(engine).once("k", "d", act=act_and_cut)["payment"] == "p-1"
            assert wire.cuts == 1
        finally:
            engine.dispose()
    assert ledger.once("k", "d", act=never)["payment"] == "p-1"
    assert done == [1]


def test_what_was_done_long_ago_is_forgotten_and_nothing_else(
    ledger: GatewayLedger, engine: Engine
) -> None:
    act, done = acts()
    ledger.once("done", "d", act=act)
    ledger.once("lost", "d", act=act)
    lost(engine, "lost")
    assert ledger.forget(timedelta(hours=1)) == 0
    assert ledger.forget(timedelta(0)) == 1
    ledger.once("done", "d", act=act)
    with pytest.raises(InDoubt):
        ledger.once("lost", "d", act=never)
    assert done == [1, 2, 3]
