"""Locks are taken in one order: children before parents, then effects, then the run. Nobody waits in a circle."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import combinations
from typing import LiteralString

import pytest

from models.journal import (
    doubts,
    effects,
    lookups,
    loose_ends,
    losing,
    publish,
    rescue,
    resolving,
    runs,
    steps,
)
from models.journal.errors import LeaseLost, Refused
from models.journal.values import Claimed
from models.states import BlockReason
from tasks import group
from tests.support import intents
from tests.support.intents import IDEMPOTENT, at_work, intend, send
from tests.support.journal import Journal, Worker, at, row_of, submit_run
from tests.support.threads import Aside, aside
from tests.support.waiting import wait_until

#: Only who takes several locks can hold one and wait for another.
SEVERAL_ROWS = {
    "report", "report of another", "fail", "fail of another", "fail of the other member", "grow",
    "finish", "expire", "orphan", "cancel branches", "requeue", "block", "send back", "intend", "found",
    "believe absent", "look again", "ask person", "doubt step", "resolve", "left over",
}  # fmt: skip

TOUCH_THE_RUN = {"fail", "fail of another", "grow", "finish", "block", "send back"}

RUN = "run"  #: stands for the run's own row among the branches
EFFECT = "effect"  #: for that of its one effect

LOCK_LIVE: LiteralString = "SELECT 1 FROM live WHERE run_id = %s AND branch = %s FOR UPDATE"
LOCK_RUN: LiteralString = "SELECT 1 FROM run WHERE run_id = %s AND %s = 'run' FOR UPDATE"
LOCK_EFFECT: LiteralString = "SELECT 1 FROM effect WHERE run_id = %s AND %s = 'effect' FOR UPDATE"


@dataclass(frozen=True)
class Scene:
    """A run with several rows in motion, and what may happen to it right now."""

    run_id: str
    branches: tuple[str, ...]
    verbs: Mapping[str, Callable[[], object]]

    @property
    def rows(self) -> tuple[str, ...]:
        return (*self.branches, RUN)


def from_outside(journal: Journal, run_id: str, *branches: str) -> dict[str, Callable[[], object]]:
    """What everyone but the holder may do to these branches."""
    refs = [journal.ref(run_id, branch) for branch in branches]
    return {
        "cancel": lambda: runs.cancel(run_id, by="ada", reason="no", cancellation_id="c"),
        "settle": lambda: runs.settle(run_id),
        "expire": lambda: losing.expire(refs),
        "orphan": lambda: losing.mark_orphaned("start-1", alive=[], reason="gone"),
        "cancel branches": lambda: rescue.cancel_branches(refs),
        "requeue": lambda: rescue.requeue(refs, [0.0] * len(refs)),
        "block": lambda: rescue.block(refs[0], BlockReason.NO_WORKER, detail="", failed=False),
        "send back": lambda: runs.send_back(run_id, by="ada"),
        "publish": lambda: publish.take_due(limit=100, run_id=run_id),
    }


def strict(journal: Journal) -> Scene:
    """Two members of a strict group at work, and a third that waits for its turn."""
    run_id = submit_run(at("a") | group(at("m0"), at("m1"), at("m2")) | at("join"))
    worker = Worker()
    worker.do(run_id, "a")
    m0, m1 = (worker.take(run_id, f"m{n}", f"0/1.{n}") for n in range(2))
    journal.make(run_id, "0/1.1", lease_expires_at="2000-01-01Z")
    journal.make(run_id, "0/1.2", publish_at="2000-01-01Z", publications=0)
    return Scene(
        run_id,
        ("0/1.0", "0/1.1", "0/1.2", "0"),
        {
            "report": lambda: worker.complete(m0),
            "report of another": lambda: worker.complete(m1),
            "fail": lambda: worker.fail(m0),
            "grow": lambda: worker.then(m1, at("x")),
            "renew": lambda: steps.renew([m0.lease, m1.lease], ttl=30),
            "claim": lambda: worker.claim(run_id, "m2", "0/1.2"),
            "slot": lambda: steps.take_slot(run_id, "0/1.2", "m2", throttle="t", per_second=9),
            **from_outside(journal, run_id, "0/1.1", "0/1.2"),
        },
    )


def nested(journal: Journal) -> Scene:
    """A strict group inside a tolerated member: some at work, one failed to be, one to be claimed."""
    inner = at("in") | group(at("i0"), at("i1"), at("i2"), at("i3")) | at("inner")
    run_id = submit_run(at("a") | group(inner, at("m1"), tolerant=True) | at("join"))
    worker = Worker()
    worker.do(run_id, "a")
    worker.do(run_id, "in", branch="0/1.0")
    below = sorted(journal.branches(run_id) - {"0", "0/1.0", "0/1.1"})
    i0, i1 = (worker.take(run_id, f"i{n}", below[n]) for n in range(2))
    m1 = worker.take(run_id, "m1", "0/1.1")
    journal.make(run_id, below[2], state="unknown")
    return Scene(
        run_id,
        (*below, "0/1.0", "0/1.1", "0"),
        {
            "fail": lambda: worker.fail(i0),
            "fail of another": lambda: worker.fail(i1),
            "report": lambda: worker.complete(i1),
            "fail of the other member": lambda: worker.fail(m1),
            **from_outside(journal, run_id, below[2], below[3]),
        },
    )


def alone(journal: Journal) -> Scene:
    """The last step of a run at work."""
    run_id = submit_run(row_of("a", "b"))
    worker = Worker()
    worker.do(run_id, "a")
    claimed = worker.take(run_id, "b")
    journal.make(run_id, lease_expires_at="2000-01-01Z")
    outside = from_outside(journal, run_id, "0")
    return Scene(
        run_id,
        ("0",),
        {
            "finish": lambda: worker.complete(claimed),
            "fail": lambda: worker.fail(claimed),
            "grow": lambda: worker.then(claimed, group(at("x"), at("y"))),
            "died": lambda: losing.mark_died(
                run_id, task_id=f"{run_id}:b", start_id="start-1", reason="signal 9"
            ),
            **outside,
        },
    )


def in_doubt(journal: Journal, claimed: Claimed) -> dict[str, Callable[[], object]]:
    """What may happen to an effect that is being looked up."""
    key = claimed.run_id
    effects.doubt(key, claimed, error="cut", call_over=True)
    looked_up = lookups.begin(key, looker="looker-1")
    assert looked_up is not None
    return {
        "found": lambda: lookups.found(looked_up, result="1", source="lookup", said="there"),
        "believe absent": lambda: lookups.believe_absent(looked_up, said="not there"),
        "look again": lambda: lookups.look_again(looked_up, after=1.0, counts=True, said="not yet"),
        "ask person": lambda: lookups.ask_person(looked_up, said="two of them"),
        "resolve": lambda: resolving.abandon(key, by="ada", reason="gone"),
        "late answer": lambda: effects.keep_evidence(key, claimed, result="1"),
    }


def asking(journal: Journal) -> Scene:
    """A step that asks again for what an earlier attempt may have done, as that is looked up."""
    claimed = at_work()
    intent = intents.asking(claimed.run_id, IDEMPOTENT)
    send(claimed, intent)
    journal.make(claimed.run_id, state="pending", owner=None, lease_expires_at=None)
    second = Worker("worker-2", "start-2").take(claimed.run_id, "a")
    outside = in_doubt(journal, claimed)
    journal.make(claimed.run_id, lease_expires_at=journal.one("SELECT now() + interval '1 minute'"))
    return Scene(
        claimed.run_id,
        ("0", EFFECT),
        {
            "intend": lambda: intend(second, intent),
            "left over": lambda: loose_ends.left_over(second),
            "finish": lambda: Worker().complete(second),
            "fail": lambda: Worker().fail(second),
            **outside,
            **from_outside(journal, claimed.run_id, "0"),
        },
    )


def abandoned(journal: Journal) -> Scene:
    """A step whose owner is gone in the middle of an effect."""
    claimed = at_work()
    key = claimed.run_id
    send(claimed, intents.asking(key))
    losing.mark_died(
        claimed.run_id, task_id=f"{claimed.run_id}:a", start_id="start-1", reason="signal 9"
    )
    ref = journal.ref(claimed.run_id)
    return Scene(
        claimed.run_id,
        ("0", EFFECT),
        {
            "doubt step": lambda: doubts.doubt_step(ref, pause=60.0),
            "settle effect": lambda: effects.settle(key, claimed, result="1"),
            "refuse effect": lambda: effects.refuse(key, claimed, error="no"),
            "resolve": lambda: resolving.absent(key, by="ada", reason="looked"),
            **from_outside(journal, claimed.run_id, "0"),
        },
    )


SCENES = {
    "strict": strict, "nested": nested, "alone": alone, "asking": asking, "abandoned": abandoned,
}  # fmt: skip
each_scene = pytest.mark.parametrize("make", SCENES.values(), ids=SCENES.keys())


def rank(row: str) -> int:
    """Where a row stands in the order: what is deeper comes first, the run last."""
    return {RUN: 100, EFFECT: 50}.get(row, -row.count("/"))


def statement(row: str) -> LiteralString:
    return {RUN: LOCK_RUN, EFFECT: LOCK_EFFECT}.get(row, LOCK_LIVE)


def tolerantly(verb: Callable[[], object]) -> Callable[[], object]:
    def act() -> object:
        try:
            return verb()
        except (LeaseLost, Refused) as refused:
            return refused

    return act


def stands(acts: list[Aside[object]], journal: Journal) -> bool:
    """Whether every act has ended or waits for a lock."""
    waiting = journal.one(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'onward'"
        " AND datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0"
    )
    return sum(act.done for act in acts) + int(waiting) >= len(acts)


@contextmanager
def stopped_at(
    journal: Journal, scene: Scene, row: str, *verbs: str
) -> Iterator[list[Aside[object]]]:
    """These verbs under way, each as far as it gets while somebody else has this row."""
    with journal.holding(statement(row), scene.run_id, row) as blocker, ExitStack() as held:
        acts = [held.enter_context(aside(tolerantly(scene.verbs[verb]))) for verb in verbs]
        held.callback(blocker.release)  # first of all, or those who wait would never end
        wait_until(lambda: stands(acts, journal), what=f"{verbs} stop at {row}")
        yield acts


@each_scene
def test_whoever_waits_holds_nothing_that_comes_later(
    journal: Journal, make: Callable[[Journal], Scene]
) -> None:
    waited = set()
    for verb in make(journal).verbs:
        for row in make(journal).rows:
            scene = make(journal)
            with stopped_at(journal, scene, row, verb) as (act,):
                if act.done:
                    continue
                waited.add(verb)
                for later in (one for one in scene.rows if rank(one) > rank(row)):
                    free = journal.rows(statement(later) + " SKIP LOCKED", scene.run_id, later)
                    assert free, f"{verb} waits for {row} and holds {later}"
            act.result()
    assert len(waited) > 4, waited


@each_scene
def test_no_two_verbs_wait_for_each_other(
    journal: Journal, make: Callable[[Journal], Scene]
) -> None:
    verbs = [verb for verb in make(journal).verbs if verb in SEVERAL_ROWS]
    for pair in combinations(verbs, 2):
        scene = make(journal)
        row = RUN if {*pair} <= TOUCH_THE_RUN else scene.branches[-1]
        with stopped_at(journal, scene, row, *pair) as acts:
            pass
        for act in acts:
            act.result()
    assert journal.deadlocks() == 0
