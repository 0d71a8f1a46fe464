"""Pieces of messages about foreign values: printable, bounded, safe whatever the value does, without secrets."""

import json
import re
from collections.abc import Iterable

from models.exceptions import told
from models.redaction import redact

_SHOWN = 200  #: characters of a foreign value that a message repeats
_KEY_SHOWN = 60  #: characters of one dictionary key in a path
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,59}\Z")


def safe_repr(value: object, *, limit: int = _SHOWN) -> str:
    """``repr`` for messages: printable ASCII, bounded, never raising whatever ``value`` does."""
    if isinstance(value, str):
        value = redact(value)[: limit + 1]  # do not repr 50 MB to show 200 characters
    try:
        shown = ascii(value)
    except Exception as error:
        shown = f"<{type(value).__name__}, whose repr raised {type(error).__name__}>"
    return shorten(shown, limit=limit)


def describe(error: BaseException, *, limit: int = 2000) -> str:
    """``Type: message`` for the journal: printable, bounded, and never raising.

    Exceptions carry what tools put into them: sets, objects, NULs, a ``__str__`` that fails.
    """
    try:
        message = told(error)
    except Exception:
        message = safe_repr(error.args)
    shown = shorten(printable(message), limit=limit)
    return f"{type(error).__name__}: {shown}" if shown else type(error).__name__


def printable(text: str) -> str:
    """``text`` with everything escaped that a text column or a terminal would choke on."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in text
    )


def one_line(text: str, *, limit: int = 400) -> str:
    return shorten(printable(" ".join(redact(text).split())), limit=limit)


def shorten(text: str, *, limit: int = _SHOWN) -> str:
    if len(text) <= limit:
        return text
    text = redact(text)  # what is cut through is not found afterwards
    return text if len(text) <= limit else text[: limit - 3] + "..."


def an(noun: str) -> str:
    return f"an {noun}" if noun[:1].lower() in "aeiou" else f"a {noun}"


def qualified(kind: type) -> str:
    """``numpy.float32``; built-in types without their module."""
    if kind.__module__ == "builtins":
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def path_of(steps: Iterable[object]) -> str:
    """``$.findings[3].score``: where in a value something is."""
    return "$" + "".join(_path_step(step) for step in steps)


def _path_step(step: object) -> str:
    if type(step) is int:
        return f"[{step}]"
    if type(step) is str:
        if _IDENTIFIER.match(step):
            return f".{step}"
        return f"[{shorten(json.dumps(step[: _KEY_SHOWN + 1]), limit=_KEY_SHOWN)}]"
    return f"[{safe_repr(step, limit=_KEY_SHOWN)}]"
