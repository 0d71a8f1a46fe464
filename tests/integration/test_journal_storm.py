"""Everybody at once on a few runs: workers, sweeps and saboteurs in threads, until all is done."""

import random  # noqa: TID251 - seeded: each thread draws the same in every run of this test
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from models.journal import losing, publish, rescue, runs, steps
from models.journal.errors import JournalUnavailable, LeaseLost, Refused
from models.journal.values import BranchRef, Claimed
from recovery.verify import verify
from tasks import group
from tests.support.journal import Journal, Worker, at, row_of, submit_run, work
from tests.support.threads import at_once

RUNS = 5
DEADLINE = 60.0  #: seconds

SHAPE = (
    row_of("a", "b")
    | group(at("m0"), at("i") | group(at("i0"), row_of("i1", "i2")) | at("j"), at("m1"))
    | row_of("join", "end")
)


class Storm:
    """One thread's share."""

    def __init__(self, url: str, run_ids: list[str], seed: int) -> None:
        self.url = url
        self.run_ids = run_ids
        self.chance = random.Random(seed)  # noqa: S311 - a test's dice
        self.worker = Worker(f"worker-{seed}", f"start-{seed}", pid=seed)

    @contextmanager
    def until_over(self) -> Iterator[Callable[[], Journal | None]]:
        """A look at the journal for as long as some run is not completed."""
        until = time.monotonic() + DEADLINE
        journal = Journal(self.url)

        def look() -> Journal | None:
            assert time.monotonic() < until, "the runs do not come to an end"
            left = journal.one("SELECT count(*) FROM run WHERE state <> 'completed'")
            return journal if left else None

        try:
            yield look
        finally:
            journal.look.close()

    def work(self) -> None:
        """Claim whatever there is and end it in one way or another."""
        with self.until_over() as look:
            while journal := look():
                for row in journal.rows("SELECT run_id, branch, step_key FROM live"):
                    claimed = self.worker.claim(row["run_id"], row["step_key"], row["branch"])
                    if claimed is not None:
                        with suppress(LeaseLost, JournalUnavailable):
                            self.end(claimed)

    def end(self, claimed: Claimed) -> None:
        """Mostly with a result; sometimes without, sometimes not at all."""
        draw = self.chance.random()
        if draw < 0.08:
            self.worker.retry(claimed)
        elif draw < 0.12:
            self.worker.interrupt(claimed, crashed=True)
        elif draw < 0.14:
            self.worker.fail(claimed)
        elif draw < 0.2:
            pass  # the owner vanishes
        elif draw < 0.25:
            self.worker.then(claimed, work.s())
        else:
            steps.renew([claimed.lease], ttl=30)
            self.complete(claimed)
            with suppress(LeaseLost):
                self.complete(claimed)
                raise AssertionError("a result was recorded twice")

    def complete(self, claimed: Claimed) -> None:
        text = f'"{claimed.step_key} by {claimed.owner}"'
        if claimed.next_key is None or claimed.fork or self.chance.random() < 0.7:
            self.worker.complete(claimed, text)
            return
        following = self.worker.complete_and_claim(claimed, text).claimed
        if following is not None:
            self.end(following)

    def recover(self) -> None:
        """Sweeps that no lock keeps apart."""
        with self.until_over() as look:
            while look():
                losing.expire(losing.expired(limit=20))
                stale = rescue.unknown_steps(limit=20)
                refs = [BranchRef(one.run_id, one.branch, one.revision) for one in stale]
                rescue.requeue(refs, [0.0] * len(refs))
                publish.take_due(limit=20)
                for run_id in self.run_ids:
                    runs.settle(run_id)

    def sabotage(self) -> None:
        """Leases run out under their owners' hands, owners are declared gone, people retry."""
        with self.until_over() as look:
            while journal := look():
                run_id = self.chance.choice(self.run_ids)
                for branch in journal.branches(run_id):
                    if self.chance.random() < 0.3:
                        journal.look.execute(
                            "UPDATE live SET lease_expires_at = '2000-01-01Z',"
                            " revision = revision + 1"
                            " WHERE run_id = %s AND branch = %s AND owner IS NOT NULL",
                            (run_id, branch),
                        )
                losing.mark_orphaned(f"start-{self.chance.randrange(3)}", alive=[], reason="gone")
                with suppress(Refused, JournalUnavailable):
                    runs.send_back(run_id, by="ada")


def test_whatever_meets_whatever_every_run_completes_and_verifies(journal: Journal) -> None:
    run_ids = [submit_run(SHAPE) for _ in range(RUNS)]
    shares = [Storm(journal.url, run_ids, seed) for seed in range(6)]
    at_once(
        *(share.work for share in shares[:3]),
        *(share.recover for share in shares[3:5]),
        shares[5].sabotage,
    )
    assert journal.deadlocks() == 0
    for run_id in run_ids:
        assert verify(run_id) == []
        assert set(journal.states(run_id).values()) == {"completed"}
    ended = journal.one("SELECT count(*) FROM attempt")
    assert ended > RUNS  # the storm did blow
