"""The journal's last net: whatever verb writes, and whoever forgot, no revealed value reaches a row."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from models import database, redaction
from models.credentials import CredentialRefused
from models.journal import events, failing, runs, steps, submitting
from models.journal.values import Claimed
from models.values import decode
from ops import client
from tasks import registry, starting
from tests.support.desk import (
    DESK,
    Idempotent,
    Made,
    Queryable,
    Read,
    Wanted,
    a_context,
    a_ledger,
    raises,
)
from tests.support.intents import again, at_work
from tests.support.journal import Journal

CANARY = "CANARY-0123456789-abc"
AGENTS = "tests.agents.secretive"


@pytest.fixture(autouse=True)
def desk() -> Iterator[None]:
    DESK.reset()
    yield
    DESK.reset()


@pytest.fixture
def claimed(journal: Journal) -> Claimed:
    journal.freeze()
    found = at_work()
    redaction.register("KEY", CANARY)
    return found


def is_clean(journal: Journal) -> bool:
    return not any(CANARY in row for rows in journal.image().values() for row in rows)


@pytest.mark.parametrize(
    "write",
    [
        lambda one: events.record(one.run_id, "noted", detail=CANARY, actor=CANARY),
        lambda one: steps.report_progress(one.lease, 1, total=2, note=f"at {CANARY}"),
        lambda one: failing.fail(one, worker="w", error_type=CANARY, error=f"no: {CANARY}"),
        lambda one: failing.retry(one, worker="w", error_type="E", error=f"no: {CANARY}", delay=1),
        lambda one: failing.interrupt(one, worker="w", error_type="E", error=CANARY, crashed=True),
        lambda one: failing.postpone(one, worker="w", error_type="E", error=CANARY, delay=1),
        lambda one: runs.cancel(one.run_id, by=CANARY, reason=CANARY, cancellation_id="c-1"),
    ],
)  # fmt: skip
def test_no_verb_writes_a_revealed_value(
    journal: Journal, claimed: Claimed, write: Callable[[Claimed], Any]
) -> None:
    before = journal.image()
    write(claimed)
    assert journal.image() != before, "it wrote something"
    assert is_clean(journal)


def test_a_label_is_redacted_too(journal: Journal, claimed: Claimed) -> None:
    submitting.create_batch("batch-1", f"label {CANARY}")
    assert journal.one("SELECT label FROM batch") == "label [secret KEY]"


def test_the_net_is_what_holds_it(journal: Journal, claimed: Claimed) -> None:
    redaction.forget()
    events.record(claimed.run_id, "noted", detail=CANARY)
    assert not is_clean(journal)


@pytest.mark.parametrize("tool", [Queryable, Idempotent, Read])
def test_an_answer_is_recorded_and_handed_on_without_it(
    journal: Journal, claimed: Claimed, tool: Callable[[], Any]
) -> None:
    DESK.then(lambda: Made(f"res of {CANARY}", 1))
    made = a_context(a_ledger(claimed), claimed).call(tool(), Wanted(servers=1))
    assert made == Made("res of [secret KEY]", 1)
    assert is_clean(journal)
    later = again(journal, claimed)
    assert a_context(a_ledger(later), later).call(tool(), Wanted(servers=1)) == made
    assert len(DESK.calls) == 1


def test_an_error_of_a_tool_is_recorded_without_it(journal: Journal, claimed: Claimed) -> None:
    DESK.then(raises(RuntimeError(f"server said: {CANARY}")))
    with pytest.raises(BaseException, match="secret KEY"):
        a_context(a_ledger(claimed), claimed).call(Queryable(), Wanted())
    assert is_clean(journal)


def test_a_result_that_needs_the_secret_is_a_persons_business(
    journal: Journal, claimed: Claimed
) -> None:
    redaction.register("PIN", "482913")
    DESK.then(lambda: Made("res-1", 482913))
    with pytest.raises(BaseException, match="cannot be recorded") as stopped:
        a_context(a_ledger(claimed), claimed).call(Queryable(), Wanted())
    assert "482913" not in redaction.redact(str(stopped.value))
    assert not any("482913" in row for rows in journal.image().values() for row in rows)


@pytest.fixture
def agents(journal: Journal) -> None:
    registry.load_agents(AGENTS)


CONFIGS: list[dict[str, Any]] = [
    {"openai_api_key": "sk-CANARY-1"},
    {"headers": {"Authorization": "Bearer CANARY-2-0123456789abcdef"}},
    {"text": "use AKIAIOSFODNN7EXAMPLE please"},
]


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.usefixtures("agents")
def test_whoever_submits_is_refused_before_anything_is_written(
    journal: Journal, config: dict[str, Any]
) -> None:
    before = journal.image()
    submissions: list[Callable[[], object]] = [
        lambda: client.submit("with-config", config=config),
        lambda: client.submit("with-config", config=config, batch_id="batch-1"),
        lambda: client.submit_batch("with-config", [{"config": {}}, {"config": config}]),
        lambda: starting.start_run(
            client.app(), "with-config", {"config": config}, batch_id="batch-1"
        ),
    ]
    for submit in submissions:
        with pytest.raises(CredentialRefused, match=r"input of with-config: \$\.config\."):
            submit()
    assert journal.image() == before
    assert database.fetch("SELECT 1 FROM batch", {}) == []


@pytest.mark.usefixtures("agents")
def test_a_key_in_the_runs_own_name_is_refused(journal: Journal) -> None:
    with pytest.raises(CredentialRefused, match=r"the submission: \$\.key"):
        starting.prepare("with-config", {"config": {}}, key="ghp_" + "Ab1" * 10)


@pytest.mark.usefixtures("agents")
def test_references_and_what_is_allowed_by_name_are_stored(journal: Journal) -> None:
    given = {"config": {"session_token": "not-secret-at-all", "api_key": {"$secret": "KEY"}}}
    prepared = starting.prepare("with-config", given)
    assert prepared.input == (
        '{"config":{"session_token":"not-secret-at-all","api_key":{"$secret":"KEY"}}}'
    )
    (node,) = [node for node in prepared.plan.nodes if "keep" in node.step_name]
    assert repr(decode(node.arguments)).count("Secret('KEY')") == 1


@pytest.mark.usefixtures("agents")
def test_what_a_workflows_function_adds_is_looked_at_too(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = registry.get_workflow("with-config")
    keep = next(bound.step for name, bound in found.steps.items() if name.endswith(".keep"))
    monkeypatch.setattr(found, "function", lambda config: keep.s({**config, "api_key": "abcdef"}))
    with pytest.raises(CredentialRefused, match=r"arguments of step 'keep': \$\[0\]\.api_key"):
        starting.prepare("with-config", {"config": {}})
