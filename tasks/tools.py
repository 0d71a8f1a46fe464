"""The tools an agent is written with: the class, its answers, and ``@tool`` for those made of functions.

@tool("registry.stamp", effect=Effect.IDEMPOTENT, key_retention=timedelta(hours=24))
def stamp(request: Stamp, *, key: str) -> Stamped: ...
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from models.states import EffectClass as Effect
from tasks import tool_registry
from tasks.binding import annotations_of
from tasks.errors import DefinitionError
from tasks.recorder.options import Freshness
from tasks.tool_base import (
    Absent,
    Found,
    Looked,
    NotSent,
    Read,
    Refused,
    Tool,
    Unanswered,
    Undecided,
)
from tasks.tool_registry import register_instance, tool_named, tools

__all__ = [
    "Absent",
    "Effect",
    "Found",
    "Freshness",
    "FunctionTool",
    "Looked",
    "NotSent",
    "Read",
    "Refused",
    "Tool",
    "Unanswered",
    "Undecided",
    "register_instance",
    "tool",
    "tool_named",
    "tools",
]

_OPTIONS = frozenset(
    {"key_retention", "max_request_lifetime", "consistency_window", "timeout", "rate_limit", "volatile",
     "secret"}
)  # fmt: skip


class FunctionTool(Tool[Any, Any], abstract=True):
    """A tool made of functions by ``@tool``."""

    def __init__(self, execute: Callable[..., Any], options: Mapping[str, Any]) -> None:
        for option, value in options.items():
            setattr(self, option, value)
        self.function = execute  #: the author's own
        self._functions: dict[str, Callable[..., Any]] = {}
        tool_registry.register(self, looks_up=True)  # `look_up_with` comes after it

    def execute(self, request: Any, *, key: str) -> Any:
        return self.function(request, key=key)

    def look_up_with(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: how to ask whether it happened."""
        self._functions["lookup"] = function
        return function

    def compensate_with(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: how to undo it."""
        self._functions["compensate"] = function
        return function

    def lookup(self, request: Any, *, key: str) -> Looked:
        found: Looked = self._functions["lookup"](request, key=key)
        return found

    def compensate(self, request: Any, result: Any, *, key: str) -> Any:
        return self._functions["compensate"](request, result, key=key)

    @property
    def can_look_up(self) -> bool:
        return "lookup" in self._functions

    @property
    def can_compensate(self) -> bool:
        return "compensate" in self._functions

    def _annotation(self, _place: int, parameter: str, /) -> Any:
        hints = annotations_of(self.function, owner=f"tool {self.name}")
        if parameter == "return":
            return hints.get("return", Any)
        first = next(iter(inspect.signature(self.function).parameters), "request")
        return hints.get(first, Any)


def tool(
    name: str, *, effect: Effect, version: str = "1", **options: Any
) -> Callable[[Callable[..., Any]], FunctionTool]:
    """Make a function ``(request, *, key)`` a tool; options are the attributes of ``Tool``.

    ``@charge.look_up_with`` and ``@charge.compensate_with`` add the other two functions.
    """
    unknown = set(options) - _OPTIONS
    if unknown:
        raise DefinitionError(f"tool {name}: unknown options {', '.join(sorted(unknown))}")
    given = {"name": name, "effect": effect, "version": version, **options}
    return lambda function: FunctionTool(function, given)
