"""Digests: of stored text, and of what a request means.

A stored text is its own canonical form, so its digest is that of its bytes. A *request* digest is
bound to an idempotency key and must be the same when the same request is made again, possibly
spelled otherwise. It ignores

* the order of keys (and of a set's members);
* the spelling of numbers: ``1``, ``1.0`` and ``Decimal("1.0")`` are one number, as are ``0.1`` and
  ``Decimal("0.1")`` (a float stands for the shortest decimal that reads back as it), ``0`` and
  ``-0.0``, and every NaN; booleans are not numbers;
* the fields that the caller names as volatile or secret;

and nothing else: a list is not a tuple, ``"1"`` is not ``1``, an absent field is not a null, and
the same instant in two time zones is two values.
"""

import hashlib
import json
from collections.abc import Set
from decimal import Decimal
from typing import Any

from models.encoding import encode

_PREFIX = "sha256:"
_PIECE = 1 << 20
_NUMBERS = frozenset({int, float, Decimal})
_SEQUENCES: dict[type, str | None] = {list: None, tuple: "$tuple"}
_UNORDERED: dict[type, str] = {set: "$set", frozenset: "$frozenset"}
_dumps = json.JSONEncoder(
    ensure_ascii=True, allow_nan=False, sort_keys=True, separators=(",", ":")
).encode


def digest_text(*texts: str) -> str:
    """``sha256:<hex>`` of stored text; of several, as if they were one."""
    if sum(map(len, texts)) < _PIECE:
        data = "".join(texts).encode("utf-8", "surrogatepass")
        return _PREFIX + hashlib.sha256(data).hexdigest()
    found = hashlib.sha256()
    for text in texts:
        for at in range(0, len(text), _PIECE):  # never a second copy of a large one
            found.update(text[at : at + _PIECE].encode("utf-8", "surrogatepass"))
    return _PREFIX + found.hexdigest()


def digest(value: object, *, without: Set[str] = frozenset()) -> str:
    """The request digest of a decoded value.

    ``without`` holds names of fields to leave out: top-level ones, or dotted paths
    (``"trace.id"``) that go through every member of a list. Raises UnserialisableValue for what
    the journal cannot hold.
    """
    encode(value, subject="the request")  # refuses cycles, depth and foreign types by path
    return digest_text(_dumps(_canonical(value, without, "")))


def _canonical(value: Any, without: Set[str], prefix: str) -> Any:
    kind = type(value)
    if kind is dict:
        return _canonical_dict(value, without, prefix)
    if kind in _NUMBERS:
        return {"$number": _number(value)}
    if kind in _SEQUENCES:
        members = [_canonical(item, without, prefix) for item in value]
        tag = _SEQUENCES[kind]
        return {tag: members} if tag else members
    if kind in _UNORDERED:
        members = [_canonical(item, without, prefix) for item in value]
        return {_UNORDERED[kind]: sorted(members, key=_dumps)}
    if kind is bool or value is None:
        return value
    return json.loads(encode(value))  # text, bytes, times, ids: the codec's form, tags and all


def _canonical_dict(value: dict[Any, Any], without: Set[str], prefix: str) -> Any:
    pairs: list[list[Any]] = []
    for key, item in value.items():
        path = f"{prefix}{key}" if type(key) is str else prefix
        if type(key) is str and path in without:
            continue
        pairs.append([_canonical(key, frozenset(), ""), _canonical(item, without, f"{path}.")])
    if all(type(key) is str and not key.startswith("$") for key, _ in pairs):
        return dict(pairs)
    return {"$dict": sorted(pairs, key=_dumps)}


def _number(value: int | float | Decimal) -> str:
    """``<digits>e<exponent>`` without trailing zeros, exact at any size."""
    if type(value) is int and -(10**15) < value < 10**15 and value % 10:
        return f"{value}e0"
    exact = (
        value if type(value) is Decimal else Decimal(repr(value) if type(value) is float else value)
    )
    sign, digits, exponent = exact.as_tuple()
    if not isinstance(exponent, int):  # "n", "N" or "F"
        return "nan" if exact.is_nan() else ("-inf" if sign else "inf")
    text = "".join(map(str, digits)).lstrip("0")
    significant = text.rstrip("0")
    if not significant:
        return "0e0"
    return f"{'-' if sign else ''}{significant}e{exponent + len(text) - len(significant)}"
