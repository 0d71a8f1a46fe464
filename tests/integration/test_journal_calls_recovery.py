"""What recovery does about calls whose owner is gone, and what people are shown of them."""

from collections.abc import Iterator
from decimal import Decimal

import pytest
from celery import Celery

from models.journal import endpoints, failing, metrics
from models.journal.values import Claimed
from models.settings import settings
from recovery import watch
from recovery.sweep import sweep_once
from recovery.verify import verify
from tests.support.broker import publisher
from tests.support.calling import (
    ENDPOINT,
    amounts,
    asked,
    at_position,
    charge,
    charge_strays,
    hold,
    record,
    reservation,
)
from tests.support.intents import again, at_work
from tests.support.journal import Journal


@pytest.fixture
def app(broker_url: str) -> Iterator[Celery]:
    with publisher(broker_url) as app:
        yield app


def in_the_air(journal: Journal) -> Claimed:
    """A step that has asked a model and fallen silent; nobody has noticed yet."""
    journal.freeze()
    claimed = at_work()
    hold(claimed)
    journal.advance(31)
    return claimed


def figures() -> dict[str, dict[tuple[str, ...], float]]:
    return {metric.name: dict(metrics.read(metric)) for metric in metrics.METRICS}


def test_a_sweep_charges_what_a_lost_owner_had_under_way(journal: Journal, app: Celery) -> None:
    claimed = in_the_air(journal)
    swept = sweep_once(app)
    assert swept is not None
    assert (swept.expired, swept.requeued, swept.charged) == (1, 1, 1)
    assert "charged 1" in str(swept)
    assert amounts(journal, claimed.run_id) == ((0, 0, 0), (100, Decimal("0.10"), 1))
    again_swept = sweep_once(app)
    assert again_swept is not None
    assert again_swept.charged == 0


def test_a_sweep_charges_in_batches(
    journal: Journal, app: Celery, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed = in_the_air(journal)
    journal.look.execute(
        "INSERT INTO hold SELECT run_id, step_key || n, generation, scope, position, token, send, wallet_id,"
        " model, tokens, cost, made_at FROM hold, generate_series(1, 6) n"
    )
    journal.look.execute("UPDATE wallet SET held_tokens = 700, held_cost = 0.70, held_calls = 7")
    monkeypatch.setenv("ONWARD_SWEEP_BATCH", "3")
    settings.cache_clear()
    swept = sweep_once(app)
    assert swept is not None
    assert swept.charged == 7
    assert amounts(journal, claimed.run_id) == ((0, 0, 0), (700, Decimal("0.70"), 7))


def test_a_hold_that_cannot_be_charged_stops_no_other(journal: Journal, app: Celery) -> None:
    journal.freeze()
    claims = [at_work() for _ in range(5)]
    for claimed in claims:
        hold(claimed)
    broken = claims[2].run_id
    journal.look.execute("UPDATE wallet SET held_tokens = 0 WHERE wallet_id = %s", (broken,))
    journal.advance(31)
    swept = sweep_once(app)
    assert swept is not None
    assert (swept.requeued, swept.charged, swept.isolated) == (5, 4, 1)
    held = journal.rows("SELECT run_id FROM hold")
    assert [row["run_id"] for row in held] == [broken]


def test_recovery_costs_are_told_apart(journal: Journal) -> None:
    journal.freeze()
    first = at_work()
    hold(first)
    record(first, asked(), reservation=reservation(), charge=charge())
    hold(first, reservation(at_position(1)))
    second = again(journal, first)
    hold(second, reservation(at_position(1)))
    record(second, asked(at_position(1), state="length"))
    found = figures()
    assert found["onward_spent_tokens_total"] == {(): 12}
    assert found["onward_recovery_extra_tokens_total"] == {(): 0}
    assert found["onward_reserved_cost_dollars"] == {(): 0.2}
    failing.postpone(
        second, worker="w", error_type="call_postponed", error=f"waits for {ENDPOINT}", delay=60.0
    )
    charge_strays(10)
    found = figures()
    assert found["onward_recovery_extra_tokens_total"] == {(): 200}
    assert found["onward_recovery_extra_cost_dollars_total"] == {(): 0.2}
    assert found["onward_recovery_extra_seconds_total"] == {(): 31}
    assert found["onward_spent_cost_dollars_total"] == {(): 0.22}
    assert found["onward_calls_total"] == {("model", "complete"): 1, ("model", "length"): 1}


def test_an_answer_that_was_changed_behind_the_journals_back_is_found(journal: Journal) -> None:
    claimed = at_work()
    record(claimed, asked(answer="gr\u00fc\u00dfe"))
    record(claimed, asked(at_position(1, "/2")))
    assert [found for found in verify(claimed.run_id) if found.word == "answer_changed"] == []
    journal.look.execute("ALTER TABLE recorded_call DISABLE TRIGGER recorded_call_insert_only")
    journal.look.execute("UPDATE recorded_call SET answer = 'other' WHERE scope = '/2'")
    (found,) = (one for one in verify(claimed.run_id) if one.word == "answer_changed")
    assert found.where == "a"
    assert "position 1 of scope '/2'" in found.sentence


def test_an_endpoint_that_is_left_alone_shows_for_how_long(journal: Journal) -> None:
    journal.freeze()
    endpoints.take(ENDPOINT, tokens=1, requests_per_minute=60, tokens_per_minute=None, at_most=1)
    assert figures()["onward_endpoint_wait_seconds"] == {}
    endpoints.pause(ENDPOINT, seconds=20, spread=0, reason="429")
    journal.advance(5)
    assert figures()["onward_endpoint_wait_seconds"] == {(ENDPOINT,): 15}


def test_a_step_that_waits_for_an_endpoint_says_so(journal: Journal) -> None:
    claimed = at_work()
    failing.postpone(
        claimed, worker="w", error_type="call_postponed",
        error=f"{ENDPOINT} is unreachable, since 2030-01-01 00:00:00Z", delay=60.0,
    )  # fmt: skip
    reason = watch.why(claimed.run_id)
    assert (reason.word, reason.stuck) == ("endpoint", False)
    assert f"{ENDPOINT} is unreachable, since 2030-01-01 00:00:00Z" in reason.sentence
