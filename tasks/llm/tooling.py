"""Tools as a model sees them, and the requests that come of what it asks for.

A tool is an instance of ``Tool`` or a function marked with ``@pure``: a plain function says nothing about
what it does outside, so it is refused. The name a model sees may hold letters, digits, ``_`` and ``-`` only.
"""

import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, create_model
from pydantic_core import to_jsonable_python

from models.errors import OnwardError
from models.messages import one_line
from models.schemas import adapter_of
from models.states import EffectClass
from models.values import decode
from tasks.binding import annotations_of
from tasks.errors import DefinitionError
from tasks.llm.values import UNREADABLE, Offer, ToolCall
from tasks.tool_base import Refused, Tool

F = TypeVar("F", bound=Callable[..., Any])

_MARK = "__onward_pure__"
_ODD = re.compile(r"[^A-Za-z0-9_-]")
_ODD_ID = re.compile(r"[^A-Za-z0-9._-]")
_LONGEST_NAME, _LONGEST_ID = 64, 80
_WRAPPED = "request"  #: the argument that holds a request which is no object


def pure(function: F) -> F:
    """Declare that a function changes nothing outside, so that it may be called again after a crash.

    Its answer is recorded all the same: a conversation goes on from what the model was told.
    """
    setattr(function, _MARK, True)
    return function


def is_pure(function: object) -> bool:
    """Whether ``@pure`` was said of a function, or it is a method of one that was."""
    return bool(getattr(getattr(function, "__func__", function), _MARK, False))


class PureFunction(Tool[Any, Any], abstract=True):
    """A ``@pure`` function as a tool. What it refuses is an answer too, and recorded like one."""

    effect = EffectClass.PURE

    def __init__(self, function: Callable[..., Any]) -> None:
        self.name = function.__name__
        self.function = function
        self.arguments = _arguments_of(function)

    def execute(self, request: Any, *, key: str) -> Any:
        del key
        given = {field: getattr(request, field) for field in type(request).model_fields}
        try:
            value = self.function(**given)
        except Refused as refusal:
            return {"refused": str(refusal)}
        return _awaited(value) if inspect.isawaitable(value) else {"value": value}

    def _annotation(self, place: int, parameter: str, /) -> Any:
        del parameter
        return self.arguments if place == 0 else Any


async def _awaited(value: Any) -> dict[str, Any]:
    try:
        return {"value": await value}
    except Refused as refusal:
        return {"refused": str(refusal)}


@dataclass(frozen=True, slots=True)
class Bench:
    """The tools of one conversation, by the names that the model knows them by."""

    tools: Mapping[str, Tool[Any, Any]]

    @property
    def offers(self) -> list[Offer]:
        return [_offer(name, tool) for name, tool in self.tools.items()]

    def requested(self, call: ToolCall) -> tuple[Tool[Any, Any], Any]:
        """(tool, request) of what the model asks for. Raises ``ValueError`` in words for the model."""
        tool = self.tools.get(call.name)
        if tool is None:
            known = ", ".join(self.tools) or "none"
            raise ValueError(f"there is no tool {call.name!r}; there are: {known}")
        try:
            given = json.loads(call.arguments or "{}")
        except (ValueError, RecursionError) as error:
            raise ValueError(f"the arguments are not a JSON object: {error}") from error
        if not isinstance(given, dict) or UNREADABLE in given:
            raise ValueError("the arguments are not a JSON object")
        try:
            return tool, tool.request_type.validate(_unwrapped(tool, given))
        except OnwardError as error:
            raise ValueError(one_line(str(error))) from error


def bench(tools: Iterable[Any]) -> Bench:
    """Tools by name. Refused, before the model is asked anything: what is no tool, two of one name."""
    found: dict[str, Tool[Any, Any]] = {}
    for given in tools:
        tool = as_tool(given)
        name = _ODD.sub("_", tool.name)[:_LONGEST_NAME]
        if name in found:
            raise DefinitionError(f"two tools would be {name!r} to the model: rename one")
        found[name] = tool
    return Bench(found)


def as_tool(given: Any) -> Tool[Any, Any]:
    """What was offered to a model as a tool; refused when nobody said what it does outside."""
    if isinstance(given, Tool):
        return given
    if isinstance(given, type) and issubclass(given, Tool):
        return given()
    if callable(given) and is_pure(given):
        return _pure_tool(given)
    name = getattr(given, "__name__", repr(given))
    raise DefinitionError(
        f"{name} was offered to a model as a tool, and nothing says what it does outside: calling it again after "
        f"a crash might do it twice. Mark it with @pure (from tasks.llm) when it only computes or reads; "
        f"otherwise make it a tool: @tool({name!r}, effect=Effect.QUERYABLE) (docs/effects.md)"
    )


def call_name(where: str, index: int, call: ToolCall) -> str:
    """The name of a tool's call in the ledger: the same in every attempt, since the model's answer is recorded.

    The provider's id alone would not do: some servers count them anew in each answer.
    """
    clean = _ODD_ID.sub("_", call.id)[:_LONGEST_ID]
    if clean != call.id:
        clean += "-" + sha256(call.id.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{where}.{index}.{clean}"


def told(tool: Tool[Any, Any], result: Any) -> tuple[str, bool]:
    """(what the model is told of a result, whether it is a refusal); the same in every process."""
    if isinstance(tool, PureFunction):
        if "refused" in result:
            return str(result["refused"]) or "refused", True
        result = result["value"]
    if isinstance(result, str):
        return result, False
    kept = decode(tool.result_type.dump(result)) if not isinstance(tool, PureFunction) else result
    return json.dumps(_plain(kept), ensure_ascii=False, sort_keys=True), False


def _plain(value: Any) -> Any:
    """As JSON has it. Sets are sorted: their order differs from process to process."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="python")
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((_plain(item) for item in value), key=repr)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        return [_plain(item) for item in value]
    return to_jsonable_python(value, fallback=str)


@lru_cache(maxsize=256)
def _pure_tool(function: Callable[..., Any]) -> PureFunction:
    return PureFunction(function)


@lru_cache(maxsize=256)
def _offer(name: str, tool: Tool[Any, Any]) -> Offer:
    described = getattr(tool, "function", None) or type(tool)
    description = inspect.getdoc(described) or tool.name
    return Offer(name, description, _schema(tool))


def _schema(tool: Tool[Any, Any]) -> dict[str, Any]:
    """The schema of a request, less the secret fields: those are no model's to know."""
    typed = tool.request_type
    schema = adapter_of(typed.annotation, typed.subject).json_schema(by_alias=False)
    if not _is_object(schema):
        defs = schema.pop("$defs", None)
        wrapped = {"type": "object", "properties": {_WRAPPED: schema}, "required": [_WRAPPED]}
        return wrapped | ({"$defs": defs} if defs else {})
    for secret in tool.secret:
        schema.get("properties", {}).pop(secret, None)
    return {"type": "object", "properties": {}} | schema


def _is_object(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "object" or "properties" in schema


def _unwrapped(tool: Tool[Any, Any], given: dict[str, Any]) -> Any:
    typed = tool.request_type
    schema = adapter_of(typed.annotation, typed.subject).json_schema(by_alias=False)
    return given if _is_object(schema) else given.get(_WRAPPED)


def _arguments_of(function: Callable[..., Any]) -> type[BaseModel]:
    """The parameters of a function as a model: what else the model sends is refused."""
    owner = f"tool {function.__name__}"
    hints = annotations_of(function, owner=owner)
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
            parameter.POSITIONAL_ONLY,
        ):
            raise DefinitionError(f"{owner}: a model gives arguments by name, which {name} has not")
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[name] = (hints.get(name, Any), default)
    made: type[BaseModel] = create_model(
        f"{function.__name__}_arguments", __config__=ConfigDict(extra="forbid"), **fields
    )
    return made


__all__ = ["Bench", "PureFunction", "as_tool", "bench", "call_name", "is_pure", "pure", "told"]
