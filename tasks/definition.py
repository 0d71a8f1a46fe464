"""Is this function fit to be a step or a workflow? Asked while its module is imported."""

import inspect
import re
import unicodedata
from collections.abc import Callable
from typing import Any

from tasks.canvas import KEY_LIMIT
from tasks.context import Context
from tasks.errors import DefinitionError

_CONTEXT_NAMES = frozenset({"ctx", "_ctx", "context", "_context", "_"})
_NAME = re.compile(r"[\w][\w.-]*")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,49}")
_RESERVED = "onward"
_FIRST = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Defined:
    """What a decorator made of a function; its code is read to find the steps it leads to."""

    function: Callable[..., Any]
    extra_steps: tuple[Any, ...] = ()


def check_step_function(function: Any) -> str:
    """What error messages call this step, once it is known to be one."""
    owner = _check_function(function, decorator="step")
    _check_name(function.__name__, subject=owner)
    parameters = list(inspect.signature(function).parameters.values())
    first = parameters[0] if parameters else None
    if first is None or first.kind not in _FIRST or not _is_context(first):
        raise DefinitionError(
            f"{owner}: the first parameter of a step is the context: write "
            f"def {function.__name__}(ctx: Context, ...)"
        )
    _check_kinds(parameters[1:], owner)
    return owner


def check_step_name(name: str, *, owner: str) -> None:
    """An explicit ``name=``: the whole name on the wire, the workflow not put in front."""
    _check_name(name, subject=f"{owner}: name=")
    if name.partition(".")[0] == _RESERVED or name.endswith("."):
        raise DefinitionError(f"{owner}: name={name!r} is reserved for Onward itself")


def check_workflow_function(function: Any) -> str:
    """What error messages call this workflow function, once it is known to be one."""
    owner = _check_function(function, decorator="workflow")
    if inspect.iscoroutinefunction(function):
        raise DefinitionError(
            f"{owner}: a workflow function runs once, at submission, and only builds the plan: "
            "write a plain def (its steps may be async)"
        )
    parameters = list(inspect.signature(function).parameters.values())
    _check_kinds(parameters, owner)
    rest = next((p for p in parameters if p.kind is p.VAR_POSITIONAL), None)
    if rest is not None:
        raise DefinitionError(
            f"{owner}: a run's input is a JSON object by parameter name, which *{rest.name} has "
            "not: take a list instead"
        )
    return owner


def check_workflow(name: object, *, version: object, compatible_with: object) -> None:
    """Name and versions become part of queue names, and stay."""
    if callable(name):
        raise DefinitionError(
            '@workflow needs a name and a version: @workflow("contract-review", version="1")'
        )
    if not isinstance(name, str) or not name.isascii():
        raise DefinitionError(
            f"workflow name {name!r} must be text of ASCII letters, digits, '.', '_' or '-'"
        )
    _check_name(name, subject="workflow name")
    if name == _RESERVED or name.startswith(f"{_RESERVED}."):
        raise DefinitionError(f"workflow name {name!r} is reserved for Onward itself")
    older = compatible_with if isinstance(compatible_with, tuple | list) else (compatible_with,)
    for text in (version, *older):
        if not isinstance(text, str) or not _VERSION.fullmatch(text):
            raise DefinitionError(
                f"workflow {name}: {text!r} is not a version; "
                'write version="3", compatible_with=("2",)'
            )


def where(function: Callable[..., Any]) -> str:
    """Module and line, for telling two definitions of one name apart."""
    return f"{function.__module__}:{function.__code__.co_firstlineno}"


def source_of(function: Callable[..., Any]) -> str:
    """The function's text, or its byte code where the text was not shipped."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        code = function.__code__
        return f"{code.co_code.hex()} {code.co_names!r} {code.co_varnames!r}"


def _check_function(function: Any, *, decorator: str) -> str:
    if not inspect.isfunction(function):
        raise DefinitionError(
            f"@{decorator} decorates a function (def or async def), not {function!r} "
            f"({type(function).__name__})"
        )
    owner = f"{decorator} {function.__name__} ({where(function)})"
    if function.__name__ == "<lambda>":
        raise DefinitionError(f"{owner}: a lambda has no name to be known by: write a def")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise DefinitionError(f"{owner}: yields; a {decorator} returns one value")
    return owner


def _check_kinds(parameters: list[inspect.Parameter], owner: str) -> None:
    fixed = next((p for p in parameters if p.kind is p.POSITIONAL_ONLY), None)
    if fixed is not None:
        raise DefinitionError(
            f"{owner}: parameter {fixed.name!r} is positional-only, but values are bound by name "
            "too: remove the '/'"
        )


def _is_context(parameter: inspect.Parameter) -> bool:
    hint = parameter.annotation
    if isinstance(hint, type):
        return issubclass(hint, Context)
    if isinstance(hint, str) and hint.strip("'\"").rpartition(".")[2] == "Context":
        return True
    return parameter.name in _CONTEXT_NAMES


def _check_name(name: object, *, subject: str) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise DefinitionError(
            f"{subject} {name!r}: a name has letters, digits, '.', '_' and '-' only"
        )
    if unicodedata.normalize("NFC", name) != name or len(name.encode()) > KEY_LIMIT:
        raise DefinitionError(
            f"{subject} {name[:40]!r}: a name is in normal form NFC and at most {KEY_LIMIT} bytes"
        )
