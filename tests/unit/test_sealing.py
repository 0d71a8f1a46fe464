"""Keys of encryption at rest: how they are given, rotated, refused, and never shown."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from models.artifacts import sealing
from models.artifacts.errors import EncryptionProblem
from models.artifacts.store import Store
from models.settings import settings

KEY, OTHER_KEY = "11" * 32, "22" * 32
DENSE = hashlib.shake_256(b"dense").digest(3_000_000)
TEXT = b"a line of text\n" * 200_000


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    yield monkeypatch
    monkeypatch.undo()
    settings.cache_clear()


def _set_key(patch: pytest.MonkeyPatch, keys: str, *, command: str = "") -> None:
    patch.setenv("ONWARD_ENCRYPTION_KEY", keys)
    patch.setenv("ONWARD_ENCRYPTION_KEY_COMMAND", command)
    settings.cache_clear()


def _file(store: Store, digest: str) -> Path:
    plain = digest.removeprefix("sha256:")
    (found,) = Path(store.url).glob(f"{plain[:2]}/{plain}*")
    return found


def test_keys_are_rotated_by_adding_one(keys: pytest.MonkeyPatch, tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    _set_key(keys, KEY)
    old = store.put(DENSE).digest
    assert DENSE[:64] not in _file(store, old).read_bytes()
    text = sealing.seal_text("a secret")
    _set_key(keys, f"{OTHER_KEY},{KEY}")
    assert store.get(old) == DENSE
    assert sealing.open_text(*text) == "a secret"
    new = store.put(b"new")
    _set_key(keys, OTHER_KEY)
    assert store.get(new.digest) == b"new"
    for read in (lambda: store.get(old), lambda: sealing.open_text(*text)):
        with pytest.raises(EncryptionProblem, match="none of ONWARD_ENCRYPTION_KEY"):
            read()
    _set_key(keys, "")
    with pytest.raises(EncryptionProblem, match="set ONWARD_ENCRYPTION_KEY"):
        store.get(old)


def test_turned_on_later_it_leaves_no_copy_in_clear(
    keys: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = Store(str(tmp_path))
    digest = store.put(TEXT).digest
    _set_key(keys, KEY)
    assert store.get(digest) == TEXT
    store.put(TEXT)
    assert _file(store, digest).name.endswith(".gz.sealed")
    assert store.get(digest) == TEXT


def test_a_command_gives_the_key(keys: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    _set_key(keys, "", command=f"cat {file}")
    sealed = sealing.seal_text("a secret")
    _set_key(keys, KEY)
    assert sealing.open_text(*sealed) == "a secret"
    _set_key(keys, "", command="false")
    with pytest.raises(EncryptionProblem, match="ended with 1"):
        sealing.keyring()


@pytest.mark.parametrize("key", ["short", "zz" * 32, "A" * 44 + "!", KEY + "," + "x"])
def test_a_key_of_another_shape_is_refused_and_not_shown(
    keys: pytest.MonkeyPatch, key: str
) -> None:
    _set_key(keys, key)
    with pytest.raises(EncryptionProblem, match="openssl rand -base64 32") as caught:
        sealing.keyring()
    assert key not in str(caught.value)


def test_keys_do_not_show(keys: pytest.MonkeyPatch) -> None:
    _set_key(keys, KEY)
    assert KEY not in repr(sealing.keyring())
    assert KEY not in repr(settings())
