"""The artifact store against everybody else: secrets in content, other writers, other files, a full disk."""

import hashlib
import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from models import redaction
from models.artifacts.errors import ArtifactUnavailable
from models.artifacts.places import shown_url
from models.artifacts.sources import Content
from models.artifacts.store import Store
from models.errors import InvalidIdentifier
from models.settings import settings
from tasks import Context
from tasks.artifacts import SecretInArtifact

KEY = "11" * 32
DENSE = hashlib.shake_256(b"dense").digest(3_000_000)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "artifacts"))


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    yield monkeypatch
    monkeypatch.undo()
    settings.cache_clear()


def _set_key(patch: pytest.MonkeyPatch, key: str) -> None:
    patch.setenv("ONWARD_ENCRYPTION_KEY", key)
    settings.cache_clear()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def test_what_others_keep_below_the_root_is_never_listed(tmp_path: Path) -> None:
    """A root may be a mount point, or set by mistake to a directory of somebody's: what is listed is collected."""
    store, other = Store(str(tmp_path / "root")), tmp_path / "other"
    kept = store.put(b"content")
    other.mkdir()
    for name in ("0" * 24, f"{'ab' * 32}"):
        (other / name).touch()
    for name in ("notes/a-file", "tmp/a-file", "tmp/deeper/a-file", "ab/a-file"):
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "root" / "tmp" / ("1" * 24)).symlink_to(other / ("0" * 24))
    (tmp_path / "root" / "ef").symlink_to(other, target_is_directory=True)
    unreadable = tmp_path / "root" / "lost+found"
    unreadable.mkdir(mode=0)
    assert [file.digest for file in store.files()] == [kept.digest]


@pytest.mark.parametrize("size", [1, 3, 11, 5000])
def test_a_secret_in_pieces_keeps_content_out(size: int) -> None:
    key, long = "CANARY-0123456789-abcdefghij", "L0ng/+&<" * 1500
    redaction.register("KEY", key)
    redaction.register("LONG", long)
    ctx = Context.for_test()
    for value in (key, long):
        data = f"before {value} after".encode()
        with pytest.raises(SecretInArtifact, match="nothing was kept"):
            ctx.artifact.put((data[at : at + size] for at in range(0, len(data), size)), name="x")
    with pytest.raises(InvalidIdentifier, match="holds the value of a secret") as refused:
        ctx.artifact.put(b"content", name=f"report of {key}")
    assert key not in str(refused.value)
    with pytest.raises(InvalidIdentifier, match="media_type"):
        ctx.artifact.put(b"content", name="x", media_type=key)


def test_an_author_gets_what_the_source_raised(tmp_path: Path) -> None:
    ctx = Context.for_test()
    with pytest.raises(FileNotFoundError):
        ctx.artifact.put(tmp_path / "nowhere", name="x")
    with pytest.raises(IsADirectoryError):
        ctx.artifact.put(tmp_path, name="x")
    with pytest.raises(TypeError, match="not str"):
        ctx.artifact.put(io.StringIO("text"), name="x")

    def broken() -> Iterator[bytes]:
        yield b"a"
        raise ValueError("the source broke") from KeyError("why")

    with pytest.raises(ValueError, match="the source broke") as caught:
        ctx.artifact.put(broken(), name="x")
    assert isinstance(caught.value.__cause__, KeyError)


def test_bytes_of_every_kind_are_content(store: Store) -> None:
    changing = bytearray(b"content")
    pieces: list[bytes | bytearray | memoryview] = [changing[:3], memoryview(b"tent")]
    kinds: tuple[Content, ...] = (changing, memoryview(b"content"), iter(pieces))
    assert {store.put(kind).digest for kind in kinds} == {_digest(b"content")}
    assert {store.put(iter(())).size, store.put(b"").size} == {0}


def test_writers_with_and_without_a_key_never_remove_each_others_last_copy(
    keys: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = Store(str(tmp_path))
    _set_key(keys, KEY)
    store.put(DENSE)
    _set_key(keys, "")
    digest = store.put(DENSE).digest
    assert len(list(store.files())) == 2
    assert store.get(digest) == DENSE
    _set_key(keys, KEY)
    assert store.get(digest) == DENSE
    _file_ends = {file.name.rpartition(".")[2] for file in store.files()}
    assert "sealed" in _file_ends
    store.put(DENSE)
    assert [file.name.endswith(".sealed") for file in store.files()] == [True]


def test_a_disk_that_is_full_half_way_leaves_nothing(tmp_path: Path) -> None:
    """A limit on the size of files stands in for the disk: the write fails in the same place."""
    code = f"""if True:
        import resource, signal
        from models.artifacts.errors import ArtifactUnavailable
        from models.artifacts.store import Store
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, 1_500_000))
        store = Store({str(tmp_path)!r})
        import os
        try:
            store.put(os.urandom(3_000_000))
        except ArtifactUnavailable as error:
            print("refused:", error)
        print(list(store.files()))
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "refused: the artifact store at" in done.stdout
    assert done.stdout.endswith("[]\n")


def test_the_password_of_a_store_is_not_shown() -> None:
    with pytest.raises(ArtifactUnavailable) as refused:
        Store("nosuch://user:CANARY-pass@host/bucket?key=CANARY-key")
    assert "nosuch://host/bucket" in str(refused.value)
    assert "CANARY" not in str(refused.value)
    assert shown_url("/a/directory") == "/a/directory"
