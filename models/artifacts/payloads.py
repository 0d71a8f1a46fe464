"""Recorded texts that do not stand in the journal themselves.

``{"$onward-artifact":{"digest":"sha256:...","size":52428800}}``
    the text lies in the artifact store; ``"as":"string"`` marks one that is JSON of a string and is kept
    as that string's own UTF-8, which people and other programs can use as it is
``{"$onward-sealed":{"key":"0123456789abcdef","data":"..."}}``
    the text is encrypted

No recorded value begins like this: the codec writes an object whose one key begins with ``$`` otherwise, and
texts of others (answers of models) that do are kept as artifacts whatever their length. Digests are of the
true text everywhere, so that neither a limit nor a key changes what a run is known by.
"""

import codecs
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from models.artifacts import sealing
from models.artifacts.errors import EncryptionProblem
from models.artifacts.packing import CHUNK
from models.artifacts.store import Stored, current
from models.errors import OnwardError, UndecodableValue
from models.journal import artifacts
from models.journal.artifacts import WRAPPED
from models.settings import settings

_REFERENCE: Final = '{"$onward-artifact":'
_SEALED: Final = '{"$onward-sealed":'
_NOTES: Final = 3  #: times that a collector may come between a file and its row

_dumps = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Reference:
    """Where a recorded text lies."""

    digest: str
    size: int
    is_string: bool

    def text(self) -> str:
        """As it stands in the journal."""
        facts: dict[str, object] = {"digest": self.digest, "size": self.size}
        if self.is_string:
            facts["as"] = "string"
        return _dumps({"$onward-artifact": facts})


@dataclass(frozen=True, slots=True)
class Uploaded:
    """A text that was put into the store, not noted yet."""

    reference: Reference
    stored: Stored


def is_moved(text: str) -> bool:
    """Whether ``offload`` would put this text into the store."""
    return len(text) > settings().output_limit or text.startswith(WRAPPED)


def offload(
    text: str,
    *,
    run_id: str,
    step_key: str,
    name: str,
    role: str = "output",
    halfway: Callable[[], object] | None = None,
) -> str:
    """What is recorded in place of a text: itself, while it is small and nothing is encrypted.

    Otherwise it is put into the artifact store first, or sealed. Not for use inside a transaction, since
    it may take as long as an upload does. Raises ``ArtifactUnavailable``, ``ArtifactTooLarge`` or
    ``EncryptionProblem``. ``halfway`` is called when half of it is written.
    """
    if not is_moved(text):
        return seal(text)
    return keep(
        text, upload(text, halfway=halfway), run_id=run_id, step_key=step_key, name=name, role=role
    )


def upload(text: str, *, halfway: Callable[[], object] | None = None) -> Uploaded:
    """Put a text into the store."""
    content, is_string = _content(text)
    chunks = _interrupted(_encoded(content), len(content) // 2, halfway)
    stored = current().put(chunks, limit=settings().artifact_limit)
    return Uploaded(Reference(stored.digest, stored.size, is_string), stored)


def keep(text: str, uploaded: Uploaded, *, run_id: str, step_key: str, name: str, role: str) -> str:
    """Note what was uploaded, and return what is recorded in its place. One short statement."""
    for _ in range(_NOTES):
        artifacts.note(uploaded.stored, run_id=run_id, step_key=step_key, name=name, role=role)
        if current().has(uploaded.reference.digest):
            break
        upload(text)  # collected as an orphan between the two
    return uploaded.reference.text()


def seal(text: str) -> str:
    """The text encrypted, when there is a key to do it with; else itself."""
    current_settings = settings()
    if not (current_settings.encryption_key or current_settings.encryption_key_command):
        return text
    key_id, data = sealing.seal_text(text)
    return f'{_SEALED}{{"key":"{key_id}","data":"{data}"}}}}'


def load(text: str) -> str:
    """The true text of a recorded one.

    Raises ``ArtifactChanged``, ``ArtifactUnavailable``, ``EncryptionProblem``, or ``UndecodableValue`` for an
    encrypted text that was changed.
    """
    if not text.startswith(WRAPPED):
        return text
    if text.startswith(_SEALED):
        return _opened(text)
    reference = _reference(text)
    return "".join(_decoded(reference))


def load_optional(text: str | None) -> str | None:
    """``load`` of a column that may be null."""
    return None if text is None else load(text)


def shown(text: str | None) -> str | None:
    """``load`` for people: what cannot be read here is named instead, and stops nothing."""
    try:
        return load_optional(text)
    except OnwardError as error:
        return f"(not readable here: {error.error_type})"


def references(texts: Iterable[str | None]) -> list[Reference]:
    """Those of the recorded texts that lie in the store."""
    return [_reference(text) for text in texts if text and text.startswith(_REFERENCE)]


def digest_of(*recorded: str) -> str:
    """The digest of the true texts of recorded ones, one behind the other. Raises as ``load`` does."""
    found = hashlib.sha256()
    for text in recorded:
        for chunk in _true_chunks(text):
            found.update(chunk)
    return f"sha256:{found.hexdigest()}"


def _true_chunks(text: str) -> Iterator[bytes]:
    if not text.startswith(_REFERENCE) or (reference := _reference(text)).is_string:
        yield from _encoded(load(text))
        return
    yield from current().chunks(reference.digest, size=reference.size)


def _content(text: str) -> tuple[str, bool]:
    """A string's own characters, where the text is JSON of a string that can be written so."""
    if not text.startswith('"'):
        return text, False
    if text.isascii() and "\\" not in text:
        return text[1:-1], True
    try:
        value = json.loads(text)
        value.encode("utf-8")
    except (ValueError, AttributeError):
        return text, False
    return (value, True) if _dumps(value) == text else (text, False)


def _encoded(text: str) -> Iterator[bytes]:
    for at in range(0, len(text), CHUNK):
        yield text[at : at + CHUNK].encode("utf-8", "surrogatepass")


def _decoded(reference: Reference) -> Iterator[str]:
    """The true text piece by piece: whole, it is never held in more than one form."""
    decoder = codecs.getincrementaldecoder("utf-8")("surrogatepass")
    quote = '"' if reference.is_string else ""
    yield quote
    for chunk in current().chunks(reference.digest, size=reference.size):
        piece = decoder.decode(chunk)
        yield _dumps(piece)[1:-1] if reference.is_string else piece
    decoder.decode(b"", final=True)
    yield quote


def _interrupted(
    chunks: Iterator[bytes], half: int, halfway: Callable[[], object] | None
) -> Iterator[bytes]:
    written = 0
    for chunk in chunks:
        yield chunk
        written += len(chunk)
        if halfway is not None and written >= half:
            halfway()
            halfway = None


def _reference(text: str) -> Reference:
    try:
        facts = json.loads(text)["$onward-artifact"]
        return Reference(str(facts["digest"]), int(facts["size"]), facts.get("as") == "string")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UndecodableValue(f"{type(error).__name__}: {error}", text) from error


def _opened(text: str) -> str:
    try:
        facts = json.loads(text)["$onward-sealed"]
        return sealing.open_text(facts["key"], facts["data"])
    except EncryptionProblem:
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise UndecodableValue(f"it is encrypted, and {error}", text) from error
