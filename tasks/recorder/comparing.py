"""In what two requests differ, in words for the person who has to decide."""

import json
from typing import Any

from models.messages import safe_repr

_ABSENT = object()
_NAMED = 6  #: fields that are named


def difference(recorded: str, asked: str) -> str:
    """The top-level fields of two bodies that are not the same."""
    before, now = _fields(recorded), _fields(asked)
    if before is None or now is None:
        return "its body" if recorded != asked else "its method, its URL or its endpoint"
    names = [
        name for name in {**before, **now} if before.get(name, _ABSENT) != now.get(name, _ABSENT)
    ]
    if not names:
        return "its method, its URL or its endpoint"
    told = [_told(name, before, now) for name in names[:_NAMED]]
    more = len(names) - _NAMED
    return ", ".join(told) + (f" and {more} more fields" if more > 0 else "")


def _told(name: str, before: dict[str, Any], now: dict[str, Any]) -> str:
    shown = safe_repr(name, limit=60)
    if name not in before:
        return f"{shown} (was not there)"
    if name not in now:
        return f"{shown} (is not there any more)"
    if all(
        isinstance(value, str | int | float | bool | None) for value in (before[name], now[name])
    ):
        return f"{shown} (was {safe_repr(before[name], limit=60)}, is {safe_repr(now[name], limit=60)})"
    return shown


def _fields(body: str) -> dict[str, Any] | None:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
