"""The artifact store: content by its SHA-256, checked on every read, whole or not there at all.

    <root>/ab/abcdef...          as it is
    <root>/ab/abcdef....gz       compressed; `zcat` reads it
    <root>/ab/abcdef....sealed   encrypted; also `.gz.sealed`
    <root>/tmp/...               being written, or left behind by a process that was killed

What is put is always written, also where a file of that name lies already: that one may be damaged.
Nothing here knows of runs; ``models.journal.artifacts`` does.
"""

import hashlib
import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, BinaryIO, Final

from billiard.exceptions import SoftTimeLimitExceeded

from models.artifacts.errors import ArtifactChanged, ArtifactTooLarge, ArtifactUnavailable
from models.artifacts.packing import CHUNK, GZIP, IDENTITY, Unreadable, packed, tee, unpacked
from models.artifacts.places import TEMPORARY, Place, place_at, shown_url
from models.artifacts.sealing import is_on
from models.artifacts.sources import Content, Screen, SourceFailed, stream
from models.errors import OnwardError
from models.settings import settings

_PREFIX: Final = "sha256:"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
#: Ends of names, and what they say of the file: (encoding, encrypted); the safest first.
_FORMS: Final = {
    ".gz.sealed": (GZIP, True), ".sealed": (IDENTITY, True), ".gz": (GZIP, False), "": (IDENTITY, False),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stored:
    """Content that was put: what it is, and how it lies in the store."""

    digest: str
    size: int
    encoding: str
    stored_size: int
    encrypted: bool


@dataclass(frozen=True, slots=True)
class Kept:
    """One file of the store. ``digest`` is None for what is being written, or was left behind."""

    name: str
    digest: str | None
    size: int
    age: float | None


class Store:
    """One store; holds nothing but where it is."""

    def __init__(self, url: str) -> None:
        self.url = shown_url(url)  #: for people
        self._place: Place = place_at(url)

    def put(self, content: Content, *, limit: int | None = None, screen: Screen = iter) -> Stored:
        """Keep content, from memory, a file or a stream, without holding it in memory.

        Returns when it is whole and durable under its digest. Raises ``ArtifactTooLarge`` (nothing is
        kept), ``ArtifactUnavailable``, or whatever reading the source, or the ``screen`` it passes, raises.
        """
        count = _Count(limit)
        out = _Count(None)
        with self._talking(), stream(content, screen) as chunks:
            encoding, stored = packed(tee(chunks, count))
            temporary = self._place.write(tee(stored, out))
            encrypted = is_on()
            name = _name(count.digest, (encoding, encrypted))
            self._place.rename(temporary, name)
            self._supersede(count.digest, (encoding, encrypted))
        return Stored(count.digest, count.size, encoding, out.size, encrypted)

    def chunks(self, digest: str, *, size: int | None = None, name: str = "") -> Iterator[bytes]:
        """The content, piece by piece; its last piece comes only when all of it was what it should be.

        Raises ``ArtifactChanged`` for other content, less, more, or none, and ``ArtifactUnavailable``.
        """
        form = self._form(digest)
        if form is None:
            raise ArtifactChanged(
                digest, size=size, actual=None, where=self._where(digest), name=name
            )
        count, held = _Count(None), b""
        try:
            with self._talking():
                read = self._place.read(_name(digest, form))
                for chunk in tee(unpacked(read, encoding=form[0], encrypted=form[1]), count):
                    yield held
                    held = chunk
        except FileNotFoundError:
            raise ArtifactChanged(
                digest, size=size, actual=None, where=self._where(digest), name=name
            ) from None
        except Unreadable as error:
            raise self._damaged(digest, form, size=size, name=name) from error
        if count.digest != digest or size not in (None, count.size):
            raise ArtifactChanged(
                digest, size=size, actual=count.digest, actual_size=count.size,
                where=self._where(digest, form), name=name,
            )  # fmt: skip
        yield held

    def get(self, digest: str, *, size: int | None = None, name: str = "") -> bytes:
        """The whole content. Raises as ``chunks`` does."""
        return b"".join(self.chunks(digest, size=size, name=name))

    def open(self, digest: str, *, size: int | None = None, name: str = "") -> BinaryIO:
        """A readable stream of the content; reading its end raises ``ArtifactChanged`` if it is not what it was."""
        return io.BufferedReader(Reader(self.chunks(digest, size=size, name=name)), CHUNK)

    def verify(self, digest: str, *, size: int | None = None, name: str = "") -> None:
        """Read all of it. Raises as ``chunks`` does."""
        for _ in self.chunks(digest, size=size, name=name):
            pass

    def has(self, digest: str) -> bool:
        """Whether there is a file of this digest, whatever is in it."""
        return self._form(digest) is not None

    def remove(self, name: str) -> None:
        """Remove one file by its name, as ``files`` gives it."""
        with self._talking():
            self._place.remove(name)

    def forget(self, digest: str) -> None:
        """Remove every file of this digest."""
        for form in _FORMS.values():
            self.remove(_name(digest, form))

    def files(self) -> Iterator[Kept]:
        """Every file that lies there."""
        with self._talking():
            for entry in self._place.entries():
                yield Kept(entry.name, _digest_of(entry.name), entry.size, entry.age)

    def _supersede(self, digest: str, form: tuple[str, bool]) -> None:
        """Remove what lies there in less safe forms: no copy in clear stays beside an encrypted one.

        Never the other way round: of two writers, one with a key and one without, each would remove what the
        other has just named, and nothing would be left.
        """
        forms = list(_FORMS.values())
        for other in forms[forms.index(form) + 1 :]:
            self._place.remove(_name(digest, other))

    def _form(self, digest: str) -> tuple[str, bool] | None:
        if not _DIGEST.fullmatch(digest):
            raise OnwardError(
                f"{digest[:80]!r} is no digest of an artifact: sha256: and 64 hex digits"
            )
        encrypted = is_on()  # what this process would write itself is looked for first
        with self._talking():
            return next(
                (
                    form
                    for form in sorted(_FORMS.values(), key=lambda form: form[1] is not encrypted)
                    if self._place.exists(_name(digest, form))
                ),
                None,
            )

    def _damaged(
        self, digest: str, form: tuple[str, bool], *, size: int | None, name: str
    ) -> ArtifactChanged:
        """Stored bytes that do not even unpack are named by what they are."""
        count = _Count(None)
        with self._talking():
            for chunk in self._place.read(_name(digest, form)):
                count(chunk)
        return ArtifactChanged(
            digest, size=size, actual=count.digest, actual_size=count.size,
            where=self._where(digest, form), name=name,
        )  # fmt: skip

    def _where(self, digest: str, form: tuple[str, bool] = (IDENTITY, False)) -> str:
        return f"{self.url}/{_name(digest, form)}"

    @contextmanager
    def _talking(self) -> Iterator[None]:
        """What goes wrong with the store itself, whatever its driver raises, in one word of ours."""
        try:
            yield
        except SourceFailed as failed:
            raise failed.error from failed.error.__cause__
        except (OnwardError, Unreadable, FileNotFoundError, MemoryError, SoftTimeLimitExceeded):
            raise
        except Exception as error:
            raise ArtifactUnavailable(self.url, f"{type(error).__name__}: {error}") from error


def current() -> Store:
    """The store of this process's settings."""
    return _store(settings().artifacts, os.getpid())


@lru_cache(maxsize=4)
def _store(url: str, _pid: int) -> Store:
    """A store per process: drivers of remote ones do not survive a fork."""
    return Store(url)


class _Count:
    """Hashes and counts what passes."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._hash = hashlib.sha256()
        self.size = 0

    def __call__(self, chunk: bytes) -> None:
        self.size += len(chunk)
        if self._limit is not None and self.size > self._limit:
            raise ArtifactTooLarge(self._limit)
        self._hash.update(chunk)

    @property
    def digest(self) -> str:
        return _PREFIX + self._hash.hexdigest()


class Reader(io.RawIOBase):
    """A stream over pieces."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._held = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._held:
            following = next(self._chunks, None)
            if following is None:
                return 0
            self._held = memoryview(following)
        taken = min(len(buffer), len(self._held))
        buffer[:taken] = self._held[:taken]
        self._held = self._held[taken:]
        return taken


def _name(digest: str, form: tuple[str, bool]) -> str:
    end = next(end for end, known in _FORMS.items() if known == form)
    plain = digest.removeprefix(_PREFIX)
    return f"{plain[:2]}/{plain}{end}"


def _digest_of(name: str) -> str | None:
    folder, _, file = name.partition("/")
    plain = file.partition(".")[0]
    found = _PREFIX + plain
    is_ours = folder != TEMPORARY and folder == plain[:2] and _DIGEST.fullmatch(found)
    return found if is_ours else None
