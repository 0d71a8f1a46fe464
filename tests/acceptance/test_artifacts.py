"""``onward artifacts`` beside real workers, with content in clear and encrypted."""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest

from models.artifacts.places import TEMPORARY
from models.settings import settings
from ops import client, resuming
from recovery.verify import verify
from tests.agents.large import text_of
from tests.support.cli import Cli, cli_for
from tests.support.cluster import FAST
from tests.support.world import World

AGENTS = "tests.agents.large,tests.agents.undoing"
KEY, OTHER_KEY = "11" * 32, "22" * 32
SIZE = 400_000


@dataclass(frozen=True)
class Stage:
    world: World
    root: Path
    encrypted: bool

    def onward(self, directory: Path, **more: str) -> Cli:
        key = {"ONWARD_ENCRYPTION_KEY": KEY} if self.encrypted else {}
        return cli_for(
            directory, **FAST, **{"ONWARD_AGENTS": AGENTS, **key, **more}, ONWARD_ARTIFACTS=str(self.root),
            ONWARD_DATABASE_URL=settings().database_url, ONWARD_BROKER_URL=settings().broker_url,
        )  # fmt: skip


@pytest.fixture(scope="module", params=["in clear", "encrypted"])
def stage(
    request: pytest.FixtureRequest, make_world: Callable[..., AbstractContextManager[World]]
) -> Iterator[Stage]:
    encrypted = request.param == "encrypted"
    env = {"ONWARD_ENCRYPTION_KEY": KEY} if encrypted else {}
    with make_world(agents=AGENTS, env=env) as world:
        world.cluster.up()
        yield Stage(world, Path(settings().artifacts), encrypted)


def _digest(size: int) -> str:
    return f"sha256:{hashlib.sha256(text_of(size).encode()).hexdigest()}"


def test_a_run_with_artifacts_is_listed_verified_and_read(stage: Stage, tmp_path: Path) -> None:
    world, onward = stage.world, stage.onward(tmp_path)
    run_id = world.start("keep", size=SIZE)
    world.wait_run(run_id)
    digest = _digest(SIZE)

    (listed,) = onward("artifacts", "list", "--run", run_id, "--json").json
    assert (listed["digest"], listed["size"], listed["needed"]) == (digest, SIZE, True)
    assert (listed["encoding"], listed["encrypted"]) == ("gzip", stage.encrypted)
    assert digest in onward("artifacts", "list").out
    assert onward("artifacts", "verify", "--run", run_id, "--json").json == {
        "whole": 1,
        "wrong": [],
    }
    assert onward("runs", "verify", run_id).code == 0

    copy = tmp_path / "scan.bin"
    assert onward("artifacts", "get", digest, "--output", str(copy)).code == 0
    assert copy.read_bytes() == text_of(SIZE).encode()
    assert "exists already" in onward("artifacts", "get", digest, "--output", str(copy)).sentence


def test_what_is_wrong_is_named(stage: Stage, tmp_path: Path) -> None:
    world, onward = stage.world, stage.onward(tmp_path)
    run_id = world.start("keep", size=SIZE + 1)
    world.wait_run(run_id)
    digest = _digest(SIZE + 1)
    (file,) = stage.root.glob(f"*/{digest.removeprefix('sha256:')}*")
    kept = file.read_bytes()
    file.write_bytes(kept[:-10])

    said = onward("artifacts", "verify", "--run", run_id)
    assert said.code == 1
    assert f"expected {digest} ({SIZE + 1:,} bytes), found sha256:" in said.out
    assert onward("runs", "verify", run_id).code == 1
    copy = tmp_path / "scan.bin"
    assert digest in onward("artifacts", "get", digest, "--output", str(copy)).sentence
    assert not copy.exists()
    file.write_bytes(kept)
    assert onward("artifacts", "verify", "--run", run_id).code == 0


def test_only_what_nobody_needs_is_collected(stage: Stage, tmp_path: Path) -> None:
    world, onward = stage.world, stage.onward(tmp_path)
    run_id = world.start("keep", size=SIZE)
    world.wait_run(run_id)
    left = stage.root / TEMPORARY / ("0" * 24)
    left.write_bytes(b"half")
    os.utime(left, (1, 1))

    told = onward("artifacts", "collect", "--dry-run", "--json").json
    assert told["temporary"] == [f"tmp/{left.name}"]
    assert left.exists()
    assert "1 unfinished files were removed" in onward("artifacts", "collect").out
    assert not left.exists()
    assert onward("artifacts", "collect", "--older-than", "0", "--json").json["orphans"] == []
    assert verify(run_id) == []


def test_effects_are_undone_from_what_was_recorded(stage: Stage, tmp_path: Path) -> None:
    """Requests and results are read back by whoever compensates, encrypted or not."""
    world, onward = stage.world, stage.onward(tmp_path)
    run_id = world.start("trip", trip="away")
    world.wait_run(run_id, "completed", "failed")
    effects = onward("effects", "list", "--run", run_id, "--json").json
    assert effects
    made = world.fx.all_effects("")
    assert sum(made.values()) >= 1
    asked = [word for one in effects for word in ("--only", one["key"])]
    said = onward("runs", "compensate", run_id, *asked, "--by", "me", "--reason", "test", "--yes")
    assert said.code == 0, said
    settled = onward("effects", "list", "--run", run_id, "--json").json
    assert all(one["result"] is None or "onward-sealed" not in one["result"] for one in settled)
    assert client.wait(run_id, 30)


def test_without_its_key_a_run_waits_and_goes_on_with_it(
    make_world: Callable[..., AbstractContextManager[World]],
) -> None:
    with make_world(agents=AGENTS, env={"ONWARD_ENCRYPTION_KEY": KEY}) as world:
        world.cluster.recovery()
        run_id = world.start("large", size=SIZE)
        world.cluster.worker("other", env={"ONWARD_ENCRYPTION_KEY": OTHER_KEY})
        world.wait_run(run_id, "blocked")
        assert world.step(run_id, "produce").block_reason == "environment_changed"
        assert "ONWARD_ENCRYPTION_KEY" in str(world.step(run_id, "produce").error)
        assert world.bodies(run_id) == 0
        world.cluster.kill("other")
        world.cluster.worker("rotated", env={"ONWARD_ENCRYPTION_KEY": f"{OTHER_KEY},{KEY}"})
        assert resuming.resume(run_id, by="me") == ["produce"]
        world.wait_run(run_id)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ONWARD_ENCRYPTION_KEY", f"{KEY} {OTHER_KEY}")
            settings.cache_clear()
            assert client.result(run_id)["size"] == SIZE
            assert verify(run_id) == []
        settings.cache_clear()


def test_a_result_that_cannot_be_encrypted_waits_for_the_key(
    make_world: Callable[..., AbstractContextManager[World]],
) -> None:
    """Found out only when the body is through: its work is not to blame, and nothing fails for good."""
    with make_world(agents=AGENTS) as world:
        world.cluster.recovery()
        run_id = world.start("large-then", size=10)
        world.cluster.worker("malformed", env={"ONWARD_ENCRYPTION_KEY": "no-key"})
        world.wait_run(run_id, "blocked")
        assert world.step(run_id, "grow").block_reason == "environment_changed"
        assert "openssl rand -base64 32" in str(world.step(run_id, "grow").error)
        world.cluster.kill("malformed")
        world.cluster.worker("mended", env={"ONWARD_ENCRYPTION_KEY": KEY})
        assert resuming.resume(run_id, by="me") == ["grow"]
        world.wait_run(run_id)
