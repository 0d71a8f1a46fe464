"""Encryption at rest: AES-256-GCM of the ``cryptography`` library, with keys that may be rotated.

``ONWARD_ENCRYPTION_KEY``, or what ``ONWARD_ENCRYPTION_KEY_COMMAND`` prints, is one key or several: the
first one encrypts, all of them read. What is sealed names its key by an id derived from the key itself.

Every text and every file gets a key of its own, derived from the named one and a random salt, so that
no number of them wears a key out; within a file the nonces count (the STREAM construction), and
the last frame is marked: frames that were swapped, cut off or added do not open.
"""

import hashlib
import os
import re
import shlex
import subprocess
from base64 import b64decode, b64encode
from binascii import Error as BadBase64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from models.artifacts.errors import EncryptionProblem
from models.settings import settings

FRAME: Final = 1 << 20  #: bytes of content in one frame of a file
_MAGIC: Final = b"onward-sealed-1\n"
_KEY_BYTES, _ID_BYTES, _SALT_BYTES, _TAG_BYTES = 32, 8, 16, 16
_HEADER = len(_MAGIC) + _ID_BYTES + _SALT_BYTES
_NO_NONCE = bytes(12)  #: the derived key is used once
_COMMAND_TIMEOUT = 30.0
_MAKE_ONE = "make one with `openssl rand -base64 32`"


class Unsealable(ValueError):
    """Sealed bytes that were changed: they do not open, not even in part."""


@dataclass(frozen=True, slots=True)
class Keyring:
    """Keys by id; ``first`` encrypts."""

    first: bytes
    keys: Mapping[bytes, bytes]

    def __repr__(self) -> str:
        return f"Keyring({', '.join(key_id.hex() for key_id in self.keys)})"

    def key(self, key_id: bytes) -> bytes:
        found = self.keys.get(key_id)
        if found is None:
            raise EncryptionProblem(
                f"something was encrypted with key {key_id.hex()}, which is none of ONWARD_ENCRYPTION_KEY here "
                f"({', '.join(known.hex() for known in self.keys)}): add it behind the present one, "
                f"separated by a comma"
            )
        return found


def is_on() -> bool:
    """Whether anything is to be encrypted."""
    current = settings()
    return bool(current.encryption_key_command or current.encryption_key.get_secret_value())


def keyring() -> Keyring:
    """The keys of this process. Raises ``EncryptionProblem`` when there are none or they are malformed."""
    current = settings()
    return _keyring(current.encryption_key.get_secret_value(), current.encryption_key_command)


@lru_cache(maxsize=2)
def _keyring(text: str, command: str) -> Keyring:
    source = "ONWARD_ENCRYPTION_KEY"
    if command:
        source = "ONWARD_ENCRYPTION_KEY_COMMAND"
        text = _printed(command)
    keys = [_key(word, source) for word in re.split(r"[\s,]+", text.strip()) if word]
    if not keys:
        raise EncryptionProblem(
            f"something is encrypted and {source} gives no key: set ONWARD_ENCRYPTION_KEY"
        )
    by_id = {_id_of(key): key for key in keys}
    return Keyring(_id_of(keys[0]), MappingProxyType(by_id))


def _key(word: str, source: str) -> bytes:
    try:
        if len(word) == 2 * _KEY_BYTES:
            return bytes.fromhex(word)
        key = b64decode(
            word.replace("-", "+").replace("_", "/") + "=" * (-len(word) % 4), validate=True
        )
    except (ValueError, BadBase64):
        key = b""
    if len(key) != _KEY_BYTES:
        raise EncryptionProblem(
            f"{source} must give keys of 32 bytes in base64 or hexadecimal, separated by commas, and one of "
            f"them is something else: {_MAKE_ONE}"
        )
    return key


def _printed(command: str) -> str:
    name = "ONWARD_ENCRYPTION_KEY_COMMAND"
    try:
        done = subprocess.run(
            shlex.split(command), capture_output=True, encoding="utf-8", errors="replace",
            timeout=_COMMAND_TIMEOUT, check=False,
        )  # fmt: skip
    except (OSError, ValueError, IndexError, subprocess.SubprocessError) as error:
        raise EncryptionProblem(f"{name} could not be run: {type(error).__name__}") from None
    if done.returncode != 0:
        raise EncryptionProblem(f"{name} ended with {done.returncode} and gave no key")
    return done.stdout


def _id_of(key: bytes) -> bytes:
    return hashlib.sha256(b"onward key id" + key).digest()[:_ID_BYTES]


def _cipher(key: bytes, salt: bytes, purpose: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - an extra
        from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415
    except ImportError:
        raise EncryptionProblem(
            "encryption needs the library `cryptography`: pip install 'onward[encryption]'"
        ) from None
    derived = HKDF(algorithm=SHA256(), length=_KEY_BYTES, salt=salt, info=b"onward " + purpose)
    return AESGCM(derived.derive(key))


def seal_text(text: str) -> tuple[str, str]:
    """(key id, base64) of a text under the first key."""
    ring = keyring()
    salt = os.urandom(_SALT_BYTES)
    cipher = _cipher(ring.keys[ring.first], salt, b"text")
    closed = cipher.encrypt(_NO_NONCE, text.encode("utf-8", "surrogatepass"), None)
    return ring.first.hex(), b64encode(salt + closed).decode("ascii")


def open_text(key_id: str, data: str) -> str:
    """The text that ``seal_text`` closed. Raises ``Unsealable`` or ``EncryptionProblem``."""
    key = keyring().key(bytes.fromhex(key_id))
    raw = b64decode(data, validate=True)
    cipher = _cipher(key, raw[:_SALT_BYTES], b"text")  # first: it says how to get the library
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - an extra

    try:
        opened = cipher.decrypt(_NO_NONCE, raw[_SALT_BYTES:], None)
    except (InvalidTag, ValueError) as error:
        raise Unsealable("it was changed after it was encrypted") from error
    return bytes(opened).decode("utf-8", "surrogatepass")


def sealed(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """A file's content, encrypted frame by frame."""
    ring = keyring()
    salt = os.urandom(_SALT_BYTES)
    cipher = _cipher(ring.keys[ring.first], salt, b"file")
    yield _MAGIC + ring.first + salt
    for number, (frame, is_last) in enumerate(framed(chunks, FRAME)):
        yield cipher.encrypt(_nonce(number, is_last=is_last), frame, None)


def opened(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The content of a sealed file. Raises ``Unsealable`` where it was changed, and at its end when it was cut."""
    rest = iter(chunks)
    header = b""
    while len(header) < _HEADER and (more := next(rest, b"")):
        header += more
    if len(header) < _HEADER or not header.startswith(_MAGIC):
        raise Unsealable("it is no encrypted file")
    key_id = header[len(_MAGIC) : len(_MAGIC) + _ID_BYTES]
    salt = header[len(_MAGIC) + _ID_BYTES : _HEADER]
    cipher = _cipher(keyring().key(key_id), salt, b"file")
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - an extra

    body = framed(_behind(header[_HEADER:], rest), FRAME + _TAG_BYTES)
    for number, (frame, is_last) in enumerate(body):
        try:
            yield cipher.decrypt(_nonce(number, is_last=is_last), frame, None)
        except (InvalidTag, ValueError) as error:
            raise Unsealable(f"frame {number} was changed, or frames are missing") from error


def framed(chunks: Iterable[bytes], size: int) -> Iterator[tuple[bytes, bool]]:
    """Pieces of exactly ``size`` bytes, and the last one, which may be shorter or empty, marked as such."""
    held = bytearray()
    for chunk in chunks:
        held += chunk
        while len(held) > size:
            yield bytes(held[:size]), False
            del held[:size]
    yield bytes(held), True


def _behind(first: bytes, rest: Iterable[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _nonce(number: int, *, is_last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes([is_last])
