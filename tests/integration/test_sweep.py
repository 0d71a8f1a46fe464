"""Whole passes of the sweep over the real journal, publishing to a real broker."""

from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery
from psycopg import sql

from models.journal import reads, rescue, runs, workers
from models.settings import settings
from recovery import sweep, wake
from recovery.sweep import SWEEP_LOCK, Swept, sweep_once
from tasks import group
from tests.support.journal import Journal, Worker, at, blind, row_of, submit_run
from tests.support.meter import meter
from tests.support.threads import aside, at_once

MANY = 2000


@pytest.fixture
def app(broker_url: str) -> Iterator[Celery]:
    with Celery("sweep-test", broker=broker_url, set_as_current=False) as app:
        yield app


def queued(app: Celery, queue: str = "steps.toy@1") -> int:
    """Messages in the broker."""
    with app.connection_for_read() as connection:
        return int(connection.default_channel.client.llen(queue))


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
    assert spent.statements <= 5 * batches + 25
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
    rescue.expire(rescue.expired(limit=1000))
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
    from models.journal.errors import JournalUnavailable  # noqa: PLC0415

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


def test_an_empty_pass_does_nothing_and_is_recorded(journal: Journal, app: Celery) -> None:
    before = journal.image()
    assert sweep_once(app) == Swept()
    assert journal.image() == before
    assert journal.one("SELECT detail FROM pass") == "nothing to do"


def test_a_step_that_loses_owner_after_owner_waits_longer_and_is_then_blocked(
    journal: Journal, app: Celery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONWARD_LOST_LIMIT", "4")
    settings.cache_clear()
    journal.freeze()
    run_id = submit_run(row_of("a"))
    waits = []
    for _ in range(3):
        Worker().take(run_id, "a")
        journal.advance(31)
        sweep_once(app)
        waited = journal.live(run_id)["due_at"] - journal.one("SELECT onward_now()")
        waits.append(waited.total_seconds())
        journal.advance(waits[-1])
    assert waits == [0.0, 1.0, 2.0]
    Worker().take(run_id, "a")
    journal.advance(31)
    swept = sweep_once(app)
    assert swept is not None
    assert swept.blocked == 1
    run = journal.run(run_id)
    assert (run["state"], run["reason"]) == ("blocked", "poison_step")
    assert "lost 4 owners" in run["detail"]
    assert journal.live(run_id)["state"] == "failed"
    assert sweep_once(app) == Swept()

    runs.send_back(run_id, by="ada")
    assert Worker().take(run_id, "a").attempt == 5
    journal.advance(31)
    swept = sweep_once(app)
    assert swept is not None
    assert swept.requeued == 1


def test_an_untracked_step_is_blocked_and_never_repeated(journal: Journal, app: Celery) -> None:
    journal.freeze()
    run_id = submit_run(at("a", blind))
    Worker().take(run_id, "a")
    journal.advance(31)
    for blocked in (1, 0):
        swept = sweep_once(app)
        assert swept is not None
        assert (swept.blocked, swept.requeued, swept.published) == (blocked, 0, 0)
    assert journal.run(run_id)["reason"] == "untracked_step"
    assert journal.live(run_id)["state"] == "unknown"
    assert journal.events(run_id) == ["lease_expired", "run_blocked"]


def test_waiting_steps_are_woken_and_published(journal: Journal, app: Celery) -> None:
    run_id = submit_run(row_of("a"))
    journal.make(run_id, state="waiting", due_at="2000-01-01Z")
    swept = sweep_once(app)
    assert swept is not None
    assert (swept.woken, swept.published, queued(app)) == (1, 1, 1)


def test_a_cancelled_run_ends_once_nothing_of_it_is_in_the_air(
    journal: Journal, app: Celery
) -> None:
    journal.freeze()
    members = (at("m0"), at("m1"), at("m2", blind))
    run_id = submit_run(at("a") | group(*members) | at("join"))
    worker = Worker()
    worker.do(run_id, "a")
    running = worker.take(run_id, "m1", "0/1.1")
    worker.interrupt(worker.take(run_id, "m2", "0/1.2"))
    runs.cancel(run_id, by="ada", reason="enough", cancellation_id="c-1")

    swept = sweep_once(app)
    assert swept is not None
    assert (swept.settled, journal.run(run_id)["state"]) == (0, "running")
    assert journal.branches(run_id) == {"0/1.1"}
    worker.complete(running)
    swept = sweep_once(app)
    assert swept is not None
    assert (swept.settled, journal.run(run_id)["state"]) == (1, "cancelled")
    assert journal.states(run_id) == {
        "a": "completed", "m0": "cancelled", "m1": "completed", "m2": "cancelled",
        "join": "not_reached",
    }  # fmt: skip


def test_a_failed_run_is_settled_after_its_last_sibling_was_lost(
    journal: Journal, app: Celery
) -> None:
    journal.freeze()
    run_id = submit_run(group(at("m0"), at("m1")) | at("join"))
    worker = Worker()
    worker.take(run_id, "m1", "0/1.1")
    worker.fail(worker.take(run_id, "m0", "0/1.0"))
    assert sweep_once(app) == Swept()
    journal.advance(31)
    swept = sweep_once(app)
    assert swept is not None
    assert (swept.expired, swept.settled, swept.published) == (1, 1, 0)
    assert journal.run(run_id)["state"] == "failed"


def test_what_is_due_is_published_once_per_grace(journal: Journal, app: Celery) -> None:
    journal.freeze()
    submit_run(row_of("a"))
    assert wake.wake_once(app) == 0
    journal.advance(settings().publish_grace)
    assert [wake.wake_once(app), wake.wake_once(app), queued(app)] == [1, 0, 1]


def test_recovering_one_run_leaves_the_others_to_the_sweep(journal: Journal, app: Celery) -> None:
    make_stale(journal, 3)
    rescue.expire(rescue.expired(limit=10))
    swept = sweep.recover_run(app, "run-00002")
    assert (swept.requeued, swept.published) == (1, 1)
    states = journal.rows("SELECT state FROM live ORDER BY run_id")
    assert [row["state"] for row in states] == ["unknown", "pending", "unknown"]
