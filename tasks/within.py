"""Context variables that have a value for the length of a block.

A class, since the generator of ``contextlib`` takes twice the time and every step enters two of them.
"""

from contextvars import ContextVar, Token
from typing import Generic, TypeVar

T = TypeVar("T")


class Within(Generic[T]):
    """``with Within(variable, value):`` what it was before comes back at the end."""

    __slots__ = ("_before", "_value", "_variable")

    def __init__(self, variable: ContextVar[T], value: T) -> None:
        self._variable, self._value = variable, value
        self._before: Token[T]

    def __enter__(self) -> None:
        self._before = self._variable.set(self._value)

    def __exit__(self, *_: object) -> None:
        self._variable.reset(self._before)
