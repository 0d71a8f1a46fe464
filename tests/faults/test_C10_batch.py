"""C10: 137 documents, three paid model calls each; one is bad, and the worker is killed twice."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

import pytest

from models.journal import overview
from models.journal.submitting import create_batch
from models.settings import settings
from ops import resuming
from tests.support.invariants import check_invariants
from tests.support.waiting import wait_until
from tests.support.world import World

DOCUMENTS = 137
BAD = 89
FIRST = range(1, BAD)  #: documents that are done before the first kill
QUESTIONS = ("summary", "risks", "duties")
ARMED = {"ONWARD_FAILPOINTS": "P1:stop@documents.risks_of_90,P4:stop@documents.risks_of_120"}


@dataclass(frozen=True)
class Batch:
    """The batch at rest, and what was noted at the first kill."""

    world: World
    batch_id: str
    runs: Mapping[int, str]
    results_at_first_kill: Mapping[int, Mapping[str, tuple[str, str]]]
    calls_at_first_kill: Mapping[str, int]


def _kill_the_worker_at(world: World, point: str) -> None:
    """The child is paused at the instant, so that the SIGKILL of its worker hits exactly there."""
    world.wait_fired(point, timeout=60)
    world.cluster.kill("worker-1")


@pytest.fixture(scope="module")
def batch(make_world: Callable[..., AbstractContextManager[World]]) -> Iterator[Batch]:
    # In place, a run is walked to its end before the next one begins; one slot makes it one at a time.
    with make_world(agents="tests.agents.documents", env={"ONWARD_STICKY": "true"}) as world:
        world.fx.script(f"doc-{BAD:03d}-summary", "Sorry, here is your JSON: {")
        create_batch("contracts", "137 documents")
        world.cluster.recovery()
        runs = {
            number: world.submit("documents", {"number": number}, batch_id="contracts").run_id
            for number in range(1, DOCUMENTS + 1)
        }
        world.cluster.worker("worker-1", concurrency=1, env=ARMED)
        _kill_the_worker_at(world, "P1")
        results = {number: world.results(runs[number]) for number in FIRST}
        calls = world.fx.all_calls("doc-")
        world.cluster.worker("worker-1", concurrency=1, env=ARMED)  # returns: released at once
        _kill_the_worker_at(world, "P4")
        world.cluster.worker("worker-2", concurrency=1)  # another: when the lease is over
        _wait_at_rest(world)
        yield Batch(world, "contracts", runs, results, calls)


def _wait_at_rest(world: World) -> None:
    wait_until(
        lambda: not overview.get_batch("contracts").moving,
        timeout=60,
        what="no run of the batch moves",
        details=lambda: str(overview.get_batch("contracts")),
    )


def test_C10_all_but_the_bad_one_complete(batch: Batch) -> None:
    world = batch.world
    assert str(overview.get_batch(batch.batch_id)) == "136/137, completed_with_errors"
    assert world.state(batch.runs[BAD]) == "failed"
    assert "JSONDecodeError" in str(world.step(batch.runs[BAD], "summary").error)
    for number in (1, BAD, 90, 120, DOCUMENTS):
        check_invariants(settings().database_url, batch.runs[number])


def test_C10_finished_documents_are_neither_changed_nor_paid_again(batch: Batch) -> None:
    world, calls = batch.world, batch.world.fx.all_calls("doc-")
    for number in FIRST:
        before = batch.results_at_first_kill[number]
        assert len(before) == 5, f"document {number} was not finished at the first kill"
        assert world.results(batch.runs[number]) == before
        for question in QUESTIONS:
            name = f"doc-{number:03d}-{question}"
            assert calls[name] == batch.calls_at_first_kill[name] == 1


def test_C10_calls_are_the_minimum_and_those_in_flight(batch: Batch) -> None:
    calls = batch.world.fx.all_calls("doc-")
    of_the_bad = sum(count for name, count in calls.items() if name.startswith(f"doc-{BAD:03d}-"))
    assert of_the_bad == 2, "one retry, and the answer is as bad as before"
    # At P1 nothing had been sent; the answer of document 120 died with its process at P4.
    assert sum(calls.values()) == (DOCUMENTS - 1) * len(QUESTIONS) + of_the_bad + 1
    assert calls["doc-090-risks"] == 1
    assert calls["doc-120-risks"] == 2
    assert batch.world.attempts(batch.runs[90])["risks_of_90"] == 2
    assert batch.world.attempts(batch.runs[120])["risks_of_120"] == 2


def test_C10_retry_failed_touches_the_bad_one_only(batch: Batch) -> None:
    world = batch.world
    before = {number: world.results(run_id) for number, run_id in batch.runs.items()}
    world.fx.script(f"doc-{BAD:03d}-summary", '{"answer": "now it is"}')
    plan = resuming.preview_retry(batch.batch_id)
    assert plan.again == (batch.runs[BAD],)
    done = resuming.retry_batch(plan, by="operator@example.org")
    assert done.sent_back == {batch.runs[BAD]: ["summary"]}
    world.wait_run(batch.runs[BAD])
    assert str(overview.get_batch(batch.batch_id)) == "137/137, completed"
    after = {number: world.results(run_id) for number, run_id in batch.runs.items()}
    assert {number for number in batch.runs if after[number] != before[number]} == {BAD}
