r"""The journal's text form of a value: canonical ASCII JSON, lossless, no pickles.

What JSON has is written as JSON: ``None``, ``bool``, ``int``, finite ``float`` (``-0.0`` too), ``str``,
``list``, ``dict`` with ``str`` keys in their order. Everything else is an object whose one key begins with ``$``:

``{"$float": "nan"}``              also ``inf``, ``-inf``; there is only one NaN
``{"$int": "0x1f"}``               more than 2048 bits, which decimal parsers may refuse
``{"$str": ["\ud83d", "\ude00"]}``  lone surrogates that JSON would fuse
``{"$decimal": "1.10"}``           with its trailing zeros
``{"$datetime": "2026-03-01T00:00:00+00:00"}``   also ``$time``; ``{"$date": "2026-03-01"}``
``{"$datetime": ["2026-03-01T00:00:00", "Europe/Berlin", 0]}``   wall clock, zone (or null), fold
``{"$timedelta": [1, 0, 0]}``      days, seconds, microseconds
``{"$bytes": "/wA="}``             base64
``{"$uuid": "00000000-0000-0000-0000-000000000005"}``
``{"$secret": "BILLING_KEY"}``     a reference: the name, never the value
``{"$tuple": [1, 2]}``             also ``$set`` and ``$frozenset``, sorted by their members' text
``{"$dict": [["key", "value"]]}``  keys that are not text, or a single key that begins with ``$``

A fixed UTC offset comes back as ``datetime.timezone``. NUL, lone surrogates and the six characters
backslash-u-0-0-0-0 survive in text and keys alike, since all that is stored is their ASCII escape. Everything else
is refused by name, subclasses of the above included: an Enum, a ``numpy.float64`` or a named tuple would come back
as its base, and code would see another type after a crash than before. ``models.values`` holds annotated ones.
"""

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from math import isfinite
from operator import itemgetter
from types import NoneType
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from pydantic_core import TzInfo

from models.errors import OutputTooLarge, UnserialisableValue
from models.long_texts import LONG, quoted
from models.messages import path_of, qualified
from models.reductions import IRREDUCIBLE, reduce_to_base
from models.secret import TAG, Secret

MAX_DEPTH = (
    100  #: containers within containers; with tags 3 JSON levels each, below every recursion limit
)
_PLAIN_INT = 1 << 2048  #: 617 digits; 640 is the smallest limit a process can set for parsing them
_TAG_OPENS = '{"$'  #: cannot occur inside text, where the quote would be escaped

_dumps = json.JSONEncoder(
    ensure_ascii=True, allow_nan=False, check_circular=False, separators=(",", ":")
).encode
_ATOMS = frozenset({str, float, bool, NoneType})
_FUSING = re.compile("(?<=[\ud800-\udbff])(?=[\udc00-\udfff])")


def encode(value: object, *, subject: str = "the value", limit: int | None = None) -> str:
    """The text that ``decode`` turns back into an equal value of the same types.

    ``subject`` begins the messages of errors. Raises UnserialisableValue, or OutputTooLarge when
    the text takes more than ``limit`` bytes.
    """
    text = _quick(value)
    if text is None:
        text = _dumps_deep(value, subject, typed=False)
    if limit is not None and len(text) > limit:
        raise _too_large(value, subject, size=len(text), limit=limit)
    return text


def encode_structure(value: object, *, subject: str) -> str:
    """``encode`` for what a type adapter dumped: leaves are reduced to the base they derive from.

    Not lossless by itself. The caller reads the text back through the same adapter and refuses
    the value when it differs (``models.values``).
    """
    text = _quick(value)
    return text if text is not None else _dumps_deep(value, subject, typed=True)


def check_size(text: str, value: object, *, subject: str, limit: int) -> None:
    """Raise OutputTooLarge, naming the largest field of ``value``, when ``text`` is too long."""
    if len(text) > limit:
        raise _too_large(value, subject, size=len(text), limit=limit)


def _quick(value: object) -> str | None:
    """The text of plain JSON, 200 bytes in about 6 us; None when the value needs tags, or is refused."""
    if not _is_plain(value, MAX_DEPTH):
        return None
    try:
        text = quoted(value) if type(value) is str and len(value) > LONG else _dumps(value)
    except (ValueError, RecursionError):  # NaN or infinity; a caller near the stack's end
        return None
    return None if _TAG_OPENS in text or "\\ud" in text else text


def _is_plain(value: Any, room: int) -> bool:
    """Exact types only: the C encoder accepts subclasses and loses what they are."""
    kind = type(value)
    if kind is dict:
        return room > 0 and _are_text(value) and _are_plain(value.values(), room - 1)
    if kind is list:
        return room > 0 and _are_plain(value, room - 1)
    if kind is int:
        return bool(-_PLAIN_INT < value < _PLAIN_INT)
    return kind in _ATOMS


def _are_text(keys: Iterable[object]) -> bool:
    return all(kind is str for kind in map(type, keys))


def _are_plain(members: Iterable[object], room: int) -> bool:
    for item in members:
        if type(item) in _ATOMS:  # saves a call for most members
            continue
        if not _is_plain(item, room):
            return False
    return True


def _dumps_deep(value: object, subject: str, *, typed: bool) -> str:
    try:
        return _dumps(_Tagger(subject, typed=typed).tag(value))
    except RecursionError:
        # Only a caller that is itself near the interpreter's limit: MAX_DEPTH is far below it.
        raise UnserialisableValue(
            subject, "$", type_name="structure too deep for this stack", advice="flatten it"
        ) from None


class _Tagger:
    """Rewrites one value into plain JSON with tags, and knows where in the value it is."""

    def __init__(self, subject: str, *, typed: bool) -> None:
        self._subject = subject
        self._typed = typed
        self._trail: list[object] = []
        self._open: set[int] = set()

    def tag(self, value: Any) -> object:
        kind = type(value)
        if kind is bool or kind is NoneType:
            return value
        scalar = _SCALARS.get(kind)
        if scalar is not None:
            return scalar(value)
        container = _CONTAINERS.get(kind)
        if container is not None:
            return self._nested(value, container)
        if kind in _ZONED:
            return self._moment(value)
        if self._typed:
            base = reduce_to_base(value)
            if base is not IRREDUCIBLE:
                return self.tag(base)
        raise self._refusal(value)

    def _nested(self, value: object, container: Callable[["_Tagger", Any], object]) -> object:
        if id(value) in self._open:
            raise self._refused("reference to a value that contains it", "break the cycle")
        if len(self._trail) >= MAX_DEPTH:
            raise self._refused(
                f"{type(value).__name__} nested deeper than {MAX_DEPTH} levels", "flatten it"
            )
        self._open.add(id(value))
        tagged = container(self, value)
        self._open.discard(id(value))
        return tagged

    def members(self, values: Iterable[object]) -> list[Any]:
        tagged: list[Any] = []
        self._trail.append(0)
        for index, item in enumerate(values):
            self._trail[-1] = index
            tagged.append(self.tag(item))
        self._trail.pop()
        return tagged

    def mapping(self, values: dict[object, object]) -> object:
        pairs: list[list[Any]] = []
        self._trail.append("")
        for key, item in values.items():
            self._trail[-1] = key
            pairs.append([self.tag(key), self.tag(item)])
        self._trail.pop()
        if any(type(key) is not str for key, _ in pairs):
            return {"$dict": pairs}
        if len(pairs) == 1 and pairs[0][0].startswith("$"):
            return {"$dict": pairs}
        return dict(pairs)

    def _moment(self, value: datetime | time) -> object:
        name = f"${type(value).__name__}"
        zone = value.tzinfo
        if zone is None or _is_fixed_offset(zone):
            text = value.isoformat()
            return {name: [text, None, value.fold] if value.fold else text}
        if type(zone) is ZoneInfo and zone.key is not None:
            return {name: [value.replace(tzinfo=None).isoformat(), zone.key, value.fold]}
        raise self._refused(
            f"{type(value).__name__} in a {qualified(type(zone))} time zone",
            "use zoneinfo.ZoneInfo or an unnamed datetime.timezone",
        )

    def _refusal(self, value: object) -> UnserialisableValue:
        for base in (bool, int, float, str, bytes, datetime, dict, list, tuple):
            if isinstance(value, base):
                return self._refused(
                    f"{qualified(type(value))} (a kind of {base.__name__})",
                    f"convert it to a plain {base.__name__}, or annotate the step's result type "
                    f"with a model that has such a field",
                )
        return self._refused(
            qualified(type(value)),
            "annotate the step's result type (pydantic model, dataclass, TypedDict, Enum), or "
            "convert it to built-in types",
        )

    def _refused(self, type_name: str, advice: str) -> UnserialisableValue:
        return UnserialisableValue(
            self._subject, path_of(self._trail), type_name=type_name, advice=advice
        )


def _tag_str(value: str) -> object:
    if value.isascii() or not _FUSING.search(value):
        return value
    return {"$str": _FUSING.split(value)}


def _tag_int(value: int) -> object:
    return value if -_PLAIN_INT < value < _PLAIN_INT else {"$int": hex(value)}


def _tag_float(value: float) -> object:
    return value if isfinite(value) else {"$float": repr(value)}


def _is_fixed_offset(zone: tzinfo) -> bool:
    """pydantic parses times into a zone of its own; a *named* ``timezone`` would lose its name."""
    if type(zone) is TzInfo:
        return True
    offset = zone.utcoffset(None)
    if type(zone) is not timezone or offset is None:
        return False
    return zone.tzname(None) == timezone(offset).tzname(None)


def _too_large(value: object, subject: str, *, size: int, limit: int) -> OutputTooLarge:
    """Follow the heaviest member down while it makes up most of what it is in."""
    steps: list[object] = []
    field, field_size = value, size
    while True:
        sizes = [
            (len(_dumps_deep(item, subject, typed=True)), step, item)
            for step, item in _fields(field)
        ]
        if not sizes:
            break
        heaviest, step, item = max(sizes, key=itemgetter(0))
        if steps and heaviest < field_size / 2:
            break
        steps.append(step)
        field, field_size = item, heaviest
    return OutputTooLarge(subject, path_of(steps), field_size=field_size, size=size, limit=limit)


def _fields(value: object) -> list[tuple[object, object]]:
    if type(value) is dict:
        return list(value.items())
    if type(value) is list or type(value) is tuple:
        return list(enumerate(value))
    return []


_SCALARS: dict[type, Callable[..., object]] = {
    str: _tag_str,
    int: _tag_int,
    float: _tag_float,
    Decimal: lambda value: {"$decimal": str(value)},
    date: lambda value: {"$date": value.isoformat()},
    timedelta: lambda value: {"$timedelta": [value.days, value.seconds, value.microseconds]},
    bytes: lambda value: {"$bytes": b64encode(value).decode("ascii")},
    UUID: lambda value: {"$uuid": str(value)},
    Secret: lambda value: {TAG: value.name},
}
_ZONED = frozenset({datetime, time})
_CONTAINERS: dict[type, Callable[[_Tagger, Any], object]] = {
    list: _Tagger.members,
    dict: _Tagger.mapping,
    tuple: lambda tagger, value: {"$tuple": tagger.members(value)},
    set: lambda tagger, value: {"$set": sorted(tagger.members(value), key=_dumps)},
    frozenset: lambda tagger, value: {"$frozenset": sorted(tagger.members(value), key=_dumps)},
}
