"""Gateways as processes of their own: owners that are killed, paused, and race for the same keys."""

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine

from tasks.toolkit.gateway import Displaced, GatewayLedger, InDoubt, InProgress, digest_of
from tasks.tools import Absent, Found, Looked
from tests.support.fx import Fx
from tests.support.gateways import LEASE, a_gateway, a_ledger, never, pay, refusal, row
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def fx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fx]:
    with Fx(tmp_path_factory.mktemp("fx")) as fx:
        yield fx


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


def test_an_owner_is_killed_after_the_act(
    fx: Fx, empty_database_url: str, engine: Engine, ledger: GatewayLedger
) -> None:
    fx.hold("killed-after", "after")
    with a_gateway(empty_database_url, fx.port, LEASE) as gateway:
        gateway.ask("killed-after")
        fx.wait_held("killed-after")
        with pytest.raises(InProgress):
            ledger.once("killed-after", digest_of("killed-after"), act=never)
        gateway.kill()
        died = time.monotonic()
    in_doubt = wait_until(
        lambda: refusal(ledger, "killed-after", InDoubt), what="the dead owner is taken over"
    )
    assert time.monotonic() - died < LEASE + 1, "by lease, not by a long time to live"
    assert "its owner is gone" in str(in_doubt)
    assert (fx.calls("killed-after"), fx.effects("killed-after")) == (1, 1)

    made = fx.resources("killed-after")[0]["id"]
    answer = ledger.once(
        "killed-after", digest_of("killed-after"), act=never, lookup=lambda: Found(made)
    )
    assert answer == made


def test_an_owner_is_killed_before_the_act_and_nothing_of_it_can_land(
    fx: Fx, empty_database_url: str, engine: Engine, ledger: GatewayLedger
) -> None:
    name = "killed-before"
    fx.fault(name, "hang", seconds=2)  # the request is lost on the way
    with a_gateway(empty_database_url, fx.port, LEASE) as gateway:
        gateway.ask(name)
        wait_until(lambda: fx.calls(name) == 1, what="the request left")
        gateway.kill()
    patient = a_ledger(engine, lifetime=1)

    def looked() -> Looked:
        found = fx.resources(name)
        return Found(found[0]["id"]) if found else Absent()

    def again() -> Any:
        try:
            return patient.once(
                name, digest_of(name), act=lambda: pay(fx.port, name), lookup=looked
            )
        except InProgress:
            return None

    answer = wait_until(again, what="it is done again")
    assert answer == fx.resources(name)[0]["id"]
    assert (fx.calls(name), fx.effects(name)) == (2, 1)


def test_a_paused_owner_wakes_up_and_neither_completes_nor_deletes_anything(
    fx: Fx, empty_database_url: str, engine: Engine, ledger: GatewayLedger
) -> None:
    name = "paused"
    fx.hold(name, "after")
    with a_gateway(empty_database_url, fx.port, LEASE) as gateway:
        gateway.ask(name)
        fx.wait_held(name)
        os.kill(gateway.pid, signal.SIGSTOP)
        wait_until(lambda: refusal(ledger, name, InDoubt), what="the paused owner is taken over")
        before = row(ledger, engine, name)
        assert (before["state"], before["fence"]) == ("in_doubt", 2)
        fx.release(name)
        os.kill(gateway.pid, signal.SIGCONT)
        assert gateway.answers(1) == [["refused", Displaced.error_type]]
    made = fx.resources(name)[0]["id"]
    after = row(ledger, engine, name)
    assert after.pop("evidence") == f'"{made}"'
    assert after == {key: value for key, value in before.items() if key != "evidence"}
    assert ledger.once(name, digest_of(name), act=never) == made, "what it learnt is read first"
    assert (fx.calls(name), row(ledger, engine, name)["source"]) == (1, "late_answer")


def test_two_processes_race_for_every_key(
    fx: Fx, empty_database_url: str, ledger: GatewayLedger
) -> None:
    keys = [f"race-{number}" for number in range(40)]
    with (
        a_gateway(empty_database_url, fx.port, 5.0) as one,
        a_gateway(empty_database_url, fx.port, 5.0) as other,
    ):
        one.ask(*keys)
        other.ask(*keys)
        answers = list(zip(one.answers(len(keys)), other.answers(len(keys)), strict=True))
    assert fx.all_effects("race-") == fx.all_calls("race-") == dict.fromkeys(keys, 1)
    for key, pair in zip(keys, answers, strict=True):
        done = {answer for outcome, answer in pair if outcome == "done"}
        assert done == {fx.resources(key)[0]["id"]}
        assert {answer for outcome, answer in pair if outcome == "refused"} <= {"in_progress"}
