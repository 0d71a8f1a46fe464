"""Whole passes of the sweep over the real journal, publishing to a real broker."""

from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery
from psycopg import sql

from models.journal import losing, reads, workers
from models.journal.errors import JournalUnavailable
from models.settings import settings
from recovery import sweep, wake
from recovery.sweep import SET_ASIDE, SWEEP_LOCK, Swept, sweep_once
from tests.support.broker import publisher, queued
from tests.support.journal import Journal
from tests.support.meter import meter
from tests.support.threads import aside, at_once

MANY = 2000


@pytest.fixture
def app(broker_url: str) -> Iterator[Celery]:
    with publisher(broker_url) as app:
        yield app


def make_stale(journal: Journal, count: int, *, hold: str | None = None) -> None:
    """Runs whose only step is running under a lease that is over."""
    journal.look.execute(
        """
        WITH made AS (
            INSERT INTO run (run_id, input, input_digest, workflow, version, interface_digest, code_digest,
                             state, step_count, hold)
            SELECT 'run-' || lpad(n::text, 5, '0'), '{}', 'd', 'toy', '1', 'd', 'd', 'running', 1, %(hold)s
            FROM generate_series(1, %(count)s) n RETURNING run_id
        ), planned AS (
            INSERT INTO plan (run_id, step_key, position, step_name, queue, kind, branch, input, arguments)
            SELECT run_id, 'a', 0, 'toy.work', 'steps.toy@1', 'step', '0', 'none', '{}' FROM made
        )
        INSERT INTO live (run_id, branch, step_key, queue, state, attempt, token, owner, worker,
                          lease_expires_at)
        SELECT run_id, '0', 'a', 'steps.toy@1', 'running', 1, 1, 'start-1.' || run_id, 'worker-1',
               '2000-01-01Z'
        FROM made""",
        {"count": count, "hold": hold},
    )


def once_each(journal: Journal, count: int) -> None:
    """Every one of them was lost once and requeued once (I6)."""
    events = journal.rows(
        "SELECT kind, count(*) AS n, count(DISTINCT (run_id, token)) AS runs FROM event GROUP BY kind"
    )
    assert {row["kind"]: (row["n"], row["runs"]) for row in events} == {
        "lease_expired": (count, count),
        "step_requeued": (count, count),
    }
    assert journal.one("SELECT count(*) FROM attempt WHERE outcome = 'expired'") == count
    assert journal.one("SELECT count(*) FROM live WHERE state = 'pending' AND lost = 1") == count


def test_thousands_of_stale_rows_take_a_few_statements_per_batch(
    journal: Journal, app: Celery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONWARD_PUBLISH_WINDOW", "100")
    settings.cache_clear()
    make_stale(journal, MANY)
    batches = MANY // settings().sweep_batch
    with meter(journal) as spent:
        swept = sweep_once(app)
    assert swept is not None
    assert (swept.expired, swept.requeued, swept.isolated) == (MANY, MANY, 0)
    assert (swept.published, queued(app)) == (100, 100)
    once_each(journal, MANY)
    assert spent.statements <= 5 * batches + 30
    assert spent.durable <= 2 * batches + 5


def test_sweeps_at_once_handle_each_row_once(journal: Journal, app: Celery) -> None:
    make_stale(journal, 300)
    swept = at_once(*(lambda: sweep_once(app) for _ in range(3)))
    while sweep_once(app) is None:
        pass
    assert any(swept)
    once_each(journal, 300)
    assert queued(app) == 300


def test_the_fast_path_and_the_sweep_handle_each_row_once(journal: Journal, app: Celery) -> None:
    make_stale(journal, 100)
    losing.expire(losing.expired(limit=1000))
    run_ids = [row["run_id"] for row in journal.rows("SELECT run_id FROM run")]

    def fast_path() -> None:
        for run_id in reversed(run_ids):
            sweep.recover_run(app, run_id)

    at_once(fast_path, lambda: sweep_once(app), fast_path)
    once_each(journal, 100)
    assert queued(app) == 100


def test_a_second_sweep_stands_back_while_one_is_at_it(journal: Journal, app: Celery) -> None:
    assert workers.alone(SWEEP_LOCK)
    assert workers.alone(wake.WAKE_LOCK)
    with aside(lambda: (sweep_once(app), wake.wake_once(app))) as other:
        assert other.result() == (None, None)
    assert reads.pass_age("sweep") is None
    workers.release(SWEEP_LOCK)
    workers.release(wake.WAKE_LOCK)
    with aside(lambda: (sweep_once(app), wake.wake_once(app))) as other:
        assert other.result() == (Swept(), 0)
    assert reads.pass_age("sweep") is not None


def refuse(journal: Journal, run_id: str, when: str, *, table: str = "live") -> None:
    """Make the database refuse one row in the middle of a batch."""
    journal.look.execute(
        """
        CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'refused for a test'; END $$"""
    )
    journal.look.execute(
        sql.SQL(
            "CREATE TRIGGER refuse BEFORE UPDATE OR DELETE ON {} FOR EACH ROW"
            " WHEN (OLD.run_id = {} AND {}) EXECUTE FUNCTION refuse()"
        ).format(sql.Identifier(table), sql.Literal(run_id), sql.SQL(when))
    )


@pytest.mark.parametrize("state", ["running", "unknown"])
def test_a_row_at_fault_is_set_aside_and_stops_no_other(
    journal: Journal, app: Celery, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    monkeypatch.setenv("ONWARD_SWEEP_BATCH", "20")
    settings.cache_clear()
    make_stale(journal, 50)
    refuse(journal, "run-00007", f"OLD.state = '{state}'")
    swept = sweep_once(app)
    assert swept is not None
    assert (swept.requeued, swept.isolated, queued(app)) == (49, 1, 49)
    assert journal.live("run-00007")["state"] == state
    assert reads.pass_age("sweep") is not None

    journal.look.execute("DROP TRIGGER refuse ON live")
    swept = sweep_once(app)
    assert swept is not None
    assert (swept.requeued, swept.isolated) == (1, 0)
    once_each(journal, 50)


def test_a_row_at_fault_shows_why_and_is_left_alone_for_a_while(
    journal: Journal, app: Celery
) -> None:
    make_stale(journal, 3)
    journal.freeze()
    journal.look.execute(
        """
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'no ink'; END $$;
        CREATE TRIGGER refuse BEFORE UPDATE ON live FOR EACH ROW
            WHEN (OLD.run_id = 'run-00001' AND NEW.state = 'pending') EXECUTE FUNCTION refuse()"""
    )
    swept = sweep_once(app)
    assert swept is not None
    assert (swept.requeued, swept.isolated) == (2, 1)
    assert "no ink" in str(journal.live("run-00001")["error"])
    swept = sweep_once(app)
    assert swept is not None
    assert swept.isolated == 0, "not at every pass"
    journal.look.execute("DROP TRIGGER refuse ON live")
    journal.advance(SET_ASIDE + 1)
    swept = sweep_once(app)
    assert swept is not None
    assert swept.requeued == 1


def test_rows_at_fault_do_not_hide_those_behind_them(
    journal: Journal, app: Celery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONWARD_SWEEP_BATCH", "1")
    settings.cache_clear()
    make_stale(journal, 3)
    refuse(journal, "run-00001", "OLD.state = 'unknown'")
    swept = sweep_once(app)
    assert swept is not None
    assert (swept.requeued, swept.isolated) == (2, 1)


def test_a_run_that_cannot_be_settled_stops_no_other(journal: Journal, app: Celery) -> None:
    make_stale(journal, 5, hold="cancel")
    refuse(journal, "run-00002", "true", table="run")
    swept = sweep_once(app)
    assert swept is not None
    assert (swept.settled, swept.isolated) == (4, 1)


def test_an_unreachable_journal_is_nobodys_fault(journal: Journal, app: Celery) -> None:
    def act(part: Any) -> None:
        raise JournalUnavailable("gone")

    with pytest.raises(JournalUnavailable):
        sweep.in_halves([1, 2, 3], act)


def test_halving_sets_aside_exactly_the_rows_at_fault() -> None:
    done: list[int] = []

    def act(part: Any) -> None:
        if {3, 4, 11} & {*part}:
            raise ValueError("no")
        done.extend(part)

    assert sweep.in_halves(range(16), act) == 3
    assert sorted(done) == sorted({*range(16)} - {3, 4, 11})
    assert sweep.in_halves([], act) == 0


def test_recovering_one_run_leaves_the_others_to_the_sweep(journal: Journal, app: Celery) -> None:
    make_stale(journal, 3)
    losing.expire(losing.expired(limit=10))
    swept = sweep.recover_run(app, "run-00002")
    assert (swept.requeued, swept.published) == (1, 1)
    states = journal.rows("SELECT state FROM live ORDER BY run_id")
    assert [row["state"] for row in states] == ["unknown", "pending", "unknown"]
