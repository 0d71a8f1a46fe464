"""Documents by URI (``corpus:<name>``, ``file:///...``), and the documents of a folder.

A document longer than a journal value can hold is cut at a paragraph, with a note that goes all the
way into the filed conclusion, which then never recommends signing. Refusing it would leave the
reader of a 300-page agreement with nothing; cutting it without a word would be worse than either.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from examples.contract_review import corpus
from examples.contract_review.errors import UnreadableDocument
from examples.contract_review.extract import SUPPORTED, extract_text
from examples.contract_review.values import Document, Source

TEXT_LIMIT = 120_000  #: characters, about 40 printed pages
RECORDED_LIMIT = (
    192 * 1024
)  #: bytes as the journal writes text: ASCII, so a Chinese character takes six


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that will not be reviewed, and why."""

    path: Path
    reason: str


@dataclass(frozen=True, slots=True)
class Listing:
    """What a path holds: documents in the order of their names, and what was left out."""

    uris: tuple[str, ...]
    skipped: tuple[Skipped, ...]


def open_document(uri: str) -> Document:
    """Read a document; UnreadableDocument names it and says why it cannot be read."""
    if uri.startswith(corpus.SCHEME):
        agreement = corpus.read_agreement(uri.removeprefix(corpus.SCHEME))
        return _document(uri, agreement.title, agreement.text)
    path = _path(uri)
    return _document(uri, path.name, extract_text(path))


def list_documents(path: Path) -> Listing:
    """The supported documents of a folder and its subfolders, or the one file that ``path`` is."""
    if path.is_file():
        if path.suffix.lower() not in SUPPORTED:
            return Listing((), (Skipped(path, _unsupported(path)),))
        return Listing((path.resolve().as_uri(),), ())
    if not path.is_dir():
        raise UnreadableDocument(str(path), "there is no such file or folder", "Check the path.")
    uris: list[str] = []
    skipped: list[Skipped] = []
    for file in sorted(_files(path), key=lambda file: file.relative_to(path).parts):
        if file.suffix.lower() in SUPPORTED:
            uris.append(file.resolve().as_uri())
        else:
            skipped.append(Skipped(file, _unsupported(file)))
    return Listing(tuple(uris), tuple(skipped))


def recorded_size(text: str) -> int:
    """Bytes that a text takes in the journal."""
    return len(json.dumps(text))


def cut_to(text: str, *, characters: int, recorded: int) -> str:
    """The longest beginning of ``text`` within both limits, up to a paragraph where possible."""
    kept = text[:characters]
    if recorded_size(kept) > recorded:
        kept = _cut_recorded(kept, recorded)
    if len(kept) == len(text):
        return text
    paragraph = kept.rfind("\n\n")
    return kept[:paragraph] if paragraph > len(kept) // 2 else kept


def _cut_recorded(text: str, limit: int) -> str:
    """Halve the interval: the recorded size grows with every character."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if recorded_size(text[:middle]) <= limit:
            low = middle
        else:
            high = middle - 1
    return text[:low]


def _document(uri: str, title: str, text: str) -> Document:
    kept = cut_to(text, characters=TEXT_LIMIT, recorded=RECORDED_LIMIT)
    complete = kept == text
    note = f"Only the first {len(kept):,} of {len(text):,} characters were read: it is too long."
    source = Source(
        uri=uri,
        title=title,
        digest="sha256:" + hashlib.sha256(text.encode()).hexdigest(),
        complete=complete,
        notes=() if complete else (note,),
    )
    return Document(source=source, text=kept)


def _path(uri: str) -> Path:
    parts = urlsplit(uri)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise UnreadableDocument(
            uri,
            "it is neither corpus:<name> nor file:///<path>",
            "Copy it to a disk that every worker sees.",
        )
    return Path(unquote(parts.path))


def _files(folder: Path) -> Iterator[Path]:
    """Files below ``folder``; not hidden ones, Word's lock files, or what lies behind a link."""
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(place, name) for name in names if not name.startswith((".", "~$")))


def _unsupported(path: Path) -> str:
    return f"type {path.suffix or '(none)'} is not supported; supported are {', '.join(SUPPORTED)}"
