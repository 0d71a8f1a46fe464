"""Any order of claims, results, losses, duplicates and interventions, over the real journal.

The machine plays every worker and every sweep there is, with claims that were taken over long ago among
those it writes with, and looks after each move at what may never happen.
"""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from psycopg import sql

from models.journal import losing, rescue, runs, steps
from models.journal.errors import LeaseLost, Refused
from models.journal.values import BranchRef, Claimed
from models.states import StepState, is_edge
from tasks import group
from tests.support.journal import TABLES, Journal, Worker, at, output, row_of, submit_run, work
from tests.support.machines import play

SHAPES = (
    row_of("a", "b", "c"),
    at("a") | group(at("m0"), row_of("m1", "m1b"), at("m2")) | at("join"),
    group(at("in") | group(at("i0"), row_of("i1", "i1b")) | at("inner"), at("m1"), tolerant=True)
    | row_of("join", "end"),
)
COUNTERS = ("attempt", "failures", "crashes", "lost", "token")
TAKEOVERS = {"lease_expired", "lease_died"}
Key = tuple[str, str]

picks = st.integers(0, 10**6)


class JournalMachine(RuleBasedStateMachine):
    """One run of any shape, worked on by anybody at any time."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self.journal = journal
        self.claims: list[Claimed] = []
        self.refs: list[BranchRef] = []
        self.holder: dict[Key, str] = {}  #: (run, branch) -> owner, as this machine believes
        self.tokens: dict[str, int] = {}  #: branch -> claims so far
        self.taken_over = 0
        self.grown = 0
        self.before: dict[str, dict[str, Any]] = {}
        self.kept: dict[str, dict[str, Any]] = {}
        self.run_id = ""

    @initialize(shape=st.sampled_from(SHAPES))
    def submit(self, shape: Any) -> None:
        self.run_id = submit_run(shape)

    # -- workers

    @rule(pick=picks, worker=st.sampled_from(("worker-1", "worker-2")))
    def claim(self, pick: int, worker: str) -> None:
        """A message for any branch, due or not, duplicate or not."""
        live = self.pick_live(pick)
        if live is None:
            return
        run = self.journal.run(self.run_id)
        free = live["state"] == "pending" and live["missing"] == 0 and run["hold"] is None
        free = free and live["due_at"] <= self.journal.one("SELECT onward_now()")
        claimed = Worker(worker, f"start-{worker}").claim(
            self.run_id, live["step_key"], live["branch"]
        )
        assert (claimed is not None) == free, live
        self.took(claimed)

    @precondition(lambda self: self.claims)
    @rule(pick=picks, in_place=st.booleans())
    def complete(self, pick: int, in_place: bool) -> None:
        claimed = self.pick_claim(pick)
        sticky = in_place and claimed.next_key is not None and not claimed.fork
        verb = Worker.complete_and_claim if sticky else Worker.complete
        completed = self.outcome(claimed, lambda: verb(Worker(), claimed, f'"{claimed.token}"'))
        if completed is not None:
            self.took(completed.claimed)

    @precondition(lambda self: self.claims and self.grown < 3)
    @rule(pick=picks, wide=st.booleans())
    def grow(self, pick: int, wide: bool) -> None:
        claimed = self.pick_claim(pick)
        canvas = group(work.s(), work.s()) | work.s() if wide else work.s() | work.s()
        if self.outcome(claimed, lambda: Worker().then(claimed, canvas)) is not None:
            self.grown += 1

    @precondition(lambda self: self.claims)
    @rule(pick=picks, how=st.sampled_from(("retry", "fail", "interrupt")))
    def end_without_a_result(self, pick: int, how: str) -> None:
        claimed = self.pick_claim(pick)
        self.outcome(claimed, lambda: getattr(Worker(), how)(claimed) or True)

    @precondition(lambda self: self.claims)
    @rule(pick=picks)
    def renew(self, pick: int) -> None:
        claimed = self.pick_claim(pick)
        renewed = steps.renew([claimed.lease], ttl=30)
        assert bool(renewed) == self.holds(claimed)

    @precondition(lambda self: self.claims)
    @rule(pick=picks)
    def keep_late_evidence(self, pick: int) -> None:
        claimed = self.pick_claim(pick)
        if not self.holds(claimed):
            steps.keep_evidence(claimed, output(claimed, '"late"'), worker="worker-1")

    # -- those who act from outside

    @precondition(lambda self: self.holder)
    @rule(all_of_them=st.booleans(), seconds=st.sampled_from((5.0, 31.0)))
    def let_time_pass(self, all_of_them: bool, seconds: float) -> None:
        self.journal.advance(seconds)
        stale = [ref for ref in losing.expired(limit=100) if ref.run_id == self.run_id]
        self.refs += stale
        lost = stale if all_of_them else stale[:1]
        assert losing.expire(lost) == len(lost)
        self.took_over(lost)
        assert losing.expire(lost) == 0

    @precondition(lambda self: self.claims)
    @rule(pick=picks)
    def see_a_death(self, pick: int) -> None:
        claimed = self.pick_claim(pick)
        held = self.holds(claimed)
        died = losing.mark_died(
            self.run_id,
            task_id=self.carrier(claimed.branch) if held else "none",
            start_id=claimed.owner.partition(".")[0],
            reason="signal 9",
        )
        assert died == int(held)
        if held:
            self.took_over([BranchRef(self.run_id, claimed.branch, 0)])

    @rule(old=st.booleans())
    def decide(self, old: bool) -> None:
        """Requeue what is unknown; with old revisions, nothing happens."""
        stale = rescue.unknown_steps(limit=100, run_id=self.run_id)
        now = [BranchRef(step.run_id, step.branch, step.revision) for step in stale]
        refs = [ref for ref in self.refs if ref not in now] if old else now
        assert rescue.requeue(refs, [0.0] * len(refs)) == (0 if old else len(now))
        self.refs += now

    @rule(chance=st.integers(0, 5))
    def cancel(self, chance: int) -> None:
        if chance == 0 and self.journal.run(self.run_id)["state"] != "completed":
            runs.cancel(self.run_id, by="ada", reason="no", cancellation_id=f"c-{self.run_id}")
        rescue.cancel_branches(
            [ref for ref in rescue.cancellable(limit=500) if ref.run_id == self.run_id]
        )
        runs.settle(self.run_id)

    @rule()
    def send_back(self) -> None:
        with suppress(Refused):
            runs.send_back(self.run_id, by="ada")

    # -- what may never happen

    @invariant()
    def nothing_impossible(self) -> None:
        if not self.run_id:
            return
        now = {
            row["step_key"]: row
            for row in self.journal.rows(
                "SELECT step_key, branch, state, attempt, token, failures, crashes, lost FROM steps"
                " WHERE run_id = %s",
                self.run_id,
            )
        }
        for key, after in now.items():
            self.check_step(key, self.before.get(key), after)
        self.before = now
        self.check_finished()
        self.check_tokens()
        self.check_events()

    def check_step(self, key: str, before: dict[str, Any] | None, after: dict[str, Any]) -> None:
        """Every edge is one of the table, and nothing that was counted is lost (I4)."""
        was, is_now = before["state"] if before else "not_reached", after["state"]
        if was == "not_reached":
            assert is_now in ("not_reached", "pending", "running"), (key, was, is_now)
        elif was != is_now:
            assert is_edge(StepState(was), StepState(is_now)), (key, was, is_now)
        if before is not None and was != "not_reached":
            for counter in COUNTERS:
                if after[counter] is not None:
                    assert after[counter] >= (before[counter] or 0), (key, counter)

    def check_finished(self) -> None:
        """A recorded outcome never changes (I2)."""
        found = self.journal.rows("SELECT * FROM step WHERE run_id = %s", self.run_id)
        kept = {row["step_key"]: row for row in found}
        for key, row in self.kept.items():
            assert kept.get(key) == row, key
        assert all(row["output"] is not None for row in found if row["state"] == "completed")
        self.kept = kept

    def check_tokens(self) -> None:
        """Claims raise the token by one, and nothing else does (I6)."""
        found = self.journal.rows(
            "SELECT branch, token, owner, missing FROM live WHERE run_id = %s", self.run_id
        )
        for row in found:
            assert row["token"] == self.tokens.get(row["branch"], 0), row
            assert row["owner"] == self.holder.get((self.run_id, row["branch"])), row
            assert row["missing"] >= 0

    def check_events(self) -> None:
        """Each takeover leaves one event (I6)."""
        events = self.journal.events(self.run_id)
        assert sum(kind in TAKEOVERS for kind in events) == self.taken_over

    # -- bookkeeping

    def pick_live(self, pick: int) -> dict[str, Any] | None:
        found = self.journal.rows(
            "SELECT branch, step_key, state, missing, due_at FROM live WHERE run_id = %s"
            " ORDER BY branch",
            self.run_id,
        )
        return found[pick % len(found)] if found else None

    def carrier(self, branch: str) -> str:
        found = self.journal.one(
            "SELECT carrier FROM live WHERE run_id = %s AND branch = %s", self.run_id, branch
        )
        return str(found)

    def pick_claim(self, pick: int) -> Claimed:
        """Mostly one of the latest claims: those before them are stale, and should be tried too."""
        latest = self.claims[-4:] if pick % 4 else self.claims
        return latest[pick % len(latest)]

    def holds(self, claimed: Claimed) -> bool:
        return self.holder.get((claimed.run_id, claimed.branch)) == claimed.owner

    def took(self, claimed: Claimed | None) -> None:
        if claimed is None:
            return
        self.tokens[claimed.branch] = self.tokens.get(claimed.branch, 0) + 1
        assert claimed.token == self.tokens[claimed.branch]
        self.holder[claimed.run_id, claimed.branch] = claimed.owner
        self.claims.append(claimed)

    def took_over(self, lost: list[BranchRef]) -> None:
        self.taken_over += len(lost)
        for ref in lost:
            del self.holder[ref.run_id, ref.branch]

    def outcome(self, claimed: Claimed, write: Any) -> Any:
        """An outcome by its holder, or an attempt at one by somebody displaced, who changes nothing (I7)."""
        if self.holds(claimed):
            del self.holder[claimed.run_id, claimed.branch]
            return write()
        before = self.journal.image()
        with pytest.raises(LeaseLost):
            write()
        assert self.journal.image() == before
        return None

    def teardown(self) -> None:
        with self.journal.look.transaction():
            self.journal.look.execute("SET LOCAL onward.retention = 'on'")
            for table in TABLES:
                self.journal.look.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(table)))
        super().teardown()


def test_any_order_of_anything_keeps_the_promise(journal: Journal) -> None:
    play(JournalMachine, journal, examples=60, moves=40)
