"""Large content beside the journal, as an author sees it: ``ctx.artifact`` and the value that stands for one.

What a step gets, hands on or returns is the ``Artifact``: a few words that say what the content is. The
content itself goes to the store before that, and everybody who takes it reads it there, checked against
size and digest each time.
"""

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from io import BufferedReader
from typing import Annotated, BinaryIO, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from models.artifacts.errors import Withheld
from models.artifacts.sources import Content
from models.artifacts.store import Reader, Store, Stored
from models.errors import OnwardError
from models.ids import check_identifier
from models.redaction import found_in, longest
from models.settings import settings

KIND: Final = "onward.artifact"


class Artifact(BaseModel):
    """What a piece of content is, wherever it lies: hand it on as you would hand on the content."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["onward.artifact"] = (
        "onward.artifact"  #: first, since that is how it is found in a text
    )
    digest: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
    size: Annotated[int, Field(ge=0)]
    name: str
    media_type: str | None = None


class SecretInArtifact(OnwardError):
    """Content that holds a secret: it would lie in the store in clear."""

    error_type = "secret_in_artifact"


class Artifacts:
    """Puts and gets content for one attempt of a step."""

    def __init__(
        self,
        store: Store,
        *,
        note: Callable[[Stored, Artifact], object],
        withhold: Callable[[Withheld], BaseException],
    ) -> None:
        self._store, self._note, self._withhold = store, note, withhold

    def put(self, data: Content | str, *, name: str, media_type: str | None = None) -> Artifact:
        """Keep content and return what stands for it: bytes, text, a ``Path``, a file or any pieces of bytes.

        What is too large for memory may be handed in as a file or a generator. The same content is the same
        artifact, under whatever name, so another attempt that makes it again changes nothing. Raises
        ``ArtifactTooLarge``, ``ArtifactUnavailable``, ``SecretInArtifact``.
        """
        check_identifier("name", name)
        if media_type is not None:
            check_identifier("media_type", media_type)
        content = data.encode() if isinstance(data, str) else data
        stored = self._store.put(content, limit=settings().artifact_limit, screen=_without_secrets)
        made = Artifact(digest=stored.digest, size=stored.size, name=name, media_type=media_type)
        self._note(stored, made)
        return made

    def get(self, ref: Artifact) -> bytes:
        """The whole content. In a run, content that is not what it was stops the step for a person."""
        return b"".join(self._pieces(ref))

    def open(self, ref: Artifact) -> BinaryIO:
        """The content as a stream, for what is too large for memory.

        It is checked while it is read: whoever has reached its end has read what was put.
        """
        return BufferedReader(Reader(self._pieces(ref)))

    @classmethod
    def for_test(cls) -> "Artifacts":
        """A store of its own, which goes away with it."""
        folder = tempfile.mkdtemp(prefix="onward-artifacts-")
        made = cls(Store(folder), note=lambda *_: None, withhold=lambda error: error)
        weakref.finalize(made, shutil.rmtree, folder, ignore_errors=True)
        return made

    def _pieces(self, ref: Artifact) -> Iterator[bytes]:
        try:
            yield from self._store.chunks(ref.digest, size=ref.size, name=ref.name)
        except Withheld as error:
            raise self._withhold(error) from error


def _without_secrets(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Refuses what holds a secret of this process, before any of it can be read under its digest."""
    before = b""
    for piece in pieces:
        seen = before + piece
        if (secret := found_in(seen)) is not None:
            raise SecretInArtifact(
                f"the content holds the secret {secret}, and artifacts are kept as they are: nothing was kept. "
                f"Leave it out, or hand on Secret({secret!r}) in its place"
            )
        yield piece
        before = seen[-longest() :]
