"""How content is written: as it is, or compressed, and then, when there is a key, encrypted.

Compression is the standard library's zlib, in gzip's container: every machine that runs Onward can read
it, and so can ``zcat``. Small content stays as it is, readable by everything, and so does content that
a sample shows to be dense already.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final

from models.artifacts import sealing

CHUNK: Final = 1 << 20  #: bytes read and written at a time
IDENTITY: Final = "identity"
GZIP: Final = "gzip"
_GZIP_BITS = 31  #: zlib's word for its gzip container
_LEVEL = 1  #: three times as fast as the default, for a tenth more bytes
_WORTH_IT = 64 * 1024  #: bytes from which compression is tried
_SAMPLE = 256 * 1024
_GAIN = 0.9


class Unreadable(ValueError):
    """Stored bytes that cannot have been written here: cut, or changed."""


def packed(chunks: Iterable[bytes]) -> tuple[str, Iterator[bytes]]:
    """(encoding, stored bytes) of content; whether compression pays is judged by its beginning."""
    rest = iter(chunks)
    head = bytearray()
    while len(head) < _SAMPLE and (more := next(rest, b"")):
        head += more
    content = chain((bytes(head),), rest)
    encoding = GZIP if _is_compressible(head[:_SAMPLE]) else IDENTITY
    stored: Iterator[bytes] = _compressed(content) if encoding == GZIP else content
    return encoding, sealing.sealed(stored) if sealing.is_on() else stored


def unpacked(chunks: Iterable[bytes], *, encoding: str, encrypted: bool) -> Iterator[bytes]:
    """The content of stored bytes. Raises ``Unreadable``."""
    try:
        opened = sealing.opened(chunks) if encrypted else iter(chunks)
        yield from _decompressed(opened) if encoding == GZIP else opened
    except (sealing.Unsealable, zlib.error) as error:
        raise Unreadable(str(error)) from error


def tee(chunks: Iterable[bytes], *sinks: Callable[[bytes], object]) -> Iterator[bytes]:
    """The same chunks, shown to others on their way."""
    for chunk in chunks:
        for sink in sinks:
            sink(chunk)
        yield chunk


def _is_compressible(sample: bytes | bytearray) -> bool:
    return len(sample) >= _WORTH_IT and len(zlib.compress(sample, _LEVEL)) < _GAIN * len(sample)


def _compressed(chunks: Iterable[bytes]) -> Iterator[bytes]:
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP_BITS)
    for chunk in chunks:
        if out := packer.compress(chunk):
            yield out
    yield packer.flush()


def _decompressed(chunks: Iterable[bytes]) -> Iterator[bytes]:
    unpacker = zlib.decompressobj(_GZIP_BITS)
    for chunk in chunks:
        data = chunk
        while data:
            if unpacker.eof:
                raise Unreadable("something was added behind its end")
            yield unpacker.decompress(data, CHUNK)
            data = unpacker.unconsumed_tail or unpacker.unused_data
    while not unpacker.eof and (out := unpacker.decompress(b"", CHUNK)):
        yield out  # its input was taken in while its output was still bounded
    if not unpacker.eof:
        raise Unreadable("its end is missing")
