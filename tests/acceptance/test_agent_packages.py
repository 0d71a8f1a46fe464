"""Where a worker finds the user's agents, which versions of them it runs, and what it refuses to start with."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from models.settings import settings
from recovery.watch import why
from tasks import registry
from tests.support.invariants import check_invariants
from tests.support.waiting import wait_until
from tests.support.world import World

AGENT = '''
"""A user's agent: it depends on the authoring API and on nothing else of ours."""

from tasks import Context, step, workflow


@step
def answer(ctx: Context, name: str) -> str:
    return f"{{name}} by version {{ctx.version}}"


@workflow("acme-review", version="{version}")
def review(name: str):
    return answer.s(name) | answer.s()
'''
QUEUE = "steps.acme-review@{}"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with two versions of an agent, as somebody's checkout."""
    checkout = tmp_path_factory.mktemp("checkout")
    for version in ("1", "2"):
        package = checkout / f"acme_review_v{version}"
        package.mkdir()
        (package / "__init__.py").write_text(AGENT.format(version=version))
    return checkout


@pytest.fixture(scope="module")
def installed(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which the second version is an installed distribution."""
    site = tmp_path_factory.mktemp("site")
    (site / "acme_review_v2").symlink_to(checkout / "acme_review_v2")
    info = site / "acme_review-2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-review\nVersion: 2.0\n")
    (info / "entry_points.txt").write_text("[onward.agents]\nreview = acme_review_v2\n")
    return site


@pytest.fixture(scope="module")
def world(make_world: Callable[..., AbstractContextManager[World]]) -> Iterator[World]:
    with make_world(agents="", env={"ONWARD_AGENTS": ""}) as world:
        world.cluster.recovery()
        yield world


def _submit(world: World, checkout: Path, version: str, *, name: str) -> str:
    """Submit from a process that has this version."""
    package = f"acme_review_v{version}"
    with pytest.MonkeyPatch.context() as patch, registry.isolated():
        patch.syspath_prepend(checkout)
        patch.delitem(sys.modules, package, raising=False)
        registry.load_agents(package)
        return world.start("acme-review", name=name)


def test_versions_stay_apart_and_each_way_of_loading_an_agent_works(
    world: World, checkout: Path, installed: Path
) -> None:
    old = _submit(world, checkout, "1", name="early")
    new = _submit(world, checkout, "2", name="late")
    for run_id, version in ((old, "1"), (new, "2")):
        assert why(run_id).word == "no_worker"
        assert repr(QUEUE.format(version)) in why(run_id).sentence

    world.cluster.worker("installed", env={"PYTHONPATH": str(installed)})  # by its entry point
    world.wait_run(new)
    assert world.value(new, "answer#2") == "late by version 2 by version 2"
    assert (world.state(old), why(old).word) == ("pending", "no_worker")
    assert world.queue_length(QUEUE.format("1")) > 0

    beside = {"PYTHONPATH": str(checkout), "ONWARD_AGENTS": "acme_review_v1"}
    world.cluster.worker("beside", env=beside)
    world.wait_run(old)
    assert world.value(old, "answer#2") == "early by version 1 by version 1"
    for run_id, name in ((old, "beside"), (new, "installed")):
        assert str(world.step(run_id, "answer").worker).startswith(f"{name}@")
        assert world.attempts(run_id) == {"answer": 1, "answer#2": 1}
        check_invariants(settings().database_url, run_id)


def _refusal(cwd: Path, **env: str) -> str:
    """The last words of a worker that does not start."""
    ended = subprocess.run(
        [sys.executable, "-m", "celery", "-A", "tasks", "worker"],
        cwd=cwd, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **env},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode != 0
    return ended.stderr.rstrip().splitlines()[-1]


@pytest.mark.parametrize("name", ["models", "recovery"])
def test_a_users_module_of_our_name_is_refused_with_both_paths(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text("x = 1\n")
    said = _refusal(tmp_path)
    assert str(tmp_path / f"{name}.py") in said
    assert str(Path(__file__).parents[2] / name) in said
    assert "Rename" in said


def test_a_missing_agent_package_is_named(tmp_path: Path) -> None:
    said = _refusal(tmp_path, ONWARD_AGENTS="acme_that_is_not_there")
    assert "ONWARD_AGENTS names acme_that_is_not_there" in said
    assert "installed" in said


def test_no_worker_of_a_version_becomes_no_worker_again_when_it_leaves(
    world: World, checkout: Path
) -> None:
    world.cluster.kill("beside")
    run_id = _submit(world, checkout, "1", name="stranded")
    reason = wait_until(
        lambda: found if (found := why(run_id)).word == "no_worker" else None,
        timeout=4 * settings().heartbeat + 5,
        what="the silence of the killed worker is noticed",
    )
    assert repr(QUEUE.format("1")) in reason.sentence
    assert reason.stuck
