"""Where files lie: a local directory, or any store that fsspec has a driver for.

Both write under a temporary name first and then give the file its own name in one step, so that no
reader ever finds half of one. The local directory also sees to it that what was named survives a loss
of power.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit, urlunsplit

from models.artifacts.errors import ArtifactUnavailable
from models.artifacts.packing import CHUNK
from models.ids import new_nonce

TEMPORARY: Final = "tmp"  #: the folder of files that are being written
#: Names of files that a store writes. Anything else below its root is somebody else's, and never listed.
_OURS: Final = re.compile(
    rf"[0-9a-f]{{2}}/[0-9a-f]{{64}}(?:\.gz)?(?:\.sealed)?|{TEMPORARY}/[0-9a-f]{{24}}"
)
_FOLDER: Final = re.compile(rf"[0-9a-f]{{2}}|{TEMPORARY}")


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a store. ``age`` in seconds by the store's own clock; None where it has none."""

    name: str
    size: int
    age: float | None


class Place(Protocol):
    """What a store needs of the place that its files lie in. Names are relative, with slashes."""

    def write(self, chunks: Iterable[bytes]) -> str:
        """Write a temporary file to its end and return its name; nothing is left when that fails."""
        ...

    def rename(self, temporary: str, name: str) -> None:
        """Give a whole file its name, in place of one that may have it."""
        ...

    def read(self, name: str) -> Iterator[bytes]:
        """The file's bytes. Raises ``FileNotFoundError`` before the first."""
        ...

    def exists(self, name: str) -> bool: ...

    def remove(self, name: str) -> None:
        """Also when it is not there."""
        ...

    def entries(self) -> Iterator[Entry]: ...


def place_at(url: str) -> Place:
    """The place that a setting names: a path, ``file://...``, or a URL that fsspec knows."""
    scheme = urlsplit(url).scheme if "://" in url else ""
    if not scheme or scheme == "file":
        return Directory(Path(url.removeprefix("file://")).absolute())
    return Remote(url)


def shown_url(url: str) -> str:
    """The setting as people and the journal may see it: without user, password and query."""
    if "://" not in url:
        return url
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory of this machine, or one that all machines mount."""

    root: Path

    def write(self, chunks: Iterable[bytes]) -> str:
        name = f"{TEMPORARY}/{new_nonce()}"
        path = self._made(name)
        try:
            with path.open("xb") as file:
                for chunk in chunks:
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return name

    def rename(self, temporary: str, name: str) -> None:
        path = self._made(name)
        (self.root / temporary).replace(path)
        _sync(path.parent)

    def read(self, name: str) -> Iterator[bytes]:
        with (self.root / name).open("rb", buffering=0) as file:
            while chunk := file.read(CHUNK):
                yield chunk

    def exists(self, name: str) -> bool:
        return (self.root / name).is_file()

    def remove(self, name: str) -> None:
        (self.root / name).unlink(missing_ok=True)

    def entries(self) -> Iterator[Entry]:
        if not self.root.is_dir():
            return
        now = self._now()
        for folder in sorted(self.root.iterdir()):
            if not _FOLDER.fullmatch(folder.name) or folder.is_symlink() or not folder.is_dir():
                continue
            for path in sorted(folder.iterdir()):
                name = f"{folder.name}/{path.name}"
                try:
                    seen = path.lstat()
                except FileNotFoundError:
                    continue  # named, or given up, meanwhile
                if _OURS.fullmatch(name) and stat.S_ISREG(seen.st_mode):
                    yield Entry(name, seen.st_size, now - seen.st_mtime)

    def _now(self) -> float:
        """By the clock that stamps the files, which on a network disk is another machine's."""
        probe = self._made(f"{TEMPORARY}/{new_nonce()}")
        probe.touch()
        try:
            return probe.stat().st_mtime
        finally:
            probe.unlink(missing_ok=True)

    def _made(self, name: str) -> Path:
        path = self.root / name
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            _sync(self.root)
        return path


class Remote:
    """Any store of fsspec's: object stores make a file visible when it is whole, others by the rename."""

    def __init__(self, url: str) -> None:
        try:
            from fsspec.core import url_to_fs  # noqa: PLC0415 - an extra
        except ImportError:
            raise ArtifactUnavailable(
                shown_url(url), "a URL needs the library fsspec: pip install 'onward[artifacts]'"
            ) from None
        try:
            self._files, self._root = url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise ArtifactUnavailable(shown_url(url), error) from error

    def write(self, chunks: Iterable[bytes]) -> str:
        name = f"{TEMPORARY}/{new_nonce()}"
        path = self._path(name)
        self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
        try:
            with self._files.open(path, "wb") as file:
                for chunk in chunks:
                    file.write(chunk)
        except BaseException:
            self.remove(name)
            raise
        return name

    def rename(self, temporary: str, name: str) -> None:
        path = self._path(name)
        self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
        self._files.mv(self._path(temporary), path)

    def read(self, name: str) -> Iterator[bytes]:
        with self._files.open(self._path(name), "rb") as file:
            while chunk := file.read(CHUNK):
                yield chunk

    def exists(self, name: str) -> bool:
        self._files.invalidate_cache()
        return bool(self._files.isfile(self._path(name)))

    def remove(self, name: str) -> None:
        path = self._path(name)
        if self._files.exists(path):
            self._files.rm(path)

    def entries(self) -> Iterator[Entry]:
        self._files.invalidate_cache()
        if not self._files.exists(self._root):
            return
        now = self._now()
        for path, seen in sorted(self._files.find(self._root, detail=True).items()):
            name = path[len(self._root) :].lstrip("/")
            if not _OURS.fullmatch(name):
                continue
            changed = self._changed(path)
            age = None if now is None or changed is None else (now - changed).total_seconds()
            yield Entry(name, int(seen["size"] or 0), age)

    def _now(self) -> datetime | None:
        name = self.write([b"."])
        try:
            return self._changed(self._path(name))
        finally:
            self.remove(name)

    def _changed(self, path: str) -> datetime | None:
        try:
            found: Any = self._files.modified(path)
        except (NotImplementedError, FileNotFoundError):
            return None
        return found if isinstance(found, datetime) else None

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"


def _sync(folder: Path) -> None:
    """Make names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
