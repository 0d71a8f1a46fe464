"""Tools: what a step may ask of the outside world, and what each promises about being asked twice.

    class FileReport(Tool[Report, Filing]):
        name, version = "registry.file", "2"
        effect = Effect.QUERYABLE
        max_request_lifetime = timedelta(seconds=60)
        consistency_window = timedelta(seconds=20)
        def execute(self, request, *, key): ...
        def lookup(self, request, *, key): ...  # -> Found(result) | Absent() | Undecided(reason)
        def compensate(self, request, result, *, key): ...

A tool is called by ``ctx.call(FileReport(), report)``. Defining the class registers it under its name, since
a look-up after a crash is made by another process, which knows only the name: a class is made without
arguments there, a tool configured by its constructor registers the instance.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from types import MappingProxyType
from typing import Any, Generic, TypeAlias, TypeVar, get_args, get_origin

from models.journal.effect_values import Promise
from models.settings import settings
from models.states import EffectClass as Effect
from models.values import Typed
from tasks.binding import annotations_of
from tasks.errors import DefinitionError
from tasks.options import check_label, per_second

__all__ = [
    "Absent",
    "Effect",
    "Found",
    "NotSent",
    "Refused",
    "Tool",
    "Unanswered",
    "Undecided",
    "tool",
    "tool_named",
    "tools",
]  # fmt: skip

Request = TypeVar("Request")
Result = TypeVar("Result")


class Refused(Exception):
    """Raised by a tool: a definite answer that it did not happen. The step's retry policy decides."""


class NotSent(Refused):
    """Raised by a tool: the request provably never left."""


class Unanswered(Exception):
    """Raised by a tool: it may have happened. What any other exception of ``execute`` means as well."""


@dataclass(frozen=True, slots=True)
class Found(Generic[Result]):
    """A look-up's answer: it happened, and this is its result."""

    result: Result


@dataclass(frozen=True, slots=True)
class Absent:
    """A look-up's answer: nothing of it is there. Believed only when nothing can still arrive."""


@dataclass(frozen=True, slots=True)
class Undecided:
    """A look-up's answer: it cannot tell, and looking again would not help. A person decides.

    ``again_in`` seconds: it cannot tell *yet* (still provisioning): look again then.
    """

    reason: str
    again_in: float | None = None


Looked: TypeAlias = Found[Any] | Absent | Undecided

_tools: "dict[str, Tool[Any, Any] | type[Tool[Any, Any]]]" = {}


class Tool(Generic[Request, Result]):
    """Something outside that a step may change. Subclass it, or decorate a function with ``@tool``."""

    name: str
    version: str = "1"
    effect: Effect
    key_retention: timedelta | None = None  #: IDEMPOTENT: how long the provider honours a key
    max_request_lifetime: timedelta | None = None  #: how long after sending it can land; None: ever
    consistency_window: timedelta = timedelta(0)  #: how long a look-up may miss what exists
    timeout: timedelta | None = None  #: one call; None: ``ONWARD_TOOL_TIMEOUT``
    rate_limit: str | float | None = None  #: calls over the whole cluster, spelled as for steps
    volatile: frozenset[str] = frozenset()  #: request fields that do not make it another request
    secret: frozenset[str] = (
        frozenset()
    )  #: request fields neither recorded nor part of its identity

    def __init_subclass__(cls, *, abstract: bool = False, **options: Any) -> None:
        """``abstract=True``: a base for other tools, not a tool itself."""
        super().__init_subclass__(**options)
        if not abstract:
            _check(cls)
            _register(cls.name, cls)

    def execute(self, request: Request, *, key: str) -> Result:
        """Do it. Raise ``Refused`` or ``NotSent`` when it certainly did not happen."""
        raise NotImplementedError

    def lookup(self, request: Request, *, key: str) -> Looked:
        """Whether it happened. Raising means that the check failed, and says nothing else."""
        raise NotImplementedError

    def compensate(self, request: Request, result: Result, *, key: str) -> Any:
        """Undo it. Called with a key of its own; raise ``Refused`` when it cannot be undone."""
        raise NotImplementedError

    def lookup_compensation(self, request: Request, result: Result, *, key: str) -> Looked:
        """Whether it was undone: by default, whether ``lookup`` of the effect finds nothing any more.

        ``key`` is the effect's own. ``Found`` means undone. Tools whose undone things stay visible
        (a cancelled order) override this.
        """
        match self.lookup(request, key=key):
            case Absent():
                return Found(None)
            case Found():
                return Absent()
            case undecided:
                return undecided

    @property
    def can_look_up(self) -> bool:
        """Whether the world can be asked what became of a request."""
        return type(self).lookup is not Tool.lookup

    @property
    def can_compensate(self) -> bool:
        """Whether what it did can be undone."""
        return type(self).compensate is not Tool.compensate

    @cached_property
    def promise(self) -> Promise:
        """What this tool declares, in seconds."""
        return Promise(
            effect_class=self.effect,
            timeout=_seconds(self.timeout) or settings().tool_timeout,
            key_retention=_seconds(self.key_retention),
            max_request_lifetime=_seconds(self.max_request_lifetime),
            consistency_window=_seconds(self.consistency_window) or 0.0,
        )

    @cached_property
    def per_second(self) -> float | None:
        """The rate limit in calls a second."""
        return per_second(self.rate_limit, owner=f"tool {self.name}")

    @cached_property
    def request_type(self) -> Typed:
        """The adapter of requests: from ``Tool[Request, Result]`` or ``execute``'s annotations."""
        return Typed(self._annotation(0, "request"), subject=f"the request of {self.name}")

    @cached_property
    def result_type(self) -> Typed:
        """The adapter of results."""
        return Typed(self._annotation(1, "return"), subject=f"the result of {self.name}")

    def _annotation(self, place: int, parameter: str) -> Any:
        for base in _generic_bases(type(self)):
            given = get_args(base)[place]
            if not isinstance(given, TypeVar):
                return given
        hints = annotations_of(type(self).execute, owner=f"tool {self.name}")
        found = hints.get(parameter, Any)
        return Any if isinstance(found, TypeVar) else found

    def __repr__(self) -> str:
        return f"<tool {self.name}>"


class _FunctionTool(Tool[Any, Any], abstract=True):
    """A tool made of functions by ``@tool``."""

    def __init__(self, execute: Callable[..., Any], options: Mapping[str, Any]) -> None:
        for option, value in options.items():
            setattr(self, option, value)
        self._execute = execute
        self._functions: dict[str, Callable[..., Any]] = {}
        _check(self)
        _register(self.name, self)

    def execute(self, request: Any, *, key: str) -> Any:
        return self._execute(request, key=key)

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

    def _annotation(self, place: int, parameter: str) -> Any:
        hints = annotations_of(self._execute, owner=f"tool {self.name}")
        if parameter == "return":
            return hints.get("return", Any)
        first = next(iter(inspect.signature(self._execute).parameters), "request")
        return hints.get(first, Any)


def tool(
    name: str, *, effect: Effect, version: str = "1", **options: Any
) -> Callable[[Callable[..., Any]], _FunctionTool]:
    """Make a function ``(request, *, key)`` a tool; options are the attributes of ``Tool``.

    ``@charge.look_up_with`` and ``@charge.compensate_with`` add the other two functions.
    """
    unknown = set(options) - _OPTIONS
    if unknown:
        raise DefinitionError(f"tool {name}: unknown options {', '.join(sorted(unknown))}")
    given = {"name": name, "effect": effect, "version": version, **options}
    return lambda function: _FunctionTool(function, given)


def tool_named(name: str) -> Tool[Any, Any]:
    """The tool behind a name in the journal, or ``LookupError``: this process has not loaded it."""
    found = _tools.get(name)
    if found is None:
        raise LookupError(f"no tool is called {name!r} here; loaded: {', '.join(sorted(_tools))}")
    return found() if isinstance(found, type) else found


def tools() -> Mapping[str, Any]:
    """What is registered, by name."""
    return MappingProxyType(_tools)


def register_instance(configured: Tool[Any, Any]) -> None:
    """Make a tool known that its constructor's arguments configure (``HttpTool``)."""
    _check(configured)
    _register(configured.name, configured)


_OPTIONS = frozenset(
    {"key_retention", "max_request_lifetime", "consistency_window", "timeout", "rate_limit", "volatile",
     "secret"}
)  # fmt: skip


def _register(name: str, made: Any) -> None:
    known = _tools.get(name)
    if known is not None and _origin(known) != _origin(made):
        raise DefinitionError(
            f"two tools are called {name!r}, in {_origin(known)} and {_origin(made)}: rename one, since "
            "a look-up after a crash finds a tool by its name"
        )
    _tools[name] = made


def _origin(made: Any) -> str:
    of = getattr(made, "_execute", None) or (made if isinstance(made, type) else type(made))
    return f"{of.__module__}.{of.__qualname__}"


def _check(made: Any) -> None:
    """Refuse what could never be recovered, when its module is imported."""
    owner = f"tool {getattr(made, 'name', made)!s}"
    for needed in ("name", "effect"):
        if getattr(made, needed, None) is None:
            raise DefinitionError(f"{owner}: {needed} = ... is missing")
    check_label(made.name, option="name", owner=owner)
    if not isinstance(made.effect, Effect):
        raise DefinitionError(f"{owner}: effect={made.effect!r} is not one of {', '.join(Effect)}")
    for field in ("key_retention", "max_request_lifetime", "consistency_window", "timeout"):
        value = getattr(made, field)
        if value is not None and (not isinstance(value, timedelta) or value < timedelta(0)):
            raise DefinitionError(f"{owner}: {field}={value!r} must be a timedelta of 0 or more")
    for field in ("volatile", "secret"):
        if isinstance(getattr(made, field), str):
            raise DefinitionError(f"{owner}: {field} takes a set of field names")
    per_second(made.rate_limit, owner=owner)
    _check_class(made, owner)


def _check_class(made: Any, owner: str) -> None:
    if made.effect is Effect.IDEMPOTENT and made.key_retention is None:
        raise DefinitionError(
            f"{owner}: an IDEMPOTENT tool says for how long its provider honours a key: "
            "key_retention = timedelta(hours=24)"
        )
    if made.effect is not Effect.IDEMPOTENT and made.key_retention is not None:
        raise DefinitionError(f"{owner}: key_retention belongs to IDEMPOTENT tools")
    if not isinstance(made, type):
        return
    if made.effect is Effect.QUERYABLE and made.lookup is Tool.lookup:
        raise DefinitionError(f"{owner}: a QUERYABLE tool needs def lookup(self, request, *, key)")
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


def _generic_bases(kind: type) -> list[Any]:
    return [
        base
        for one in kind.__mro__
        for base in getattr(one, "__orig_bases__", ())
        if isinstance(get_origin(base), type)
        and issubclass(get_origin(base), Tool)
        and len(get_args(base)) == 2
    ]


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()
