"""The Python client over a real journal and a real broker; runs are moved by hand, so states are exact."""

import threading
from collections.abc import Iterator

import pytest
import redis
from celery import Celery
from pydantic import BaseModel

from models import database
from models.errors import InvalidIdentifier
from models.journal import history, overview, rescue, runs
from models.journal.errors import SubmissionConflict, UnknownRun
from models.settings import settings
from models.states import BlockReason, RunState
from models.values import Typed
from ops import client, resuming
from ops.client import RunBlocked, RunCancelled, RunFailed, RunUnfinished
from tasks import Context, registry, step, workflow
from tasks.canvas import Canvas
from tasks.errors import AgentsError, BindingError
from tests.support.journal import Journal, Worker


class Greeting(BaseModel):
    text: str
    loud: bool = False


@step
def greet(ctx: Context, name: str, loud: bool) -> Greeting:
    return Greeting(text=f"hello {name}", loud=loud)


@step
def repeat(ctx: Context, greeting: Greeting) -> Greeting:
    return greeting


def _plan(name: str, loud: bool = False) -> Canvas:
    return greet.s(name, loud) | repeat.s()


QUEUE = "steps.greet@1"
GREETING = Typed(Greeting).dump(Greeting(text="hello you"))


@pytest.fixture
def worker(journal: Journal, broker_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    """A registered workflow, the client's messages on this test's own broker, and a worker's hands."""
    monkeypatch.setenv("ONWARD_BROKER_URL", broker_url)
    settings.cache_clear()
    app = Celery("client-test", broker=broker_url)
    app.conf.broker_transport_options = {
        "global_keyprefix": settings().key_prefix, "priority_steps": [0],
    }  # fmt: skip
    monkeypatch.setattr(client, "app", lambda: app)  # the product's own app reads settings once
    with registry.isolated():
        workflow("greet", version="1", steps=[greet, repeat])(_plan)
        yield Worker()
    app.close()


def claim_and_finish(worker: Worker, run_id: str, text: str = GREETING) -> None:
    for key in ("greet", "repeat"):
        claimed = worker.claim(run_id, key, workflow="greet")
        assert claimed is not None
        worker.complete(claimed, text)


def test_a_run_is_submitted_by_keywords_or_by_mapping_and_its_message_sent(
    worker: Worker, broker_url: str
) -> None:
    first = client.submit("greet", name="you", key="one")
    same = client.submit("greet", {"name": "you"}, key="one")
    assert (first.created, same.created, str(first)) == (True, False, same.run_id)
    with redis.Redis.from_url(broker_url) as broker:
        assert broker.llen(f"{settings().key_prefix}{QUEUE}") == 1
    with pytest.raises(SubmissionConflict, match=f"'one' belongs to run {first}"):
        client.submit("greet", name="somebody else", key="one")
    with pytest.raises(BindingError, match="`name` is missing; `nmae` is unknown"):
        client.submit("greet", nmae="you")
    assert len(history.list_runs()) == 1


def test_identifying_fields_are_refused_by_name(worker: Worker) -> None:
    for field in ("key", "run_id", "batch_id"):
        with pytest.raises(InvalidIdentifier, match="control character"):
            client.submit("greet", {"name": "you"}, **{field: "a\x00b"})  # type: ignore[arg-type]
    assert history.list_runs() == []


def test_a_batch_is_submitted_whole_and_completed_when_cut_short(worker: Worker) -> None:
    inputs = [{"name": name} for name in ("a", "b", "c")]
    with pytest.raises(BindingError, match="missing"):
        client.submit_batch("greet", [*inputs, {}], batch_id="letters")
    assert history.list_runs() == []
    cut = client.submit_batch("greet", inputs[:2], batch_id="letters", label="three letters")
    whole = client.submit_batch("greet", inputs, batch_id="letters")
    assert [run.created for run in whole.runs] == [False, False, True]
    assert cut.runs[0].run_id == whole.runs[0].run_id
    assert overview.get_batch("letters").counts == {"pending": 3}
    assert overview.get_batch("letters").label == "three letters"


def test_a_result_is_typed_where_the_code_is_and_plain_where_it_is_not(worker: Worker) -> None:
    run = client.submit("greet", name="you")
    with pytest.raises(RunUnfinished, match=r"has no result yet\. step 'greet' waits for a worker"):
        run.result()
    claim_and_finish(worker, run.run_id)
    assert run.result() == Greeting(text="hello you")
    with registry.isolated():
        assert client.result(run.run_id) == {"text": "hello you", "loud": False}
    again = client.submit("greet", name="you", run_id=run.run_id)
    assert (again.created, again.result()) == (False, Greeting(text="hello you"))


def test_a_wait_ends_when_the_run_does(worker: Worker) -> None:
    run = client.submit("greet", name="you")

    def work() -> None:
        claim_and_finish(worker, run.run_id)
        database.close()

    thread = threading.Timer(0.3, work)
    thread.start()
    assert run.wait(timeout=20) is RunState.COMPLETED
    thread.join()
    assert run.result(timeout=None) == Greeting(text="hello you")


def test_a_wait_gives_up_with_the_reason(worker: Worker) -> None:
    run = client.submit("greet", name="you")
    with pytest.raises(TimeoutError, match="none is alive: start one"):
        run.wait(timeout=0.2)


def test_a_failure_is_told_and_can_be_built_upon(worker: Worker, journal: Journal) -> None:
    run = client.submit("greet", name="you")
    claimed = worker.claim(run.run_id, "greet", workflow="greet")
    assert claimed is not None
    worker.complete(claimed, GREETING)
    claimed = worker.claim(run.run_id, "repeat", workflow="greet")
    assert claimed is not None
    worker.fail(claimed)
    with pytest.raises(RunFailed, match=f"failed: repeat: no such clause.*runs retry {run}"):
        run.result()
    plan = resuming.preview(run.run_id)
    assert (plan.reused, plan.again, plan.left, plan.ahead) == (("greet",), ("repeat",), (), 0)
    assert resuming.resume(run.run_id, by="me") == ["repeat"]
    assert journal.live(run.run_id)["publications"] == 1
    claimed = worker.claim(run.run_id, "repeat", workflow="greet")
    assert claimed is not None
    worker.complete(claimed, GREETING)
    assert run.result() == Greeting(text="hello you")
    assert resuming.preview(run.run_id).left == ("the run is completed",)


def test_a_block_is_told_with_its_reason(worker: Worker, journal: Journal) -> None:
    run = client.submit("greet", name="you", batch_id="b")
    claimed = worker.claim(run.run_id, "greet", workflow="greet")
    assert claimed is not None
    worker.interrupt(claimed)
    rescue.block(journal.ref(run.run_id), BlockReason.UNTRACKED_STEP, detail="look", failed=False)
    assert run.wait(timeout=1) is RunState.BLOCKED
    with pytest.raises(RunBlocked, match=r"blocked by untracked_step: look.*runs resume"):
        run.result()
    plan = resuming.preview_recovery("b")
    assert (plan.again, plan.moving, plan.left) == ((run.run_id,), (), ())
    assert resuming.preview_retry("b").left == (
        f"{run}: blocked (untracked_step); `onward batch recover` goes on with it",
    )
    assert resuming.retry_batch(plan, by="me").sent_back == {run.run_id: ["greet"]}
    assert "can be sent back" in resuming.retry_batch(plan, by="me").refused[run.run_id]


def test_a_batch_says_which_untracked_steps_it_would_repeat(
    worker: Worker, journal: Journal
) -> None:
    run = client.submit("greet", name="you", batch_id="b")
    claimed = worker.claim(run.run_id, "greet", workflow="greet")
    assert claimed is not None
    worker.interrupt(claimed)
    journal.make(run.run_id, untracked=True)
    rescue.block(journal.ref(run.run_id), BlockReason.UNTRACKED_STEP, detail="look", failed=False)
    assert resuming.preview_recovery("b").unseen == (f"{run}: greet",)
    assert resuming.preview_retry("b").unseen == ()


def test_cancelling_twice_is_one_cancellation(worker: Worker) -> None:
    run = client.submit("greet", name="you")
    first = run.cancel(by="me", reason="a mistake")
    second = client.cancel(run, by="you", reason="really")
    assert (first.first, second.first) == (True, False)
    assert (second.cancellation_id, second.cancelled_by) == (first.cancellation_id, "me")
    rescue.cancel_branches(rescue.cancellable(limit=10))
    runs.settle(run.run_id)
    with pytest.raises(RunCancelled, match="cancelled by me: a mistake"):
        run.result()


def test_what_does_not_exist_is_said_to_not_exist(worker: Worker) -> None:
    with pytest.raises(UnknownRun, match="no run 'run-none'"):
        client.result("run-none")
    with pytest.raises(overview.UnknownBatch, match="no batch 'none'"):
        overview.get_batch("none")
    with pytest.raises(AgentsError, match="no workflow is called 'nothing'"):
        client.submit("nothing")


def test_the_timeline_tells_claims_losses_and_events_in_order(
    worker: Worker, journal: Journal
) -> None:
    journal.freeze()
    run = client.submit("greet", name="you", key="mine")
    assert worker.claim(run.run_id, "greet", workflow="greet") is not None
    journal.lose()
    journal.advance(1)
    rescue.requeue([journal.ref(run.run_id)], [0.0])
    journal.advance(1)
    claim_and_finish(worker, run.run_id)
    found = history.timeline(history.find("mine"))
    assert [(one.kind, one.step_key, one.token) for one in found] == [
        ("run_submitted", None, None),
        ("step_claimed", "greet", 1),
        ("attempt_expired", "greet", 1),
        ("lease_expired", "greet", 1),
        ("step_requeued", "greet", 1),
        ("step_claimed", "greet", 2),
        ("step_completed", "greet", 2),
        ("step_claimed", "repeat", 3),
        ("step_completed", "repeat", 3),
        ("run_completed", "repeat", None),
    ]
