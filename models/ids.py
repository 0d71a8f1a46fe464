"""Names of things: how they are made, what a given one must look like, how keys derive from them.

The only product module that may draw random bytes or read the wall clock, and it reads the clock
for ordering alone. Whatever must be the same after a crash (idempotency keys, task ids) is derived
here from names and never drawn.
"""

import hashlib
import os
import threading
import time
import unicodedata
from collections.abc import Callable
from typing import NewType

from models.errors import InvalidIdentifier
from models.redaction import is_known

RunId = NewType("RunId", str)
StepKey = NewType("StepKey", str)
BatchId = NewType("BatchId", str)

MAX_KEY = (
    255  #: bytes; the shortest limit among providers' idempotency headers and AMQP short strings
)
_JOINERS = "\u200c\u200d"  #: invisible, but Persian and Indic words are spelled with them
_REFUSED_CATEGORIES = {
    "Cc": "contains a control character",
    "Cf": "contains an invisible formatting character",
    "Cs": "contains half of a surrogate pair",
    "Cn": "contains a code point that is not a character",
    "Zl": "contains a line separator",
    "Zp": "contains a paragraph separator",
}
_KEY_SAFE = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._#/@+")
_TASK_SAFE = _KEY_SAFE - frozenset(
    b"#/@+"
)  # part of Flower's addresses, where # and / mean something


class _Ticks:
    """Strictly rising 60-bit tick counts, so that ids of one process sort as they were made.

    A clock that stands still or steps back is overtaken by one tick per id. A forked child may
    repeat ticks of its parent; its random bits keep the ids apart.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0
        os.register_at_fork(after_in_child=self._unlock)

    def next(self) -> int:
        milliseconds, rest = divmod(time.time_ns(), 1_000_000)
        now = milliseconds << 12 | (rest << 12) // 1_000_000
        with self._lock:
            self._last = max(now, self._last + 1)
            return self._last

    def _unlock(self) -> None:
        self._lock = threading.Lock()  # another thread may have held it at the fork


_ticks = _Ticks()


def _time_ordered() -> str:
    """UUID version 7 in hex: 48 bits of milliseconds, 12 bits of fraction, 62 random bits."""
    ticks = _ticks.next()
    tail = int.from_bytes(os.urandom(8), "big") & (1 << 62) - 1 | 1 << 63
    number = (ticks >> 12) << 80 | 0x7 << 76 | (ticks & 0xFFF) << 64 | tail
    return f"{number:032x}"


def new_run_id() -> RunId:
    """Time-ordered, so that new runs share index pages."""
    return RunId(f"run-{_time_ordered()}")


def new_batch_id() -> BatchId:
    return BatchId(f"batch-{_time_ordered()}")


def new_start_id() -> str:
    """Identity of one start of a process: after a restart, the same pid is another owner."""
    return f"start-{_time_ordered()}"


def new_nonce() -> str:
    """Marks one claim, so that its outcome can be read back when the answer to COMMIT was lost."""
    return os.urandom(12).hex()


def check_identifier(field: str, value: object, *, max_length: int = 200) -> str:
    """``value``, if it can name something; refused, not repaired: a repaired name is another."""
    if not isinstance(value, str):
        raise InvalidIdentifier(field, f"must be text, not {type(value).__name__}", value)
    if len(value) > max_length:
        reason = f"has {len(value):,} characters and may have {max_length:,}"
        raise InvalidIdentifier(field, reason, value)
    if (problem := _why_no_name(value)) is not None:
        raise InvalidIdentifier(field, problem, value)
    return str.__str__(value)


def _why_no_name(value: str) -> str | None:
    if not value:
        return "must not be empty"
    for char in value:
        reason = _REFUSED_CATEGORIES.get(unicodedata.category(char), "")
        if reason and char not in _JOINERS:
            return f"{reason} (U+{ord(char):04X})"
    if value != value.strip():
        return "begins or ends with white space"
    if not unicodedata.is_normalized("NFC", value):
        return "is not in Unicode normal form C (NFC)"
    # rows are found by their names, so nothing is struck out of them
    return "holds the value of a secret, and names are recorded" if is_known(value) else None


def idempotency_key(run_id: str, step_key: str, name: str, ordinal: int | None = None) -> str:
    """``run-...:file:registry.file:1``: one key per business intent, the same in every attempt.

    Parts are percent-encoded around ``:``, so no two intents share a key whatever they are called.
    """
    parts = (
        [run_id, step_key, name] if ordinal is None else [run_id, step_key, name, f"{ordinal:d}"]
    )
    return _join(parts, lambda part: _escape(part, _KEY_SAFE, "%"))


def named_effect_key(run_id: str, step_key: str, tool: str, name: str) -> str:
    """The key of an effect told apart by a name of the author's; never that of a counted one."""
    return _join([run_id, step_key, tool, "", name], lambda part: _escape(part, _KEY_SAFE, "%"))


def undo_key(key: str) -> str:
    """The key of the undoing of an effect: an effect's own key never has so many parts."""
    return _join([key, "", "undo"], str)


def reread_key(key: str, number: int) -> str:
    """The key of something that was read again, the ``number``-th time, because its record was too old."""
    return _join([key, "", f"read {number:d}"], str)


def task_id(run_id: str, step_key: str, attempt: int) -> str:
    """``run-...:read:1``: the Celery task id of one attempt; readable, and safe in an address."""
    return _join([run_id, step_key, f"{attempt:d}"], lambda part: _escape(part, _TASK_SAFE, "="))


def _join(parts: list[str], escape: Callable[[str], str]) -> str:
    key = ":".join(map(escape, parts))
    if len(key) <= MAX_KEY:
        return key
    # "~" is always escaped, so a shortened key equals no other; it keeps a readable beginning.
    tail = "~" + hashlib.sha256(key.encode("ascii")).hexdigest()
    return key[: MAX_KEY - len(tail)] + tail


def _escape(part: str, safe: frozenset[int], mark: str) -> str:
    if part.isascii() and safe.issuperset(part.encode()):
        return part
    return "".join(
        chr(byte) if byte in safe else f"{mark}{byte:02X}"
        for byte in part.encode("utf-8", "surrogatepass")
    )
