"""Which steps a workflow can reach, found by reading its code's references, before any run.

Celery tasks are registered when a worker starts, so the steps must be known then, those that only a
``Then`` names included. Followed are globals, closures, defaults and attributes of imported modules
that the byte code names; helper functions and classes only within the package that refers to them,
so that the walk does not wander through installed libraries.
"""

import sys
from collections.abc import Iterable, Iterator
from functools import partial
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from tasks.canvas import Chain, Group, Signature
from tasks.definition import Defined
from tasks.step import Step

if TYPE_CHECKING:
    from tasks.workflow import Workflow

_CONTAINER_MAX = 1000  #: a larger collection is data, not a table of steps
_Found = dict[int, Any]


def steps_used_by(workflow: "Workflow[...]") -> tuple[Step[..., Any], ...]:
    """Steps the workflow names, reaches, or has beside it in its module; each once."""
    found: dict[int, Step[..., Any]] = {}
    seen: _Found = {}
    module = vars(sys.modules.get(workflow.function.__module__, ModuleType("gone")))
    beside = [value for value in module.values() if _is_beside(value, workflow.function.__module__)]
    stack: list[tuple[object, str]] = [
        (value, "") for value in (*beside, *workflow.extra_steps, workflow)
    ]
    while stack:
        value, package = stack.pop()
        if id(value) in seen:
            continue
        seen[id(value)] = value
        if isinstance(value, Step):
            found[id(value)] = value
        stack.extend(_references(value, package))
    return tuple(
        sorted(found.values(), key=lambda step: (step.local_name, step.function.__module__))
    )


def _is_beside(value: object, module: str) -> bool:
    return isinstance(value, Step) and value.function.__module__ == module


def _references(value: object, package: str) -> Iterator[tuple[object, str]]:
    """What a value leads to, each with the package on whose behalf it is looked at."""
    if isinstance(value, Defined):
        yield from _of_definition(value)
    elif isinstance(value, FunctionType):
        if _top(value) == package:
            yield from _of_function(value, package)
    elif isinstance(value, type):
        if _top(value) == package:
            members = list(vars(value).values())
            yield from ((getattr(member, "__func__", member), package) for member in members)
    else:
        yield from ((part, package) for part in _parts(value))


def _of_definition(value: Defined) -> Iterator[tuple[object, str]]:
    package = _top(value.function)
    yield from ((extra, package) for extra in value.extra_steps)
    yield from _of_function(value.function, package)


def _parts(value: object) -> Iterable[object]:
    """What canvases and small collections are made of."""
    if isinstance(value, Signature):
        return (value.step,)
    if isinstance(value, Chain):
        return value.links()
    if isinstance(value, Group):
        return value.members
    if isinstance(value, partial):
        return (value.func, *value.args, *value.keywords.values())
    if isinstance(value, dict | list | tuple | set | frozenset) and len(value) <= _CONTAINER_MAX:
        return list(value.values() if isinstance(value, dict) else value)
    return ()


def _of_function(function: Any, package: str) -> Iterator[tuple[object, str]]:
    names = _names(function.__code__)
    yield from ((value, package) for value in _named(names, function.__globals__))
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents, package
        except ValueError:  # a variable that is not assigned yet
            continue
    yield from ((value, package) for value in function.__defaults__ or ())
    yield from ((value, package) for value in (function.__kwdefaults__ or {}).values())
    if hasattr(function, "__wrapped__"):
        yield function.__wrapped__, package


def _names(code: CodeType) -> frozenset[str]:
    """Global and attribute names in this code and in the functions written inside it."""
    names: set[str] = set()
    stack = [code]
    while stack:
        inner = stack.pop()
        names.update(inner.co_names)
        stack.extend(const for const in inner.co_consts if isinstance(const, CodeType))
    return frozenset(names)


def _named(names: Iterable[str], scope: dict[str, Any]) -> Iterator[object]:
    """Values of these names in a scope, and in the modules among them (``nodes.read``)."""
    seen: _Found = {}
    scopes = [scope]
    while scopes:
        inner = scopes.pop()
        for name in names:
            value = inner.get(name)
            if isinstance(value, ModuleType):
                if id(value) not in seen:
                    seen[id(value)] = value
                    scopes.append(vars(value))
            elif value is not None:
                yield value


def _top(value: Any) -> str:
    return str(value.__module__).partition(".")[0]
