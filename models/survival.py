"""Does a value come back from the journal as what it was?

A serialiser may drop what it does not know: the extra fields of a subclass, the class inside an
unparametrised generic, excluded fields, an enum where the annotation says ``Any``. The next step
would see the full object while nothing crashes and the lesser one after a crash. So every
annotated value is compared with its own read-back before it is recorded.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime, time
from decimal import Decimal
from types import NoneType
from typing import Any

from pydantic import BaseModel

from models.encoding import encode
from models.errors import UnserialisableValue
from models.messages import an, path_of, qualified, safe_repr

_PLAIN = frozenset({str, int, bool, NoneType})
_BY_TEXT = (
    float,
    Decimal,
    datetime,
    time,
)  #: equality ignores zeros, zones, NaN; the text does not


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a value and its read-back part, and how."""

    path: str
    problem: str


def first_difference(before: object, after: object) -> Difference | None:
    """None when ``after`` is ``before`` again.

    An ``int`` under a ``float`` annotation may come back as that float, as Python's own typing
    rules allow; private attributes and cached properties are not part of a value.
    """
    return _compare(before, after, ())


def _compare(before: Any, after: Any, steps: tuple[object, ...]) -> Difference | None:
    kind = type(before)
    if kind is type(after):
        if kind in _PLAIN and before == after:  # spares most members the questions below
            return None
        return _compare_alike(before, after, steps)
    if kind is int and type(after) is float and before == after:
        return None
    return Difference(
        path_of(steps),
        f"{an(qualified(kind))} would come back as {an(qualified(type(after)))}, so its "
        f"type must be part of the annotation",
    )


def _compare_alike(before: Any, after: Any, steps: tuple[object, ...]) -> Difference | None:
    if isinstance(before, Mapping):
        return _compare_mappings(before, after, steps)
    if isinstance(before, (list, tuple, deque)) and len(before) == len(after):
        return _first(zip(range(len(before)), before, after, strict=True), steps)
    names = _field_names(before)
    if names is not None:
        return _first(((name, *_attributes(before, after, name)) for name in names), steps)
    return None if _same_leaf(before, after) else _changed(before, after, steps)


def _first(
    members: Iterable[tuple[object, object, object]], steps: tuple[object, ...]
) -> Difference | None:
    for step, before, after in members:
        found = _compare(before, after, (*steps, step))
        if found is not None:
            return found
    return None


def _compare_mappings(
    before: Mapping[Any, Any], after: Mapping[Any, Any], steps: tuple[object, ...]
) -> Difference | None:
    found = {key: key for key in after}  # StrEnum and its text are equal keys, and not the same
    if len(before) != len(found) or any(
        key not in found or type(found[key]) is not type(key) for key in before
    ):
        return Difference(path_of(steps), "its keys would come back changed or of another type")
    return _first(((key, item, after[key]) for key, item in before.items()), steps)


def _same_members(before: Set[Any], after: Set[Any]) -> bool:
    try:
        return sorted(map(encode, before)) == sorted(map(encode, after))
    except UnserialisableValue:  # members that only their annotation can rebuild
        return before == after and Counter(map(type, before)) == Counter(map(type, after))


def _field_names(value: object) -> Iterator[str] | None:
    if isinstance(value, BaseModel):
        return iter([*type(value).model_fields, *(value.model_extra or ())])
    if is_dataclass(value):
        return (field.name for field in fields(value))
    return None


def _attributes(before: object, after: object, name: str) -> tuple[object, object]:
    missing = object()
    return getattr(before, name, missing), getattr(after, name, missing)


def _same_leaf(before: Any, after: Any) -> bool:
    if type(before) in _BY_TEXT:
        return encode(before) == encode(after)
    if isinstance(before, Set):
        return _same_members(before, after)
    if not _has_equality(type(before)):
        return True  # its own schema rebuilt it, and it offers no other way to tell
    try:
        return bool(before == after)
    except Exception:
        return False


def _has_equality(kind: type) -> bool:
    return any("__eq__" in vars(base) for base in kind.__mro__ if base is not object)


def _changed(before: object, after: object, steps: tuple[object, ...]) -> Difference:
    shown = safe_repr(before, limit=80), safe_repr(after, limit=80)
    return Difference(path_of(steps), f"{shown[0]} would come back as {shown[1]}")
