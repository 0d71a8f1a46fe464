"""The command line over real workers: what each command says, does, and answers as JSON."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest

from models.ids import new_run_id
from models.settings import settings
from tests.support.cli import Cli, cli_for
from tests.support.waiting import wait_until
from tests.support.world import World


@dataclass(frozen=True)
class Here:
    """A deployment with workers, and the command line of somebody who uses it."""

    world: World
    onward: Cli
    directory: Path

    def gate(self, *, is_open: bool = True) -> Path:
        """A file that a run needs."""
        path = self.directory / f"gate-{new_run_id()}"
        if is_open:
            path.touch()
        return path

    def submit(self, gate: Path, *more: str) -> str:
        said = self.onward("submit", "gated", "--input", f'{{"gate": "{gate}"}}', "--json", *more)
        return str(said.json["run_id"])

    def failed_run(self, *more: str) -> tuple[str, Path]:
        gate = self.gate(is_open=False)
        run_id = self.submit(gate, *more)
        self.world.wait_run(run_id, "failed")
        return run_id, gate


@pytest.fixture(scope="module")
def here(
    make_world: Callable[..., AbstractContextManager[World]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Here]:
    agents = "tests.agents.gated,tests.agents.plain"
    with make_world(agents=agents) as world:
        world.cluster.recovery()
        world.cluster.worker()
        directory = tmp_path_factory.mktemp("cli")
        onward = cli_for(
            directory, ONWARD_DATABASE_URL=settings().database_url,
            ONWARD_BROKER_URL=settings().broker_url, ONWARD_AGENTS=agents,
        )  # fmt: skip
        yield Here(world, onward, directory)


def test_a_run_from_its_submission_to_its_history(here: Here) -> None:
    gate = here.gate()
    given = here.directory / "given.json"
    given.write_text(f'{{"gate": "{gate}"}}')
    words = ("submit", "gated", "--input", f"@{given}", "--key", "mine", "--batch", "some")
    said = here.onward(*words, "--wait", "--timeout", "30")
    assert (said.code, said.err) == (0, "")
    assert f'"gate": "{gate}"' in said.out

    again = here.onward(*words, "--json").json
    run_id = again["run_id"]
    assert again == {"run_id": run_id, "created": False}
    assert here.onward("result", "mine", "--json").json == {
        "run_id": run_id, "state": "completed", "result": {"gate": str(gate), "attempt": 1},
    }  # fmt: skip
    shown = here.onward("runs", "show", run_id, "--json").json
    assert (shown["why"], shown["stuck"], shown["run"]["submission_key"]) == (
        "completed", False, "mine",
    )  # fmt: skip
    steps = here.onward("steps", "mine", "--json").json
    assert [(step["step_key"], step["state"]) for step in steps] == [
        ("approach", "completed"), ("enter", "completed"),
    ]  # fmt: skip
    told = [one["kind"] for one in here.onward("history", "mine", "--json").json]
    assert told == [
        "run_submitted", "step_claimed", "step_completed", "step_claimed", "step_completed", "run_completed",
    ]  # fmt: skip
    assert here.onward("runs", "verify", "mine", "--json").json["verified"] is True


def test_a_failed_run_is_retried_from_where_it_stopped(here: Here) -> None:
    run_id, gate = here.failed_run()
    refused = here.onward("result", run_id)
    assert "enter: FileNotFoundError: the gate" in refused.sentence
    assert f"onward runs retry {run_id}" in refused.sentence
    assert "is closed [for now]" in here.onward("runs", "show", run_id).out

    gate.touch()
    assert here.onward("runs", "retry", run_id, "--by", "me", "--json").json == {
        "sent_back": {run_id: ["enter"]},
        "refused": {},
    }
    here.world.wait_run(run_id)
    assert here.onward("result", run_id, "--json").json["result"]["attempt"] == 2
    assert here.world.bodies(run_id, "approach") == 1
    sent_back = [
        one
        for one in here.onward("history", run_id, "--json").json
        if one["kind"] == "step_sent_back"
    ]
    assert [(one["step_key"], one["actor"]) for one in sent_back] == [("enter", "me")]


def test_resume_says_what_it_would_do_before_it_does_it(here: Here) -> None:
    run_id, gate = here.failed_run()
    preview = here.onward("runs", "resume", run_id, "--dry-run", "--json").json
    assert preview["sent_back"] == []
    assert preview["preview"] == {
        "run_id": run_id, "state": "failed", "reused": ["approach"], "again": ["enter"], "asked": [], "questions": [],
        "left": [], "moving": [], "ahead": 0,
    }  # fmt: skip
    assert here.world.state(run_id) == "failed"
    gate.touch()
    said = here.onward("runs", "resume", run_id, "--yes")
    assert "run again" in said.out
    assert said.out.strip().endswith("Goes on with enter.")
    here.world.wait_run(run_id)


def test_a_batch_with_one_failure_and_its_repair(here: Here) -> None:
    for _ in range(3):
        here.submit(here.gate(), "--batch", "four")
    run_id, gate = here.failed_run("--batch", "four")
    watched = here.onward("batch", "watch", "four", "--timeout", "30")
    assert watched.code == 1
    assert watched.out.startswith("3/4, completed_with_errors")
    status = here.onward("batch", "status", "four", "--json").json
    assert (status["state"], status["completed"], status["total"], status["runs"]) == (
        "completed_with_errors", 3, 4, {"completed": 3, "failed": 1},
    )  # fmt: skip

    recovered = here.onward("batch", "recover", "four", "--yes", "--json").json
    assert recovered["sent_back"] == {}
    assert recovered["preview"]["left"] == [
        f"{run_id}: failed (FileNotFoundError); `onward batch retry-failed` tries again"
    ]
    gate.touch()
    retried = here.onward("batch", "retry-failed", "four", "--yes", "--json").json
    assert retried["sent_back"] == {run_id: ["enter"]}
    assert here.onward("batch", "watch", "four", "--json").json["summary"] == "4/4, completed"
    assert here.world.bodies(run_id, "approach") == 1


def test_a_recovered_run_is_verified_by_itself(here: Here) -> None:
    run_id = here.world.start("stumbling", gate="any")
    here.world.wait_run(run_id)
    wait_until(lambda: here.world.events(run_id, "run_verified"), timeout=30, what="it is verified")
    told = [one["kind"] for one in here.onward("history", run_id, "--json").json]
    assert told.index("attempt_died") < told.index("step_requeued") < told.index("run_verified")


def test_the_deployment_is_well(here: Here) -> None:
    wait_until(lambda: here.onward("health").code == 0, timeout=30, what="a sweep has completed")
    workers = {one["name"].split("@")[0]: one for one in here.onward("workers", "--json").json}
    assert workers["worker-1"]["state"] == "alive"
    assert "steps.gated@1" in workers["worker-1"]["queues"]
    assert workers["control"]["queues"] == ["onward.control"]
    checks = {one["name"]: one for one in here.onward("doctor", "--json").json}
    failed = [one for one in checks.values() if one["verdict"] == "fail"]
    assert failed == []
    assert {
        "packages",
        "leases",
        "agents",
        "visibility",
        "database",
        "clock",
        "schema",
        "sweep",
    } < set(checks)
    assert checks["queue steps.gated@1"]["verdict"] == checks["eviction"]["verdict"] == "ok"
    swept = here.onward("sweep", "--once", "--json").json["swept"]
    assert swept is None or swept["isolated"] == 0


def test_a_shadowed_package_is_named_with_both_paths(here: Here) -> None:
    place = here.directory / "shadow"
    place.mkdir()
    (place / "tasks.py").write_text("raise SystemExit('a module of the user')\n")
    _, environment = here.onward.command()
    path = f"{place}:{environment['PYTHONPATH']}"
    said = here.onward("runs", "list", PYTHONPATH=path)
    assert str(place / "tasks.py") in said.sentence
    assert "instead of Onward's" in said.sentence
    started_there = cli_for(place, **here.onward.environment)("up", "--detach")
    assert str(place / "tasks.py") in started_there.sentence


def test_a_missing_agent_package_does_not_hide_the_journal(here: Here) -> None:
    """Looking, and letting go on, needs no agent's code."""
    run_id, gate = here.failed_run()
    gate.touch()
    without = {"ONWARD_AGENTS": "acme_gone"}
    assert here.onward("runs", "show", run_id, "--json", **without).json["run"]["state"] == "failed"
    assert here.onward("runs", "retry", run_id, "--json", **without).code == 0
    here.world.wait_run(run_id)
    assert here.onward("result", run_id, "--json", **without).json["state"] == "completed"
