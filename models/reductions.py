"""What an annotated value's leaves are stored as, when the codec has no form of their own.

A type adapter leaves enum members, paths, addresses and subclasses of built-ins as they are. Their
annotation rebuilds them from their base, so the base is what is stored; whether it really does is
checked on every value by reading it back (``models.survival``), not assumed here.
"""

from collections import deque
from collections.abc import Callable
from enum import Enum
from fractions import Fraction
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
)
from pathlib import PurePath
from typing import Any, Final

from pydantic import AnyUrl
from pydantic_core import MultiHostUrl, Url

IRREDUCIBLE: Final = object()  #: the answer for a value that has no such base

_BASES: tuple[tuple[tuple[type, ...], Callable[[Any], object]], ...] = (
    ((Enum,), lambda value: value.value),  # before str and int: StrEnum and IntEnum are both
    ((str,), str.__str__),
    ((int,), int.__int__),
    ((float,), float.__float__),
    ((bytes,), lambda value: bytes(memoryview(value))),
    ((tuple,), tuple),
    ((list, deque), list),
    ((dict,), dict),
    ((PurePath, Fraction), str),
    ((IPv4Address, IPv4Network, IPv4Interface, IPv6Address, IPv6Network, IPv6Interface), str),
    ((AnyUrl, Url, MultiHostUrl), str),
)


def reduce_to_base(value: object) -> object:
    """The built-in value that stands for ``value``, or IRREDUCIBLE."""
    for kinds, base in _BASES:
        if isinstance(value, kinds):
            return base(value)
    return IRREDUCIBLE
