"""What content is made from: memory, a file or a stream, as pieces of one size, and what goes wrong with it."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from models.artifacts.packing import CHUNK

Piece: TypeAlias = bytes | bytearray | memoryview
Content: TypeAlias = Piece | Path | BinaryIO | Iterable[Piece]
#: Looks at pieces on their way, and raises to keep them out.
Screen: TypeAlias = Callable[[Iterator[bytes]], Iterator[bytes]]


class SourceFailed(Exception):
    """Reading what is to be kept failed, which says nothing about the store."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@contextmanager
def stream(content: Content, screen: Screen = iter) -> Iterator[Iterator[bytes]]:
    """Any content as pieces. What its source, or the ``screen``, raises comes as ``SourceFailed``."""
    with ExitStack() as stack:
        yield _watched(content, screen, stack)


def _watched(content: Content, screen: Screen, stack: ExitStack) -> Iterator[bytes]:
    try:
        yield from screen(_even(_opened(content, stack)))
    except Exception as error:
        raise SourceFailed(error) from error


def _opened(content: Content, stack: ExitStack) -> Iterator[Any]:
    if isinstance(content, bytes | bytearray | memoryview):
        whole = memoryview(content).cast("B")
        return (whole[at : at + CHUNK] for at in range(0, len(whole), CHUNK))
    file: Any = stack.enter_context(content.open("rb")) if isinstance(content, Path) else content
    read = getattr(file, "read", None)
    return iter(file) if read is None else iter(lambda: read(CHUNK), b"")


def _even(pieces: Iterator[Any]) -> Iterator[bytes]:
    """Pieces of ``CHUNK`` bytes, whatever the source gives at a time; the last one is shorter."""
    held = bytearray()
    for piece in pieces:
        if not isinstance(piece, bytes | bytearray | memoryview):
            raise TypeError(f"an artifact is made of bytes, not {type(piece).__name__}")
        if not held and len(piece) == CHUNK and isinstance(piece, bytes):
            yield piece
            continue
        held += piece
        while len(held) >= CHUNK:
            yield bytes(held[:CHUNK])
            del held[:CHUNK]
    if held:
        yield bytes(held)
