"""Which tools a process knows, by name, and what is refused before one is known."""

import inspect
from collections.abc import Mapping
from datetime import timedelta
from types import CellType, MappingProxyType
from typing import TYPE_CHECKING, Any

from models.states import EffectClass as Effect
from tasks.errors import DefinitionError
from tasks.options import check_label, per_second

if TYPE_CHECKING:
    from tasks.tool_base import Tool

_tools: "dict[str, Tool[Any, Any] | type[Tool[Any, Any]]]" = {}
_PLAIN = (str, int, float, bytes, bool, timedelta, tuple, frozenset)
_METHODS = {"execute": ("request",), "lookup": ("request",), "compensate": ("request", "result")}
_NAMES_SHOWN = 12
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
    if known is not None and _configuration(known) != _configuration(made):
        raise DefinitionError(
            f"two tools are called {made.name!r}, both made by {_origin(made)} and configured differently: give "
            "each a name of its own, since a look-up after a crash finds a tool by its name"
        )
    _tools[made.name] = made


def register_instance(configured: "Tool[Any, Any]") -> None:
    """Make a tool known that its constructor's arguments configure (``HttpTool``)."""
    register(configured, looks_up=configured.can_look_up)


def tool_named(name: str) -> "Tool[Any, Any]":
    """The tool behind a name in the journal, or ``LookupError``: this process has not loaded it."""
    found = _tools.get(name)
    if found is None:
        raise LookupError(f"no tool is called {name!r} here; loaded: {_some(sorted(_tools))}")
    return found() if isinstance(found, type) else found


def _some(names: list[str]) -> str:
    """The first of them: what is said after them has to be read as well."""
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def require_recoverable(called: "Tool[Any, Any]") -> None:
    """Refuse, before anything is sent, a tool of which nobody could ask later what it did."""
    if called.effect is Effect.PURE:
        return
    known = _tools.get(called.name)
    if known is None or _origin(known) != _origin(called):
        raise DefinitionError(
            f"tool {called.name} is not registered under that name, and a look-up after a crash would not find "
            "it: nothing was sent. Make it where its module is loaded, and use register_instance for a tool that "
            "its constructor configures"
        )
    if called.effect is Effect.QUERYABLE and not called.can_look_up:
        raise DefinitionError(
            f"tool {called.name} is QUERYABLE and cannot be asked: nothing was sent. Give its function a "
            "look-up, with its look_up_with"
        )


def tools() -> Mapping[str, Any]:
    """What is registered, by name."""
    return MappingProxyType(_tools)


def _origin(made: Any) -> str:
    of = getattr(made, "function", None) or (made if isinstance(made, type) else type(made))
    return f"{of.__module__}.{of.__qualname__}"


def _configuration(made: Any) -> dict[str, object]:
    """What tells two tools of one maker apart, as far as it can be compared: plain values, and a closure's."""
    if isinstance(made, type):
        return {}
    facts = dict(vars(made))
    if (function := getattr(made, "function", None)) is not None:
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        facts |= {f"closure of {name}": _content(cell) for name, cell in cells}
    return {name: value for name, value in facts.items() if isinstance(value, _PLAIN)}


def _content(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # not bound yet
        return None


def _check(made: Any, *, looks_up: bool) -> None:
    """Refuse what could never be recovered, when its module is imported."""
    owner = f"tool {getattr(made, 'name', made)!s}"
    for needed in ("name", "effect"):
        if getattr(made, needed, None) is None:
            raise DefinitionError(f"{owner}: {needed} = ... is missing")
    check_label(made.name, option="name", owner=owner)
    if not isinstance(made.version, str):
        raise DefinitionError(f"{owner}: version={made.version!r} must be text")
    if not isinstance(made.effect, Effect):
        raise DefinitionError(f"{owner}: effect={made.effect!r} is not one of {', '.join(Effect)}")
    _check_fields(made, owner)
    per_second(made.rate_limit, owner=owner)
    _check_class(made, owner)
    if made.effect is Effect.QUERYABLE and not looks_up:
        raise DefinitionError(f"{owner}: a QUERYABLE tool needs def lookup(self, request, *, key)")
    for method, given in _METHODS.items():
        _check_method(made, method, given, owner=owner)
    if isinstance(made, type):
        _check_constructor(made, owner)


def _check_method(made: Any, method: str, given: tuple[str, ...], *, owner: str) -> None:
    """A call that Python refuses would look like one that may have happened."""
    function = getattr(made, "function", None) if method == "execute" else None
    function = function or getattr(made, method)
    try:
        signature = inspect.signature(function)
    except ValueError:
        return  # a function of C that does not say
    bound = (made, *given) if inspect.isfunction(function) and isinstance(made, type) else given
    try:
        signature.bind(*bound, key="")
    except TypeError as error:
        takes = ", ".join((*given, "*", "key"))
        raise DefinitionError(f"{owner}: {method} is called with ({takes}): {error}") from None
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise DefinitionError(
            f"{owner}: {method} is a generator, which does nothing when it is called"
        )


def _check_fields(made: Any, owner: str) -> None:
    for field in _DURATIONS:
        value = getattr(made, field)
        if value is not None and (not isinstance(value, timedelta) or value < timedelta(0)):
            raise DefinitionError(f"{owner}: {field}={value!r} must be a timedelta of 0 or more")
    if made.timeout == timedelta(0):
        raise DefinitionError(f"{owner}: timeout=0 leaves no time for a call")
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
    if made.__init__ is object.__init__:
        return
    taken = list(inspect.signature(made.__init__).parameters)[1:]
    if taken:
        raise DefinitionError(
            f"{owner}: a look-up after a crash makes it without arguments, and would ask another place than one "
            f"made with {', '.join(taken)}: read them from the environment, or make the class abstract=True and "
            "use register_instance for what its constructor configures"
        )
