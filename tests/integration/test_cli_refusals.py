"""The command line over a journal without workers, in this process: what it shows, refuses, and how."""

import json
from collections.abc import Iterator

import psycopg
import pytest

from models.journal import rescue, runs, submitting
from models.migrations import head
from models.states import BlockReason
from ops import client, schema
from tests.support.cli import Said
from tests.support.commands import Onward, commands_here
from tests.support.journal import Journal, Worker, at, row_of, submit_run

AGENTS = "tests.agents.gated"
NOWHERE = "postgresql+psycopg://onward@127.0.0.1:1/onward"


@pytest.fixture
def onward(
    journal: Journal, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Onward]:
    """``onward("runs", "list", ONWARD_LOG="json")``: one command, with these variables."""
    with commands_here(AGENTS, capsys=capsys, monkeypatch=monkeypatch) as onward:
        yield onward


REFUSALS: dict[str, tuple[tuple[str, ...], dict[str, str], int, str]] = {
    "unknown run": (("runs", "show", "run-none"), {}, 1, "There is no run 'run-none'"),
    "unknown run's result": (("result", "run-none", "--json"), {}, 1, "There is no run 'run-none'"),
    "unknown run's steps": (("steps", "run-none"), {}, 1, "There is no run 'run-none'"),
    "unknown run's history": (("history", "run-none"), {}, 1, "There is no run 'run-none'"),
    "unknown run to cancel": (("runs", "cancel", "run-none"), {}, 1, "There is no run 'run-none'"),
    "unknown batch": (("batch", "status", "none"), {}, 1, "There is no batch 'none'"),
    "unknown batch to watch": (("batch", "watch", "none"), {}, 1, "There is no batch 'none'"),
    "unknown batch to recover": (("batch", "recover", "none"), {}, 1, "There is no batch 'none'"),
    "bad input": (("submit", "gated", "--input", "{"), {}, 2, "--input is not JSON"),
    "dead database": (
        ("runs", "list"), {"ONWARD_DATABASE_URL": NOWHERE}, 1, "is ONWARD_DATABASE_URL right?",
    ),
    "address that is none": (
        ("db", "check"), {"ONWARD_DATABASE_URL": "nonsense"}, 1, "The database refused",
    ),
    "missing agent package": (
        ("submit", "gated", "--input", '{"gate": "x"}'), {"ONWARD_AGENTS": "acme_gone"}, 1,
        "there is no module acme_gone",
    ),
    "impossible setting": (("runs", "list"), {"ONWARD_LEASE_TTL": "1"}, 2, "ONWARD_LEASE_TTL=1.0 must be"),
    "bad setting": (("runs", "list"), {"ONWARD_SWEEP_BATCH": "many"}, 2, "ONWARD_SWEEP_BATCH: "),
    "sweep without once": (("sweep",), {}, 2, "--once"),
    "surrogate in an id": (("runs", "show", "\udcff"), {}, 1, "surrogate"),
    "control character in an id": (("batch", "status", "a\nb"), {}, 1, "control character"),
    "control character in a key": (
        ("submit", "gated", "--input", '{"gate": "x"}', "--key", "a\tb"), {}, 1, "control character",
    ),
    "unknown workflow": (("submit", "nothing"), {}, 1, "no workflow is called 'nothing'"),
    "no document": (("review",), {}, 2, "either a path, or --corpus and a number"),
    "two documents": (
        ("review", "/tmp", "--corpus", "3"), {}, 2, "either a path, or --corpus and a number",
    ),
    "no file": (("review", "/nowhere/at/all"), {}, 1, "there is no such file or folder"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSALS)
def test_what_cannot_be_is_one_clear_sentence(onward: Onward, what: str) -> None:
    arguments, environment, code, sentence = REFUSALS[what]
    said = onward(*arguments, **environment)
    assert sentence in said.err
    assert said.err.startswith("onward: ")
    assert (said.code, said.out, said.err.count("\n")) == (code, "", 1)


@pytest.mark.parametrize(
    "words", [("frobnicate",), ("runs", "list", "--state", "happy"), ("runs", "show")]
)
def test_usage_errors_have_an_exit_code_of_their_own(
    onward: Onward, words: tuple[str, ...]
) -> None:
    said = onward(*words)
    assert (said.code, said.out) == (2, "")
    assert "Usage: onward" in said.err


def test_a_database_is_upgraded_and_checked(onward: Onward, empty_database_url: str) -> None:
    def here(*words: str) -> Said:
        return onward(*words, ONWARD_DATABASE_URL=empty_database_url)

    nothing = f"The database has no journal yet: run `onward db upgrade` (to {schema.newest()})."
    assert schema.newest() == head()
    assert (here("db", "check").code, here("db", "check").out) == (1, f"{nothing}\n")
    for words in (("runs", "list"), ("batch", "status", "x"), ("result", "x"), ("health",)):
        assert here(*words).err == f"onward: {nothing}\n"
    assert here("db", "upgrade", "--json").json == {"before": None, "after": head()}
    assert here("db", "upgrade", "--json").json == {"before": head(), "after": head()}
    assert here("db", "check", "--json").json["fits"] is True
    said = here("health")
    assert (said.code, said.out[:30]) == (1, "No sweep has ever completed: i")
    with psycopg.connect(empty_database_url.replace("+psycopg", "")) as link:
        link.execute("UPDATE alembic_version SET version_num = '0000'")
    assert f"at 0000, behind {head()}: run `onward db upgrade`" in here("runs", "list").err


def test_looking_at_runs(onward: Onward) -> None:
    run_id = submit_run(row_of("a", "b"), submission_key="mine")
    Worker().do(run_id, "a")
    (listed,) = onward("runs", "list", "--json").json
    assert (listed["run_id"], listed["completed_steps"], listed["state"]) == (run_id, 1, "running")
    assert onward("runs", "list", "--state", "failed", "--json").json == []
    assert onward("runs", "list", "--workflow", "nothing", "--json").json == []
    assert run_id in onward("runs", "list", "--limit", "1").out
    shown = onward("runs", "show", "mine")
    assert "step 'b' waits for a worker of queue" in shown.out
    assert onward("runs", "show", "mine", "--json").json["why"] == "no_worker"
    assert "completed" in onward("steps", "mine").out
    assert "step_completed" in onward("history", "mine").out
    assert "has no result yet. step 'b' waits" in onward("result", "mine").err
    verified = onward("runs", "verify", "mine", "--json")
    assert (verified.code, json.loads(verified.out)["findings"]) == (0, [])


def test_acting_on_a_blocked_run(onward: Onward, journal: Journal) -> None:
    run_id = submit_run(row_of("a", "b", "c"))
    worker = Worker()
    worker.do(run_id, "a")
    worker.interrupt(worker.take(run_id, "b"))
    ref = journal.ref(run_id)
    rescue.block(ref, BlockReason.UNTRACKED_STEP, detail="look [there]", failed=False)
    shown = onward("runs", "resume", run_id, "--dry-run")
    assert "run again" in shown.out
    assert "Nothing was done (--dry-run)." in shown.out
    assert onward("runs", "resume", run_id, "--dry-run", "--json").json["preview"] == {
        "run_id": run_id, "state": "blocked", "reused": ["a"], "again": ["b"], "asked": [], "questions": [], "left": [],
        "moving": [], "ahead": 1,
    }  # fmt: skip
    asked = onward("runs", "resume", run_id, "--json")
    assert (asked.code, asked.out) == (2, "")
    assert "add --yes" in asked.err
    assert "look [there]" in onward("runs", "show", run_id).out
    assert journal.run(run_id)["state"] == "blocked"


def test_one_refused_retry_hides_none_that_was_made(onward: Onward, journal: Journal) -> None:
    failed, moving = (submit_run(at("a")) for _ in range(2))
    worker = Worker()
    for output in ("json", "text"):
        worker.fail(worker.take(failed, "a"))
        assert journal.run(failed)["state"] == "failed"
        said = onward("runs", "retry", failed, moving, failed, *["--json"] * (output == "json"))
        assert said.code == 1
        if output == "json":
            answer = json.loads(said.out)
            assert answer["sent_back"] == {failed: ["a"]}
            assert list(answer["refused"]) == [moving]
            continue
        assert said.out == f"{failed}: tries a again.\n"
        assert said.err.startswith("onward: ")
        assert moving in said.err


def test_cancelling_twice_gives_the_same_cancellation(onward: Onward) -> None:
    run_id = submit_run(at("a"))
    first = onward("runs", "cancel", run_id, "--reason", "a mistake", "--json").json
    second = onward("runs", "cancel", run_id, "--by", "other", "--json").json
    assert (first["first"], first["cancelled_by"]) == (True, "tester")
    assert second == {**first, "first": False}
    assert "was cancelled before by tester: a mistake" in onward("runs", "cancel", run_id).out


def test_a_batch_is_summed_up(onward: Onward) -> None:
    submitting.create_batch("three", "three runs")
    done, failed, waiting = (submit_run(at("a"), batch_id="three") for _ in range(3))
    worker = Worker()
    worker.do(done, "a")
    worker.fail(worker.take(failed, "a"))
    assert onward("batch", "status", "three", "--json").json["summary"] == "1/3, running"
    client.cancel(waiting, by="me", reason="test")
    rescue.cancel_branches(rescue.cancellable(limit=10))
    runs.settle(waiting)
    status = onward("batch", "status", "three")
    assert status.out.startswith("1/3, completed_with_errors\n")
    assert f"{failed} failed: a: no such clause" in status.out
    preview = onward("batch", "retry-failed", "three", "--dry-run", "--json").json["preview"]
    assert (preview["again"], preview["left"]) == ([failed], [f"{waiting}: cancelled"])
    watched = onward("batch", "watch", "three", "--json")
    assert (watched.code, json.loads(watched.out)["state"]) == (1, "completed_with_errors")
