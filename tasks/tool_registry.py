"""Which tools a process knows, by name, and what is refused before one is known."""

import inspect
from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from models.states import EffectClass as Effect
from tasks.errors import DefinitionError
from tasks.options import check_label, per_second

if TYPE_CHECKING:
    from tasks.tool_base import Tool

_tools: "dict[str, Tool[Any, Any] | type[Tool[Any, Any]]]" = {}
_DURATIONS = ("key_retention", "max_request_lifetime", "consistency_window", "timeout")


def register(made: "Tool[Any, Any] | type[Tool[Any, Any]]", *, looks_up: bool) -> None:
    """Make a tool known under its name: its class, or an instance that its constructor configured."""
    _check(made, looks_up=looks_up)
    known = _tools.get(made.name)
    if known is not None and _origin(known) != _origin(made):
        raise DefinitionError(
            f"two tools are called {made.name!r}, in {_origin(known)} and {_origin(made)}: rename one, since "
            "a look-up after a crash finds a tool by its name"
        )
    _tools[made.name] = made


def register_instance(configured: "Tool[Any, Any]") -> None:
    """Make a tool known that its constructor's arguments configure (``HttpTool``)."""
    register(configured, looks_up=configured.can_look_up)


def tool_named(name: str) -> "Tool[Any, Any]":
    """The tool behind a name in the journal, or ``LookupError``: this process has not loaded it."""
    found = _tools.get(name)
    if found is None:
        raise LookupError(f"no tool is called {name!r} here; loaded: {', '.join(sorted(_tools))}")
    return found() if isinstance(found, type) else found


def tools() -> Mapping[str, Any]:
    """What is registered, by name."""
    return MappingProxyType(_tools)


def _origin(made: Any) -> str:
    of = getattr(made, "function", None) or (made if isinstance(made, type) else type(made))
    return f"{of.__module__}.{of.__qualname__}"


def _check(made: Any, *, looks_up: bool) -> None:
    """Refuse what could never be recovered, when its module is imported."""
    owner = f"tool {getattr(made, 'name', made)!s}"
    for needed in ("name", "effect"):
        if getattr(made, needed, None) is None:
            raise DefinitionError(f"{owner}: {needed} = ... is missing")
    check_label(made.name, option="name", owner=owner)
    if not isinstance(made.effect, Effect):
        raise DefinitionError(f"{owner}: effect={made.effect!r} is not one of {', '.join(Effect)}")
    _check_fields(made, owner)
    per_second(made.rate_limit, owner=owner)
    _check_class(made, owner)
    if made.effect is Effect.QUERYABLE and not looks_up:
        raise DefinitionError(f"{owner}: a QUERYABLE tool needs def lookup(self, request, *, key)")
    if isinstance(made, type):
        _check_constructor(made, owner)


def _check_fields(made: Any, owner: str) -> None:
    for field in _DURATIONS:
        value = getattr(made, field)
        if value is not None and (not isinstance(value, timedelta) or value < timedelta(0)):
            raise DefinitionError(f"{owner}: {field}={value!r} must be a timedelta of 0 or more")
    for field in ("volatile", "secret"):
        if isinstance(getattr(made, field), str):
            raise DefinitionError(f"{owner}: {field} takes a set of field names")


def _check_class(made: Any, owner: str) -> None:
    if made.effect is Effect.IDEMPOTENT and made.key_retention is None:
        raise DefinitionError(
            f"{owner}: an IDEMPOTENT tool says for how long its provider honours a key: "
            "key_retention = timedelta(hours=24)"
        )
    if made.effect is not Effect.IDEMPOTENT and made.key_retention is not None:
        raise DefinitionError(f"{owner}: key_retention belongs to IDEMPOTENT tools")


def _check_constructor(made: Any, owner: str) -> None:
    needed = [
        parameter.name
        for parameter in list(inspect.signature(made.__init__).parameters.values())[1:]
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if needed:
        raise DefinitionError(
            f"{owner}: a look-up after a crash makes it without arguments, but it needs {', '.join(needed)}: "
            "read them from the environment, or use register_instance"
        )
