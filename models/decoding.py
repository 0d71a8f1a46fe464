"""Reading the journal's text form back. ``models.encoding`` has the table of tags."""

import json
from base64 import b64decode
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NoReturn
from uuid import UUID
from zoneinfo import ZoneInfo

from models.errors import UndecodableValue
from models.long_texts import LONG, is_bare
from models.secret import TAG, Secret


def decode(text: str) -> object:
    """The value that ``encode`` turned into ``text``. UndecodableValue when none did."""
    if len(text) > LONG and is_bare(text):
        return text[1:-1]
    try:
        raw = _parse(text)
        # Unescaped, so it opens an object with a tag-like key: text escapes its quotes.
        return _restore(raw) if '{"$' in text else raw
    except RecursionError:
        raise UndecodableValue("it is nested too deeply", text) from None
    except (ValueError, TypeError, ArithmeticError, LookupError, AttributeError) as error:
        raise UndecodableValue(f"{type(error).__name__}: {error}", text) from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"bare {name}, which is not JSON")


_parse = json.JSONDecoder(parse_constant=_refuse_constant).decode


def _restore(raw: Any) -> Any:
    if type(raw) is list:
        return [_restore(item) for item in raw]
    if type(raw) is not dict:
        return raw
    if len(raw) == 1:
        ((tag, content),) = raw.items()
        if tag.startswith("$"):
            return _TAGS[tag](_restore(content))
    return {key: _restore(item) for key, item in raw.items()}


def _datetime(content: Any) -> datetime:
    if type(content) is str:
        return datetime.fromisoformat(content)
    text, zone, fold = content
    moment = datetime.fromisoformat(text).replace(fold=fold)
    return moment.replace(tzinfo=ZoneInfo(zone)) if zone else moment


def _time(content: Any) -> time:
    if type(content) is str:
        return time.fromisoformat(content)
    text, zone, fold = content
    moment = time.fromisoformat(text).replace(fold=fold)
    return moment.replace(tzinfo=ZoneInfo(zone)) if zone else moment


def _timedelta(content: Any) -> timedelta:
    days, seconds, microseconds = content
    return timedelta(days=days, seconds=seconds, microseconds=microseconds)


_TAGS: dict[str, Callable[[Any], object]] = {
    "$float": float,
    "$int": lambda content: int(content, 16),
    "$str": "".join,
    "$decimal": Decimal,
    "$datetime": _datetime,
    "$date": date.fromisoformat,
    "$time": _time,
    "$timedelta": _timedelta,
    "$bytes": lambda content: b64decode(content, validate=True),
    "$uuid": UUID,
    TAG: Secret,
    "$tuple": tuple,
    "$set": set,
    "$frozenset": frozenset,
    "$dict": dict,
}
