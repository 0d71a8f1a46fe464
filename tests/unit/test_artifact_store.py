"""The artifact store: whole or not there, what it was or an error, on a disk and on any fsspec store."""

import gzip
import hashlib
import io
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from models.artifacts import packing, sealing
from models.artifacts.errors import (
    ArtifactChanged,
    ArtifactTooLarge,
    ArtifactUnavailable,
)
from models.artifacts.places import TEMPORARY
from models.artifacts.store import Store
from models.errors import OnwardError
from models.settings import settings
from tasks import Context
from tasks.artifacts import Artifact

KEY, OTHER_KEY = "11" * 32, "22" * 32
DENSE = hashlib.shake_256(b"dense").digest(3_000_000)
CONTENTS = {
    "nothing": b"",
    "a byte": b"x",
    "a page": b"0123" * 1024,
    "text": b"a line of text\n" * 200_000,
    "dense": DENSE,
    "a frame": DENSE[: sealing.FRAME],
    "a frame and a byte": DENSE[: sealing.FRAME + 1],
}
_memories = itertools.count(1)


@pytest.fixture(params=["plain", "encrypted"])
def encryption(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[bool]:
    encrypted = bool(request.param == "encrypted")
    monkeypatch.setenv("ONWARD_ENCRYPTION_KEY", KEY if encrypted else "")
    settings.cache_clear()
    yield encrypted
    settings.cache_clear()


@pytest.fixture(params=["directory", "file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "memory":
        return Store(f"memory://store-{next(_memories)}/artifacts")
    return Store(f"{'file://' if request.param == 'file' else ''}{tmp_path / 'artifacts'}")


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    yield monkeypatch
    monkeypatch.undo()
    settings.cache_clear()


def _set_key(patch: pytest.MonkeyPatch, keys: str, *, command: str = "") -> None:
    patch.setenv("ONWARD_ENCRYPTION_KEY", keys)
    patch.setenv("ONWARD_ENCRYPTION_KEY_COMMAND", command)
    settings.cache_clear()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _file(store: Store, digest: str) -> Path:
    plain = digest.removeprefix("sha256:")
    (found,) = Path(store.url).glob(f"{plain[:2]}/{plain}*")
    return found


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_what_is_put_comes_back(store: Store, encryption: bool, content: bytes) -> None:
    stored = store.put(content)
    assert (stored.digest, stored.size) == (_digest(content), len(content))
    assert stored.encrypted is encryption
    assert store.get(stored.digest, size=len(content)) == content
    with store.open(stored.digest) as file:
        assert file.read(10) == content[:10]
        assert file.read() == content[10:]
    (kept,) = store.files()
    assert (kept.digest, kept.size) == (stored.digest, stored.stored_size)
    assert kept.age is not None
    assert 0 <= kept.age < 60


def test_every_source_gives_the_same_artifact(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "source"
    path.write_bytes(DENSE)
    pieces = (DENSE[at : at + 1000] for at in range(0, len(DENSE), 1000))
    sources = (DENSE, path, io.BytesIO(DENSE), pieces)
    assert {store.put(source).digest for source in sources} == {_digest(DENSE)}
    assert len(list(store.files())) == 1


def test_text_is_compressed_and_what_is_dense_or_small_is_not(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    text, small = CONTENTS["text"], CONTENTS["a page"]
    compressed = store.put(text)
    assert compressed.encoding == packing.GZIP
    assert compressed.stored_size < len(text) / 10
    assert gzip.decompress(_file(store, compressed.digest).read_bytes()) == text
    for content in (small, DENSE):
        stored = store.put(content)
        assert stored.encoding == packing.IDENTITY
        assert _file(store, stored.digest).read_bytes() == content


@pytest.mark.parametrize("name", ["a page", "text", "dense", "a frame"])
@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "longer", "gone"])
def test_changed_content_is_never_read(
    tmp_path: Path, encryption: bool, name: str, damage: str
) -> None:
    store, content = Store(str(tmp_path)), CONTENTS[name]
    digest = store.put(content).digest
    file = _file(store, digest)
    kept = file.read_bytes()
    middle = len(kept) // 2
    damaged = {
        "flip": kept[:middle] + bytes([kept[middle] ^ 1]) + kept[middle + 1 :], "cut": kept[:-1],
        "empty": b"", "longer": kept + b"!",
    }  # fmt: skip
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(damaged[damage])
    for read in (
        lambda: store.get(digest, size=len(content)),
        lambda: store.verify(digest),
        lambda: store.open(digest).read(),
    ):
        with pytest.raises(ArtifactChanged) as caught:
            read()
        assert digest in str(caught.value)
        assert caught.value.actual != digest
        assert (caught.value.actual is None) == (damage == "gone")
    store.put(content)
    assert store.get(digest) == content


def test_a_stream_ends_only_when_it_was_whole(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    digest = store.put(DENSE).digest
    file = _file(store, digest)
    file.write_bytes(DENSE[:-1] + b"?")
    taken: list[bytes] = []

    def read() -> None:
        with store.open(digest) as stream:
            while piece := stream.read(100_000):
                taken.append(piece)

    with pytest.raises(ArtifactChanged):
        read()
    assert 0 < sum(map(len, taken)) < len(DENSE)


def test_another_size_is_another_artifact(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    digest = store.put(b"1234").digest
    with pytest.raises(ArtifactChanged, match=r"expected .* \(5 bytes\), found .* \(4 bytes\)"):
        store.get(digest, size=5)


def test_frames_that_were_swapped_do_not_open(keys: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _set_key(keys, KEY)
    store = Store(str(tmp_path))
    digest = store.put(DENSE).digest
    file = _file(store, digest)
    raw = file.read_bytes()
    frame = sealing.FRAME + 16
    head = len(raw) - (2 * frame + len(DENSE) - 2 * sealing.FRAME + 16)
    swapped = raw[:head] + raw[head + frame : head + 2 * frame] + raw[head : head + frame]
    file.write_bytes(swapped + raw[head + 2 * frame :])
    with pytest.raises(ArtifactChanged):
        store.get(digest)
    file.write_bytes(raw[: head + 2 * frame])  # ends between two frames
    with pytest.raises(ArtifactChanged):
        store.get(digest)


def test_nothing_is_left_of_what_was_not_put_to_its_end(store: Store) -> None:
    def broken() -> Iterator[bytes]:
        yield DENSE
        raise ValueError("the source broke")

    with pytest.raises(ValueError, match="the source broke"):
        store.put(broken())
    with pytest.raises(ArtifactTooLarge, match="ONWARD_ARTIFACT_LIMIT"):
        store.put(DENSE, limit=len(DENSE) - 1)
    assert list(store.files()) == []
    assert store.put(DENSE, limit=len(DENSE)).size == len(DENSE)


def test_a_source_that_is_missing_says_nothing_about_the_store(
    store: Store, tmp_path: Path
) -> None:
    with pytest.raises(FileNotFoundError):
        store.put(tmp_path / "nowhere")
    with pytest.raises(TypeError, match="bytes, not str"):
        store.put(["text"])  # type: ignore[list-item]


def test_a_store_that_cannot_be_written_to_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ArtifactUnavailable, match="ONWARD_ARTIFACTS"):
        Store(str(tmp_path / "file")).put(b"content")
    with pytest.raises(ArtifactUnavailable, match="nosuch"):
        Store("nosuch://bucket")


def test_digests_are_no_paths(tmp_path: Path) -> None:
    for digest in ("sha256:../../etc/passwd", "sha256:" + "A" * 64, "", "md5:" + "0" * 64):
        with pytest.raises(OnwardError, match="no digest"):
            Store(str(tmp_path)).get(digest)


def test_a_context_for_tests_keeps_artifacts_of_its_own(tmp_path: Path) -> None:
    ctx = Context.for_test()
    made = ctx.artifact.put("käse", name="cheese.txt", media_type="text/plain")
    assert (made.size, made.media_type) == (5, "text/plain")
    assert ctx.artifact.get(made) == "käse".encode()
    with ctx.artifact.open(made) as file:
        assert file.readlines() == ["käse".encode()]
    with pytest.raises(ArtifactChanged, match=r"'cheese\.txt' is not what was recorded"):
        Context.for_test().artifact.get(made)
    with pytest.raises(ValidationError):
        Artifact(digest="sha256:0", size=1, name="x")


def test_temporary_files_lie_apart(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    left = tmp_path / TEMPORARY / ("0" * 24)
    left.parent.mkdir()
    left.touch()
    os.utime(left, (1, 1))
    (found,) = store.files()
    assert (found.name, found.digest) == (f"{TEMPORARY}/{left.name}", None)
    assert (found.age or 0) > 1_000_000
