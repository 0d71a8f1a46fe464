"""C18: content of the same size with other bytes, of none, gone, or half written, and what the next step does."""

import hashlib
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import count
from pathlib import Path

import pytest

from models.artifacts.store import Store, current
from models.settings import settings
from ops import artifacts as keeping
from ops import client, resuming
from recovery.verify import verify
from recovery.watch import why
from tests.agents.large import text_of
from tests.support.waiting import wait_until
from tests.support.world import World

SIZE = 4096
LARGE = 400_000
NOTHING = f"sha256:{hashlib.sha256(b'').hexdigest()}"
_gates = count(1)

Damage = Callable[[Path], str]  #: what is found afterwards: a digest, or "nothing"


@pytest.fixture(scope="module")
def world(make_world: Callable[..., AbstractContextManager[World]]) -> Iterator[World]:
    with make_world(agents="tests.agents.large") as world:
        world.cluster.recovery()
        world.cluster.worker("worker-1")
        yield world


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _overwrite(file: Path) -> str:
    """Other bytes, as many."""
    other = b"Z" * file.stat().st_size
    file.write_bytes(other)
    return _digest(other)


def _swap(file: Path) -> str:
    """A whole file of this store, with the content of another artifact of the same size."""
    size = SIZE if file.stat().st_size == SIZE else LARGE
    other = text_of(size)[::-1].encode()
    found = current().put(other)
    plain = found.digest.removeprefix("sha256:")
    (source,) = Path(settings().artifacts).glob(f"{plain[:2]}/{plain}*")
    shutil.copy(source, file)
    return found.digest


def _truncate(file: Path) -> str:
    file.write_bytes(b"")
    return NOTHING


def _delete(file: Path) -> str:
    file.unlink()
    return "nothing"


DAMAGES: tuple[Damage, ...] = (_overwrite, _swap, _truncate, _delete)


def _file(digest: str) -> Path:
    plain = digest.removeprefix("sha256:")
    (found,) = Path(settings().artifacts).glob(f"{plain[:2]}/{plain}*")
    return found


def _gated(world: World, workflow: str, **given: object) -> tuple[str, str]:
    """A run held in the step before the one that takes the content, and its gate."""
    gate = f"{workflow}-{next(_gates)}"
    world.fx.hold(gate, "after")
    run_id = world.start(workflow, gate=gate, **given)
    world.fx.wait_held(gate)
    return run_id, gate


def _blocked(
    world: World, run_id: str, step_key: str, *, digest: str, size: int, found: str
) -> None:
    world.wait_run(run_id, "blocked")
    assert why(run_id).word == "artifact_changed"
    assert world.bodies(run_id, step_key) == 0
    ((_, about, detail),) = world.events(run_id, "run_blocked")
    assert about == step_key
    assert f"expected {digest} ({size:,} bytes), found {found}" in detail


def _goes_on(world: World, run_id: str, step_key: str, *, file: Path, kept: bytes) -> None:
    """Resumed in vain while it is damaged, and to its end once it was put back."""
    assert resuming.resume(run_id, by="me") == [step_key]
    world.wait_run(run_id, "blocked")
    wait_until(
        lambda: len(world.events(run_id, "run_blocked")) == 2, what=f"{run_id} is blocked again"
    )
    assert world.bodies(run_id, step_key) == 0
    file.write_bytes(kept)
    assert resuming.resume(run_id, by="me") == [step_key]
    world.wait_run(run_id)
    assert world.bodies(run_id, step_key) == 1
    assert verify(run_id) == []


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda one: one.__name__.strip("_"))
def test_C18_a_changed_artifact_stops_the_step_that_takes_it(world: World, damage: Damage) -> None:
    run_id, gate = _gated(world, "keep-gated", size=SIZE)
    digest = _digest(text_of(SIZE).encode())
    file = _file(digest)
    kept = file.read_bytes()
    assert len(kept) == SIZE
    found = damage(file)
    world.fx.release(gate)

    _blocked(world, run_id, "use", digest=digest, size=SIZE, found=found)
    (finding,) = verify(run_id)
    assert finding.word == ("artifact_missing" if found == "nothing" else "artifact_changed")
    assert digest in finding.sentence
    _goes_on(world, run_id, "use", file=file, kept=kept)
    assert client.result(run_id) == digest.removeprefix("sha256:")
    assert world.bodies(run_id, "store") == 1


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda one: one.__name__.strip("_"))
def test_C18_so_does_a_value_that_was_moved_out_of_the_journal(
    world: World, damage: Damage
) -> None:
    joined, gate = _gated(world, "joined-gated", size=LARGE)
    wait_until(lambda: "produce" in world.results(joined), what="the other member is done")
    digest = _digest(text_of(LARGE).encode())
    file = _file(digest)
    kept = file.read_bytes()
    found = damage(file)
    world.fx.release(gate)

    _blocked(world, joined, "gather", digest=digest, size=LARGE, found=found)
    _goes_on(world, joined, "gather", file=file, kept=kept)
    assert client.result(joined) == [LARGE, len(gate)]
    assert world.bodies(joined, "produce") == 1


def test_C18_and_arguments_that_were_bound_at_submission(world: World) -> None:
    text = text_of(LARGE) + "!"
    run_id, gate = _gated(world, "bound-gated", text=text)
    bound = f'{{"args":["{text}"],"kwargs":{{}}}}'.encode()
    file = _file(_digest(bound))
    kept = file.read_bytes()
    _delete(file)
    world.fx.release(gate)
    _blocked(world, run_id, "measure", digest=_digest(bound), size=len(bound), found="nothing")
    _goes_on(world, run_id, "measure", file=file, kept=kept)
    assert client.result(run_id) == len(text)


def test_C18_a_result_that_is_gone_is_not_made_up(world: World) -> None:
    run_id = world.start("large-input", text=text_of(10))
    world.wait_run(run_id)
    kept = world.start("keep", size=SIZE)
    world.wait_run(kept)
    _delete(_file(_digest(text_of(SIZE).encode())))
    (finding,) = verify(kept)
    assert finding.word == "artifact_missing"


def test_C18_half_an_upload_is_never_an_artifact(world: World) -> None:
    size = 3_000_000
    digest = _digest(text_of(size).encode())
    before = {file.name for file in current().files()}
    run_id = world.start("keep", size=size, die=True)
    world.wait_run(run_id, timeout=30)

    assert world.attempts(run_id) == {"store": 2, "use": 1}
    assert client.result(run_id) == digest.removeprefix("sha256:")
    assert verify(run_id) == []
    left = [file for file in current().files() if file.name not in before]
    (half,) = [file for file in left if file.digest is None]
    assert [file.digest for file in left if file.digest is not None] == [digest]

    assert keeping.collect(older_than=3600).count == 0
    found = keeping.collect(older_than=0)
    assert half.name in found.temporary
    assert digest not in found.orphans
    assert current().has(digest)
    assert verify(run_id) == []


def test_C18_what_nothing_needs_is_collected_and_the_rest_stays(world: World) -> None:
    kept = world.start("joined-gated", size=LARGE, gate="open")
    world.wait_run(kept)
    unknown = current().put(b"put by nobody")
    needed = {file.digest for file in current().files()} - {unknown.digest}
    found = keeping.collect(older_than=0)
    assert unknown.digest in found.unknown
    assert not Store(settings().artifacts).has(unknown.digest)
    assert _digest(text_of(LARGE).encode()) in needed
    assert verify(kept) == []
