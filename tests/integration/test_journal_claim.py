"""Claiming: what it counts, and everything that keeps it from happening."""

from typing import Any

import pytest

from models.journal import runs
from models.settings import settings
from tasks import group
from tests.support.journal import Journal, Worker, at, blind, paced, row_of, submit_run
from tests.support.threads import at_once


def test_a_claim_counts_before_user_code_runs(journal: Journal) -> None:
    journal.freeze()
    run_id = submit_run(row_of("a", "b"), priority=3)
    before = journal.live(run_id)

    claimed = Worker(start_id="start-9").take(run_id, "a")

    live = journal.live(run_id)
    assert (live["state"], live["attempt"], live["token"]) == ("running", 1, 1)
    assert live["revision"] == before["revision"] + 1
    assert live["owner"] == claimed.owner
    assert claimed.owner.startswith("start-9.")
    assert live["claimed_at"] == claimed.claimed_at == journal.one("SELECT onward_now()")
    assert (live["lease_expires_at"] - live["claimed_at"]).total_seconds() == settings().lease_ttl
    assert (live["worker"], live["carrier"]) == ("worker-1", f"{run_id}:a")
    assert (live["pid"], live["pid_started"]) == (4242, 4243)
    assert (claimed.token, claimed.attempt, claimed.failures, claimed.crashes) == (1, 1, 0, 0)


def test_the_first_claim_starts_the_run_and_later_ones_leave_its_start(journal: Journal) -> None:
    journal.freeze()
    run_id = submit_run(row_of("a", "b"))
    assert (journal.run(run_id)["state"], journal.run(run_id)["started_at"]) == ("pending", None)

    claimed = Worker().take(run_id, "a")
    started = journal.run(run_id)
    journal.advance(5)
    Worker().complete(claimed)
    Worker().take(run_id, "b")

    assert started["state"] == "running"
    assert started["started_at"] == claimed.claimed_at
    assert journal.run(run_id) == started


def test_a_claim_returns_all_that_running_the_step_takes(journal: Journal) -> None:
    run_id = submit_run(row_of("a", "b") | group(at("c"), at("d")) | at("e"), batch_id=None)
    worker = Worker()
    first = worker.take(run_id, "a")
    assert (first.input_kind, first.piped, first.prev_key) == ("none", None, None)
    assert (first.step_name, first.queue) == ("toy.work", "steps.toy@1")
    assert first.after is not None
    assert (first.after.step_name, first.after.queue, first.fork) == (
        "toy.work",
        "steps.toy@1",
        None,
    )

    worker.complete(first, '["of a"]')
    second = worker.take(run_id, "b")
    assert (second.input_kind, second.piped, second.prev_key) == ("previous", '["of a"]', "a")
    assert (second.next_key, second.fork) == ("e", ["c", "d"])

    worker.complete(second, '["of b"]')
    member = worker.take(run_id, "d", "0/1.1")
    assert (member.piped, member.joins, member.join_index) == ('["of b"]', "e", 1)
    assert member.after is not None
    assert (member.next_key, member.after.step_name) == (None, "toy.work")


def test_a_claim_tells_what_follows(journal: Journal) -> None:
    run_id = submit_run(at("a") | at("b", paced) | at("c", blind, queue="other"))
    worker = Worker()
    first = worker.take(run_id, "a")
    assert first.after is not None
    assert (first.after.rate_limit, first.after.untracked, first.untracked) == (10.0, False, False)
    worker.complete(first)
    second = worker.take(run_id, "b")
    assert second.after is not None
    assert (second.after.queue, second.after.untracked) == ("other.toy@1", True)
    worker.complete(second)
    assert worker.take(run_id, "c").untracked
    assert journal.live(run_id)["untracked"]


LEASED = {"owner": "start-0.x", "lease_expires_at": "9999-01-01Z"}


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({"state": "running", **LEASED}, id="running"),
        pytest.param({"state": "waiting"}, id="waiting"),
        pytest.param({"state": "unknown"}, id="unknown"),
        pytest.param({"state": "failed"}, id="failed"),
        pytest.param({"missing": 1}, id="a member of its group is missing"),
        pytest.param({"due_at": "9999-01-01Z"}, id="not due"),
        pytest.param({"step_key": "b"}, id="the branch has moved on"),
    ],
)
def test_a_step_that_is_not_ready_is_not_claimed(journal: Journal, values: dict[str, Any]) -> None:
    run_id = submit_run(row_of("a", "b"))
    journal.make(run_id, **values)
    before = journal.image()
    assert Worker().claim(run_id, "a") is None
    assert journal.image() == before


@pytest.mark.parametrize("hold", ["cancel", "failed"])
def test_a_held_run_is_not_claimed(journal: Journal, hold: str) -> None:
    run_id = submit_run(row_of("a"))
    journal.look.execute("UPDATE run SET hold = %s", (hold,))
    before = journal.image()
    assert Worker().claim(run_id, "a") is None
    assert journal.image() == before


def test_a_step_is_claimed_from_the_moment_it_is_due(journal: Journal) -> None:
    journal.freeze()
    run_id = submit_run(row_of("a"))
    Worker().retry(Worker().take(run_id, "a"), delay=30)
    journal.advance(29.9)
    assert Worker().claim(run_id, "a") is None
    journal.advance(0.1)
    assert Worker().claim(run_id, "a") is not None


def test_only_a_fitting_version_claims(journal: Journal) -> None:
    run_id = submit_run(row_of("a"))
    worker = Worker()
    assert worker.claim(run_id, "a", versions=("2", "3")) is None
    assert worker.claim(run_id, "a", versions=()) is None
    assert worker.claim(run_id, "a", workflow="other", versions=("1",)) is None
    assert worker.claim(run_id, "a", versions=("2", "1")) is not None


def test_a_built_in_step_fits_any_version(journal: Journal) -> None:
    assert Worker().claim(submit_run(row_of("a")), "a", workflow=None, versions=()) is not None


def test_only_the_named_branch_of_the_named_run_is_claimed(journal: Journal) -> None:
    run_id, other = (submit_run(group(at("a"), at("b")) | at("c")) for _ in range(2))
    untouched = journal.live(other, "0/1.0"), journal.live(run_id, "0/1.1")
    assert Worker().claim(run_id, "a", "0/1.1") is None
    assert Worker().claim("run-none", "a", "0/1.0") is None
    Worker().take(run_id, "a", "0/1.0")
    assert (journal.live(other, "0/1.0"), journal.live(run_id, "0/1.1")) == untouched


def test_of_many_claims_one_wins(journal: Journal) -> None:
    run_id = submit_run(row_of("a"))
    won = at_once(*(lambda n=n: Worker(f"worker-{n}").claim(run_id, "a") for n in range(8)))
    (claimed,) = filter(None, won)
    live = journal.live(run_id)
    assert (live["token"], live["attempt"], live["owner"]) == (1, 1, claimed.owner)


def test_members_claimed_at_once_start_their_run_once(journal: Journal) -> None:
    run_id = submit_run(group(*(at(f"m{n}") for n in range(6))) | at("end"))
    claims = at_once(*(lambda n=n: Worker().take(run_id, f"m{n}", f"0/1.{n}") for n in range(6)))
    assert len({claimed.owner for claimed in claims}) == 6
    run = journal.run(run_id)
    assert (run["state"], run["revision"]) == ("running", 1)


def test_a_claim_keeps_what_was_counted_before(journal: Journal) -> None:
    run_id = submit_run(row_of("a"))
    worker = Worker()
    worker.retry(worker.take(run_id, "a"))
    worker.interrupt(worker.take(run_id, "a"), crashed=True)
    journal.make(run_id, state="pending", pardoned_failures=1, lost=4, block_reason="no_worker")
    claimed = worker.take(run_id, "a")
    assert (claimed.attempt, claimed.token) == (3, 3)
    assert (claimed.failures, claimed.crashes, claimed.pardoned_failures) == (1, 5, 1)
    assert journal.live(run_id)["block_reason"] is None


def test_a_run_that_goes_on_is_not_started_again_after_a_block(journal: Journal) -> None:
    run_id = submit_run(group(at("a"), at("b")) | at("c"))
    Worker().take(run_id, "a", "0/1.0")
    journal.look.execute("UPDATE run SET state = 'blocked'")
    Worker().take(run_id, "b", "0/1.1")
    assert journal.run(run_id)["state"] == "blocked"


def test_cancel_keeps_the_next_claim_away(journal: Journal) -> None:
    run_id = submit_run(row_of("a", "b"))
    worker = Worker()
    claimed = worker.take(run_id, "a")
    runs.cancel(run_id, by="ada", reason="changed my mind", cancellation_id="c-1")
    worker.complete(claimed)
    assert worker.claim(run_id, "b") is None
