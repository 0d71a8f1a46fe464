"""Answers that change nothing, and the book of who is alive."""

import pytest

from models.journal import reads, workers
from models.journal.reads import DUPLICATES, NotClaimed, why_not
from models.journal.workers import WorkerStart
from tasks import group
from tests.support.journal import Journal, Worker, at, row_of, submit_run
from tests.support.threads import aside

V = NotClaimed


def test_why_a_message_found_nothing_to_run(journal: Journal) -> None:
    run_id = submit_run(at("a") | group(at("m0"), at("m1")) | row_of("join", "end"))
    worker = Worker()
    assert why_not("run-none", "0", "a") is V.GONE
    assert why_not(run_id, "0", "a") is V.VERSION  # nothing else keeps it from being claimed
    claimed = worker.take(run_id, "a")
    assert why_not(run_id, "0", "a") is V.RUNNING
    worker.complete(claimed)
    assert why_not(run_id, "0", "a") is V.DONE
    assert why_not(run_id, "0", "join") is V.JOINING
    assert why_not(run_id, "0", "end") is V.MOVED
    assert why_not(run_id, "0/9.9", "m0") is V.MOVED
    worker.do(run_id, "m0", branch="0/1.0")
    assert why_not(run_id, "0/1.0", "m0") is V.DONE
    worker.retry(worker.take(run_id, "m1", "0/1.1"), delay=60)
    assert why_not(run_id, "0/1.1", "m1") is V.EARLY
    for state in ("unknown", "failed", "waiting"):
        journal.make(run_id, "0/1.1", state=state)
        assert why_not(run_id, "0/1.1", "m1") is V.STOPPED, state
    journal.look.execute("UPDATE run SET hold = 'cancel'")
    assert why_not(run_id, "0/1.1", "m1") is V.HELD


def test_what_was_known_already_counts_as_a_duplicate() -> None:
    assert {V.DONE, V.RUNNING, V.MOVED} == DUPLICATES


def test_only_what_needs_somebody_is_stuck(journal: Journal) -> None:
    over, going, plain, broken = (submit_run(row_of("a")) for _ in range(4))
    Worker().do(over, "a")
    Worker().take(going, "a")
    Worker().fail(Worker().take(broken, "a"))
    queue = journal.live(plain)["queue"]
    assert reads.stuck_rows({queue}, limit=10) == []
    shown = reads.stuck_rows({"another"}, limit=10)
    assert [(row[0], row[1], row[5], row[6]) for row in shown] == [
        (plain, "pending", "a", "pending")
    ]
    assert [row[:2] for row in reads.branch_rows(over)] == [(over, "completed")]
    assert reads.branch_rows("run-none") == []


def start(number: int, *, name: str = "worker-1", space: str = "boot:1") -> WorkerStart:
    return WorkerStart(
        start_id=f"start-{number}",
        name=name,
        host="host",
        pid=100 + number,
        pid_started=number,
        pid_space=space,
        queues=[f"steps.toy@{number}", "shared"],
        concurrency=2,
    )


def test_queues_are_served_by_workers_seen_lately(journal: Journal) -> None:
    journal.freeze()
    workers.register(start(1))
    workers.register(start(2))
    assert reads.served_queues(silent_after=40) == {"steps.toy@1", "steps.toy@2", "shared"}
    journal.advance(30)
    workers.seen("start-2")
    journal.advance(11)
    assert reads.served_queues(silent_after=40) == {"steps.toy@2", "shared"}
    workers.stopped("start-2")
    assert reads.served_queues(silent_after=40) == set()
    workers.register(start(2))
    assert reads.served_queues(silent_after=40) == {"steps.toy@2", "shared"}


def test_earlier_starts_are_those_whose_pids_mean_something_here(journal: Journal) -> None:
    workers.register(start(1))
    workers.register(start(2))
    workers.register(start(3, name="worker-2"))
    workers.register(start(4, space="boot:2"))
    workers.register(start(5))
    workers.stopped("start-5")
    found = workers.earlier_starts("worker-1", start_id="start-2", pid_space="boot:1")
    assert found == [("start-1", 101, 1)]


def test_the_age_of_a_pass_counts_from_its_end(journal: Journal) -> None:
    journal.freeze()
    assert reads.pass_age("sweep") is None
    workers.begin_pass("sweep")
    assert reads.pass_age("sweep") is None
    journal.advance(2)
    workers.end_pass("sweep", seconds=2.0, detail="requeued 3")
    journal.advance(7)
    assert reads.pass_age("sweep") == 7.0
    workers.begin_pass("sweep")
    journal.advance(1)
    assert reads.pass_age("sweep") == 8.0
    (row,) = journal.rows("SELECT * FROM pass")
    assert (row["seconds"], row["detail"]) == (2.0, "requeued 3")


@pytest.mark.parametrize("lock", [1, 2])
def test_one_connection_at_a_time_is_alone(journal: Journal, lock: int) -> None:
    assert workers.alone(lock)
    with aside(lambda: (workers.alone(lock), workers.alone(lock + 1))) as other:
        assert other.result() == (False, True)
    workers.release(lock)
    with aside(lambda: workers.alone(lock)) as other:
        assert other.result()
    assert workers.alone(lock)  # the other's connection has ended, and its lock with it
