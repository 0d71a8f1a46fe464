"""Secrets that a streamed answer repeats: they come in pieces, an event each, and no event holds all of one."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from models import redaction

Path: TypeAlias = tuple[object, ...]

#: What tells the texts of one stream apart that are made side by side.
_CHANNEL = ("type", "index", "output_index", "content_index", "item_id")
_DATA = "data:"
_LINES = re.compile("(?<=\n)")


@dataclass(frozen=True, slots=True)
class _Piece:
    """One text of one event."""

    line: int
    path: Path
    text: str


@dataclass(slots=True)
class _Stream:
    """A stream's lines, and the objects in them."""

    lines: list[str]
    values: dict[int, Any] = field(default_factory=dict)
    channels: dict[Path, list[_Piece]] = field(default_factory=dict)


def redact(text: str) -> str:
    """An answer without values of secrets, also where they are spread over the events of a stream."""
    text = redaction.redact(text)
    if not redaction.is_active() or not text.startswith((_DATA, "event:", ":", "id:", "retry:")):
        return text
    stream = _read(text)
    changed: set[int] = set()
    for pieces in stream.channels.values():
        for piece, safe in zip(pieces, _struck([piece.text for piece in pieces]), strict=True):
            if safe != piece.text:
                _set(stream.values[piece.line], piece.path, safe)
                changed.add(piece.line)
    for line in changed:
        end = stream.lines[line][len(stream.lines[line].rstrip("\r\n")) :]
        written = json.dumps(stream.values[line], ensure_ascii=True, separators=(",", ":"))
        stream.lines[line] = f"{_DATA} {written}{end}"
    return "".join(stream.lines) if changed else text


def _read(text: str) -> _Stream:
    stream = _Stream(_LINES.split(text))  # not splitlines: JSON may hold U+2028 as it is
    for number, line in enumerate(stream.lines):
        if not line.startswith(_DATA):
            continue
        try:
            value = json.loads(line[len(_DATA) :])
        except (ValueError, RecursionError):
            continue
        if not isinstance(value, dict):
            continue
        stream.values[number] = value
        channel = tuple(str(value.get(name)) for name in _CHANNEL)
        for path, name, found in _texts(value, (), ()):
            stream.channels.setdefault((channel, name), []).append(_Piece(number, path, found))
    return stream


def _texts(value: Any, path: Path, name: Path) -> Iterator[tuple[Path, Path, str]]:
    """(where, in what, text) of every text in a structure; a list's objects are known by their ``index``."""
    if isinstance(value, str):
        yield path, name, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(item, (*path, key), (*name, key))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            known = item.get("index", place) if isinstance(item, dict) else place
            yield from _texts(item, (*path, place), (*name, str(known)))


def _struck(pieces: list[str]) -> list[str]:
    """The pieces, with a mark in the first of those that a value is spread over, and nothing in the others."""
    spans = redaction.spans("".join(pieces)) if len(pieces) > 1 else []
    if not spans:
        return pieces
    struck, begin = [], 0
    for piece in pieces:
        end, at, kept = begin + len(piece), begin, ""
        for start, stop, mark in spans:
            if stop <= begin or start >= end:
                continue
            kept += piece[at - begin : max(at, start) - begin]
            kept += mark if start >= begin else ""
            at = min(stop, end)
        struck.append(kept + piece[at - begin :])
        begin = end
    return struck


def _set(value: Any, path: Path, text: str) -> None:
    for step in path[:-1]:
        value = value[step]
    value[path[-1]] = text
