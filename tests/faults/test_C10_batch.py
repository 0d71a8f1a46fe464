"""C10: 137 documents, three paid model calls each; one is bad, and the worker is killed twice."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

import pytest

from models.journal import overview
from models.journal.submitting import create_batch
from models.settings import settings
from ops import resuming
from tests.agents.documents import QUESTIONS
from tests.support.invariants import check_invariants
from tests.support.models import ModelService, models_service
from tests.support.waiting import wait_until
from tests.support.world import World

DOCUMENTS = 137
BAD = 89
ASKS = 3  #: that a bad answer is worth, over all attempts
FIRST = range(1, BAD)  #: documents that are done before the first kill
NAME = re.compile(r"doc-\d{3}-\w+")
GOOD = '{"answer": "as it should be"}'


@dataclass(frozen=True)
class Play:
    """How documents are walked through, and at which instant of which step the worker dies."""

    workflow: str
    kills: tuple[tuple[str, str], tuple[str, str]]  #: of documents 90 and 120
    fails: str  #: the step of the bad document that does
    steps: int  #: of a document

    @property
    def armed(self) -> dict[str, str]:
        points = (f"{point}:stop@{self.workflow}.{step}" for point, step in self.kills)
        return {"ONWARD_FAILPOINTS": ",".join(points)}


PLAYS = {
    "one step": Play(
        "documents", (("P1", "review_of_90"), ("P4", "review_of_120")), fails="review", steps=3
    ),
    "a step each": Play(
        "documents-by-steps", (("P1", "risks_of_90"), ("P4", "risks_of_120")), fails="summary", steps=5
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Batch:
    """The batch at rest, and what was noted at the first kill."""

    play: Play
    world: World
    models: ModelService
    batch_id: str
    runs: Mapping[int, str]
    results_at_first_kill: Mapping[int, Mapping[str, tuple[str, str]]]
    calls_at_first_kill: Mapping[str, int]


def asked(models: ModelService) -> Counter[str]:
    """How many requests reached the models, by what they asked."""
    found = (NAME.search(call.text) for call in models.calls("doc-"))
    return Counter(name[0] for name in found if name)


def _kill_the_worker_at(world: World, point: str) -> None:
    """The child is paused at the instant, so that the SIGKILL of its worker hits exactly there."""
    world.wait_fired(point, timeout=60)
    world.cluster.kill("worker-1")


@pytest.fixture(scope="module", params=PLAYS.values(), ids=[*PLAYS])
def batch(
    request: pytest.FixtureRequest,
    make_world: Callable[..., AbstractContextManager[World]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Batch]:
    with models_service(tmp_path_factory.mktemp("models")) as models:
        models.script("doc-", GOOD)
        models.script(f"doc-{BAD:03d}-summary", "Sorry, here is your JSON: {")
        # In place, a run is walked to its end before the next one begins; one slot makes it one at a time.
        env = {
            "ONWARD_STICKY": "true", "ONWARD_STICKY_SECONDS": "60", "ONWARD_LLM_BASE_URL": models.url,
            "ONWARD_LLM_MODEL": "gpt-x",
        }  # fmt: skip
        with make_world(agents="tests.agents.documents", env=env) as world:
            yield _played(request.param, world, models)


def _played(play: Play, world: World, models: ModelService) -> Batch:
    create_batch("contracts", "137 documents")
    world.cluster.recovery()
    runs = {
        number: world.submit(play.workflow, {"number": number}, batch_id="contracts").run_id
        for number in range(1, DOCUMENTS + 1)
    }
    first, second = (point for point, _ in play.kills)
    world.cluster.worker("worker-1", concurrency=1, env=play.armed)
    _kill_the_worker_at(world, first)
    results = {number: world.results(runs[number]) for number in FIRST}
    calls = asked(models)
    world.cluster.worker("worker-1", concurrency=1, env=play.armed)  # returns: released at once
    _kill_the_worker_at(world, second)
    world.cluster.worker("worker-2", concurrency=1)  # another: when the lease is over
    _wait_at_rest(world)
    return Batch(play, world, models, "contracts", runs, results, calls)


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
    assert "Finding" in str(world.step(batch.runs[BAD], batch.play.fails).error)
    for number in (1, BAD, 90, 120, DOCUMENTS):
        check_invariants(settings().database_url, batch.runs[number])


def test_C10_finished_documents_are_neither_changed_nor_paid_again(batch: Batch) -> None:
    world, calls = batch.world, asked(batch.models)
    for number in FIRST:
        before = batch.results_at_first_kill[number]
        assert len(before) == batch.play.steps, (
            f"document {number} was not finished at the first kill"
        )
        assert world.results(batch.runs[number]) == before
        for question in QUESTIONS:
            name = f"doc-{number:03d}-{question}"
            assert calls[name] == batch.calls_at_first_kill[name] == 1


def test_C10_calls_are_the_minimum(batch: Batch) -> None:
    """Neither kill hit a call in the air: at P1 nothing was sent, and at P4 every answer was recorded."""
    models, calls = batch.models, asked(batch.models)
    of_the_bad = [count for name, count in calls.items() if name.startswith(f"doc-{BAD:03d}-")]
    assert of_the_bad == [ASKS], "asked again as often as a bad answer is worth, and then no more"
    assert models.count("doc-") == (DOCUMENTS - 1) * len(QUESTIONS) + ASKS
    assert models.billed("doc-").calls == models.count("doc-")
    for number, (_, step) in zip((90, 120), batch.play.kills, strict=True):
        assert [calls[f"doc-{number:03d}-{question}"] for question in QUESTIONS] == [1, 1, 1]
        assert batch.world.attempts(batch.runs[number])[step] == 2


def test_C10_retry_failed_touches_the_bad_one_only(batch: Batch) -> None:
    world, calls = batch.world, batch.models.count("doc-")
    before = {number: world.results(run_id) for number, run_id in batch.runs.items()}
    batch.models.script(f"doc-{BAD:03d}-summary", GOOD)
    plan = resuming.preview_retry(batch.batch_id)
    assert plan.again == (batch.runs[BAD],)
    done = resuming.retry_batch(plan, by="operator@example.org")
    assert done.sent_back == {batch.runs[BAD]: [batch.play.fails]}
    world.wait_run(batch.runs[BAD])
    assert str(overview.get_batch(batch.batch_id)) == "137/137, completed"
    after = {number: world.results(run_id) for number, run_id in batch.runs.items()}
    assert {number for number in batch.runs if after[number] != before[number]} == {BAD}
    assert batch.models.count("doc-") == calls + len(QUESTIONS), "its rejected answers are pardoned"
