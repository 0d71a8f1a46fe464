"""Steps whose owner is gone: each is lost once, with one attempt row and one event, however it is noticed."""

import pytest

from models.journal import losing, rescue, steps
from models.journal.values import Lease
from tests.support.journal import Journal, Worker, row_of, submit_run, wrong_refs
from tests.support.threads import at_once


def expire(*, limit: int) -> int:
    return losing.expire(losing.expired(limit=limit))


def test_a_lease_is_over_at_its_end_and_not_before(journal: Journal) -> None:
    journal.freeze()
    run_id = submit_run(row_of("a"))
    claimed = Worker().take(run_id, "a")
    journal.advance(29.9)
    assert expire(limit=10) == 0
    journal.advance(0.1)
    assert expire(limit=10) == 1
    assert expire(limit=10) == 0

    live, now = journal.live(run_id), journal.one("SELECT onward_now()")
    assert (live["state"], live["owner"], live["lease_expires_at"]) == ("unknown", None, None)
    lost_process = (live["pid"], live["pid_started"])
    assert (live["carrier"], lost_process) == (None, (4242, 4243)), (
        "it may be asked whether it lives"
    )
    assert (live["lost"], live["crashes"], live["failures"]) == (1, 0, 0)
    assert (live["token"], live["attempt"], live["revision"]) == (1, 1, 2)
    assert (live["error_type"], live["due_at"]) == ("expired", now)
    assert journal.attempts(run_id) == [("a", 1, "expired")]
    (attempt,) = journal.rows("SELECT * FROM attempt")
    assert (attempt["owner"], attempt["worker"]) == (claimed.owner, "worker-1")
    assert attempt["started_at"] == claimed.claimed_at
    assert journal.events(run_id) == ["lease_expired"]
    (event,) = journal.rows("SELECT * FROM event")
    assert (event["step_key"], event["token"]) == ("a", 1)
    assert event["detail"] == "the owner fell silent on worker-1"


def test_a_step_that_changed_since_it_was_seen_is_left_alone(journal: Journal) -> None:
    journal.freeze()
    run_ids = [submit_run(row_of("a")) for _ in range(3)]
    claims = [Worker().take(run_id, "a") for run_id in run_ids]
    journal.advance(31)
    seen = losing.expired(limit=10)
    assert steps.renew([claims[0].lease], ttl=30)
    for wrong_ref in wrong_refs(seen[1]):
        assert losing.expire([wrong_ref]) == 0
    with journal.holding("SELECT 1 FROM live WHERE run_id = %s FOR UPDATE", run_ids[2]) as other:
        assert losing.expire(seen) == 1
        assert other.blocked == []
    states = [journal.live(run_id)["state"] for run_id in run_ids]
    assert states == ["running", "unknown", "running"]


def test_a_lease_that_is_not_over_is_not_taken_whoever_asks(journal: Journal) -> None:
    journal.freeze()
    run_id = submit_run(row_of("a"))
    Worker().take(run_id, "a")
    journal.advance(29)
    before = journal.image()
    assert losing.expire([journal.ref(run_id)]) == 0
    assert journal.image() == before


def test_a_step_without_an_owner_has_no_lease_to_lose(journal: Journal) -> None:
    run_id = submit_run(row_of("a"))
    journal.make(run_id, lease_expires_at="2000-01-01Z")
    assert losing.expired(limit=10) == []
    assert losing.expire([journal.ref(run_id)]) == 0


def test_batches_go_on_from_where_the_last_one_ended(journal: Journal) -> None:
    journal.freeze()
    run_ids = sorted(submit_run(row_of("a")) for _ in range(5))
    for run_id in run_ids:
        Worker().take(run_id, "a")
    journal.advance(31)
    first = losing.expired(limit=2)
    rest = losing.expired(limit=9, after=(run_ids[1], "0"))
    assert [ref.run_id for ref in first + rest] == run_ids
    losing.expire(first + rest)
    unknown_ids = [stale.run_id for stale in rescue.unknown_steps(limit=9, after=(run_ids[2], "0"))]
    assert unknown_ids == run_ids[3:]
    journal.look.execute("UPDATE run SET hold = 'cancel'")
    journal.look.execute("UPDATE live SET state = 'pending'")
    refs = rescue.cancellable(limit=9, after=(run_ids[3], "0"))
    assert [ref.run_id for ref in refs] == run_ids[4:]
    assert rescue.held_runs(limit=9, after=run_ids[1]) == run_ids[2:]


def test_expiry_goes_in_batches(journal: Journal) -> None:
    journal.freeze()
    for _ in range(5):
        Worker().take(submit_run(row_of("a")), "a")
    journal.advance(31)
    assert [expire(limit=2) for _ in range(4)] == [2, 2, 1, 0]


def test_sweeps_at_once_lose_each_step_once(journal: Journal) -> None:
    journal.freeze()
    for _ in range(40):
        Worker().take(submit_run(row_of("a")), "a")
    journal.advance(31)
    assert sum(at_once(*(lambda: expire(limit=100) for _ in range(4)))) == 40
    assert journal.one("SELECT count(*) FROM event") == 40
    assert journal.one("SELECT count(*) FROM attempt") == 40
    assert journal.one("SELECT sum(lost) FROM live") == 40


def died(run_id: str, **changes: str) -> int:
    facts = {"task_id": f"{run_id}:a", "start_id": "start-1", "reason": "signal 9", **changes}
    return losing.mark_died(run_id, **facts)


def test_a_seen_death_counts_a_crash_once(journal: Journal) -> None:
    run_id = submit_run(row_of("a"))
    Worker().take(run_id, "a")
    assert losing.carriers(run_id, task_id=f"{run_id}:a", start_id="start-1") == [(4242, 4243)]
    assert died(run_id) == 1
    assert died(run_id) == 0
    live = journal.live(run_id)
    assert (live["state"], live["crashes"], live["lost"]) == ("unknown", 1, 0)
    assert (live["error_type"], live["error"]) == ("died", "signal 9")
    assert journal.attempts(run_id) == [("a", 1, "died")]
    assert journal.events(run_id) == ["lease_died"]
    assert losing.carriers(run_id, task_id=f"{run_id}:a", start_id="start-1") == []


@pytest.mark.parametrize(
    "changes",
    [
        {"task_id": "another task"},
        {"start_id": "start"},
        {"start_id": "start-2"},
    ],
    ids=str,
)
def test_a_death_is_of_what_that_task_of_that_start_carried(
    journal: Journal, changes: dict[str, str]
) -> None:
    run_id = submit_run(row_of("a"))
    Worker().take(run_id, "a")
    before = journal.image()
    assert died(run_id, **changes) == 0
    assert died("run-other", task_id=f"{run_id}:a") == 0
    assert journal.image() == before


def test_a_death_told_late_does_not_touch_the_successor(journal: Journal) -> None:
    journal.freeze()
    run_id = submit_run(row_of("a"))
    Worker().take(run_id, "a")
    journal.lose()
    rescue.requeue([journal.ref(run_id)], [0.0])
    Worker("worker-2", "start-2").take(run_id, "a")
    before = journal.image()
    assert died(run_id) == 0
    assert journal.image() == before


def test_a_gone_worker_loses_the_steps_of_its_dead_processes(journal: Journal) -> None:
    run_ids = [submit_run(row_of("a")) for _ in range(4)]
    gone, alive = Worker(start_id="start-1", pid=11), Worker(start_id="start-1", pid=12)
    namesake, other = Worker(start_id="start-10", pid=11), Worker(start_id="start-2", pid=11)
    for worker, run_id in zip((gone, alive, namesake, other), run_ids, strict=True):
        worker.take(run_id, "a")
    assert sorted((one.pid, one.pid_started) for one in losing.held_by("start-1")) == [
        (11, 12),
        (12, 13),
    ]
    assert losing.mark_orphaned("start-1", alive=[12], reason="start-1 is gone") == [run_ids[0]]
    states = [journal.live(run_id)["state"] for run_id in run_ids]
    assert states == ["unknown", "running", "running", "running"]
    live = journal.live(run_ids[0])
    assert (live["lost"], live["crashes"], live["error"]) == (1, 0, "start-1 is gone")
    assert losing.mark_orphaned("start-1", alive=[12], reason="again") == []


def test_a_lease_taken_over_is_told_from_the_one_before(journal: Journal) -> None:
    journal.freeze()
    run_id = submit_run(row_of("a"))
    leases: list[Lease] = []
    for round_ in range(3):
        leases.append(Worker().take(run_id, "a").lease)
        journal.lose()
        rescue.requeue([journal.ref(run_id)], [0.0])
        assert journal.events(run_id) == ["lease_expired", "step_requeued"] * (round_ + 1)
    assert [lease.token for lease in leases] == [1, 2, 3]
    assert len({lease.owner for lease in leases}) == 3
