"""Endpoints: one pause and one allowance for the whole cluster."""

from datetime import timedelta

import pytest

from models.journal import endpoints
from tests.support.calling import ENDPOINT
from tests.support.journal import Journal
from tests.support.threads import at_once

OTHER = "https://other.example/v1"


def take(
    *,
    requests: float | None = None,
    tokens: float | None = None,
    amount: int = 0,
    at_most: float = 60.0,
) -> float:
    return endpoints.take(
        ENDPOINT,
        tokens=amount,
        requests_per_minute=requests,
        tokens_per_minute=tokens,
        at_most=at_most,
    )


def test_nobody_waits_for_an_endpoint_never_heard_of(journal: Journal) -> None:
    assert take() == 0.0
    standing = endpoints.standing(ENDPOINT)
    assert (standing.wait, standing.reason, standing.since, standing.strikes) == (
        0.0,
        None,
        None,
        0,
    )
    assert journal.rows("SELECT 1 FROM endpoint") == []


def test_a_pause_is_everybodys(journal: Journal) -> None:
    journal.freeze()
    waits = endpoints.pause(ENDPOINT, seconds=20, spread=5, reason="429: slow down")
    assert 20 <= waits <= 25
    assert 20 <= take() <= 25
    assert 20 <= take(requests=60, at_most=1) <= 25
    assert (
        endpoints.take(OTHER, tokens=0, requests_per_minute=None, tokens_per_minute=None, at_most=1)
        == 0
    )
    standing = endpoints.standing(ENDPOINT)
    assert (standing.wait, standing.spread, standing.reason) == (20, 5, "429: slow down")
    assert standing.since == journal.one("SELECT onward_now()")
    journal.advance(20)
    assert take() == 0


def test_those_who_wait_do_not_come_back_together(journal: Journal) -> None:
    journal.freeze()
    waits = {endpoints.pause(ENDPOINT, seconds=10, spread=8, reason="429") for _ in range(20)}
    waits |= {take() for _ in range(20)}
    assert len(waits) == 40
    assert max(waits) - min(waits) > 2
    assert all(10 <= wait <= 18 for wait in waits)


def test_a_shorter_pause_does_not_cut_a_longer_one(journal: Journal) -> None:
    journal.freeze()
    endpoints.pause(ENDPOINT, seconds=60, spread=0, reason="long")
    assert endpoints.pause(ENDPOINT, seconds=5, spread=0, reason="short") == 60
    assert endpoints.standing(ENDPOINT).reason == "long"
    endpoints.pause(ENDPOINT, seconds=90, spread=0, reason="longer")
    assert (endpoints.standing(ENDPOINT).reason, take()) == ("longer", 90)


def test_each_strike_waits_twice_as_long(journal: Journal) -> None:
    journal.freeze()
    start = journal.one("SELECT onward_now()")
    for number, seconds in enumerate((1, 2, 4, 8, 16, 32, 60, 60), start=1):
        waits = endpoints.strike(ENDPOINT, reason=f"refused {number}")
        assert seconds <= waits <= seconds * (1 + endpoints.STRIKE_SPREAD)
        standing = endpoints.standing(ENDPOINT)
        assert (standing.wait, standing.strikes) == (seconds, number)
        assert (standing.since, standing.reason) == (start, f"refused {number}")
        journal.advance(seconds)


def test_a_long_outage_overflows_nothing(journal: Journal) -> None:
    journal.look.execute(
        "INSERT INTO endpoint (endpoint, strikes) VALUES (%s, 9223372036854775000)", (ENDPOINT,)
    )
    assert endpoints.strike(ENDPOINT, reason="refused") >= 60


def test_failures_at_once_are_one_strike(journal: Journal) -> None:
    journal.freeze()
    at_once(*[lambda: endpoints.strike(ENDPOINT, reason="refused")] * 12)
    assert endpoints.standing(ENDPOINT).strikes == 1
    endpoints.pause(OTHER, seconds=30, spread=0, reason="429")
    assert endpoints.strike(OTHER, reason="refused") == 30
    assert endpoints.standing(OTHER).reason == "429"


def test_an_answer_clears_strikes_and_no_pause_that_lasts(journal: Journal) -> None:
    journal.freeze()
    endpoints.strike(ENDPOINT, reason="refused")
    endpoints.clear(ENDPOINT)
    assert endpoints.standing(ENDPOINT).strikes == 1
    journal.advance(1)
    endpoints.clear(ENDPOINT)
    standing = endpoints.standing(ENDPOINT)
    assert (standing.strikes, standing.reason, standing.since) == (0, None, None)
    assert 1 <= endpoints.strike(ENDPOINT, reason="refused") <= 1.25


def test_a_success_writes_nothing_when_nothing_is_wrong(journal: Journal) -> None:
    journal.freeze()
    take(requests=60)
    before = journal.rows("SELECT xmin::text, * FROM endpoint")
    endpoints.clear(ENDPOINT)
    assert journal.rows("SELECT xmin::text, * FROM endpoint") == before


def test_requests_are_spaced_over_the_minute(journal: Journal) -> None:
    journal.freeze()
    assert [take(requests=60) for _ in range(4)] == [0, 1, 2, 3]
    journal.advance(10)
    assert [take(requests=60) for _ in range(2)] == [0, 1]


def test_a_second_of_the_allowance_may_leave_at_once(journal: Journal) -> None:
    journal.freeze()
    waits = [take(requests=600) for _ in range(12)]
    assert waits[:10] == [0] * 10
    assert waits[10:] == pytest.approx([0.1, 0.2])


def test_a_queue_that_is_too_long_is_not_joined(journal: Journal) -> None:
    journal.freeze()
    take(requests=6)
    for _ in range(3):
        assert take(requests=6, at_most=5) == pytest.approx(10)
    journal.advance(6)
    assert take(requests=6, at_most=5) == pytest.approx(4)


def test_tokens_are_paid_off_over_the_minute(journal: Journal) -> None:
    journal.freeze()
    assert take(tokens=6000, amount=1000) == 0
    assert take(tokens=6000, amount=100) == pytest.approx(9)
    assert take(tokens=6000, amount=100, at_most=9) == pytest.approx(10)
    journal.advance(9)
    assert take(tokens=6000, amount=100) == pytest.approx(1)


def test_a_request_of_more_than_a_minutes_tokens_has_its_turn(journal: Journal) -> None:
    journal.freeze()
    assert take(tokens=600, amount=1200) == 0
    assert take(tokens=600, amount=1, at_most=600) == pytest.approx(119)


def test_both_limits_hold(journal: Journal) -> None:
    journal.freeze()
    assert take(requests=60, tokens=6000, amount=500) == 0
    assert take(requests=60, tokens=6000, amount=500) == pytest.approx(4)
    journal.advance(60)
    assert [take(requests=60, tokens=6000) for _ in range(2)] == [0, 1]


def test_places_are_handed_out_once_however_many_ask(journal: Journal) -> None:
    journal.freeze()
    waits = at_once(*[lambda: take(requests=60)] * 12)
    assert sorted(waits) == pytest.approx(list(range(12)))
    (row,) = journal.rows("SELECT * FROM endpoint")
    assert row["level_at"] - journal.one("SELECT onward_now()") == timedelta(0)


def test_a_limit_that_is_lifted_leaves_no_queue(journal: Journal) -> None:
    journal.freeze()
    for _ in range(5):
        take(requests=6)
    assert take(tokens=600) == 0
    assert take(requests=6) == 0
    assert journal.rows("SELECT endpoint FROM endpoint") == [{"endpoint": ENDPOINT}]
