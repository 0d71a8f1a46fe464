"""What the model says: as ordered, or in words of its own that are others each time."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from ops.testing.outside.models.asked import Asked, count_tokens
from ops.testing.outside.models.script import Answer

DEFAULT_PRICE = {"input": 1.0, "output": 4.0, "call": 0.0}  #: USD a million tokens, and USD a call

_DEPTH = 12  #: levels of a schema that are filled; deeper ones are recursive


@dataclass(frozen=True, slots=True)
class ToolCall:
    """What the model wants called."""

    id: str
    name: str
    arguments: str  #: JSON, unless a test wants something else


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer, before any dialect."""

    number: int  #: of the request, so that no two answers have the same id
    created: int
    model: str
    text: str
    refusal: str | None
    tool_calls: tuple[ToolCall, ...]
    finish: str | None
    tokens_in: int
    tokens_out: int

    @property
    def id(self) -> str:
        return f"{self.number:08d}"


def produce(asked: Asked, answer: Answer, *, number: int, created: int) -> Turn:
    """The answer to a request."""
    calls = tuple(
        ToolCall(
            id=str(call.get("id") or f"call_{number}_{place}"), name=call["name"],
            arguments=_json(call.get("arguments", {})),
        )
        for place, call in enumerate(answer.tool_calls)
    )  # fmt: skip
    text = _content(asked, answer, number=number)
    if text is None and (forced := asked.forced_tool):
        arguments = json.dumps(example(forced[1], number=number))
        calls, text = (ToolCall(f"call_{number}_0", forced[0], arguments),), ""
    text = "" if asked.kind == "embeddings" else text
    text = f"Answer {number}." if text is None else text
    said = text + (answer.refusal or "") + "".join(call.arguments for call in calls)
    counted = (count_tokens(asked.text), count_tokens(said) if said else 0)
    tokens = answer.tokens or counted
    finish = answer.finish or ("tool_calls" if calls else "stop")
    return Turn(
        number=number, created=created, model=answer.model or asked.model, text=text,
        refusal=answer.refusal, tool_calls=calls, finish=None if finish == "none" else finish,
        tokens_in=tokens[0], tokens_out=tokens[1],
    )  # fmt: skip


def price(turn: Turn, prices: Mapping[str, Mapping[str, float]], *, model: str) -> Decimal:
    """What an answer costs, exactly."""
    row = {**DEFAULT_PRICE, **prices.get(model, {})}
    rate = {name: Decimal(str(amount)) for name, amount in row.items()}
    tokens = rate["input"] * turn.tokens_in + rate["output"] * turn.tokens_out
    return rate["call"] + tokens / 1_000_000


def _content(asked: Asked, answer: Answer, *, number: int) -> str | None:
    if answer.text is not None:
        return answer.text
    if answer.value is not None:
        return json.dumps(answer.value, ensure_ascii=False)
    if answer.tool_calls or answer.refusal is not None:
        return ""
    schema = asked.schema
    return json.dumps(example(schema, number=number)) if schema is not None else None


def _json(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def example(schema: Mapping[str, Any], *, number: int) -> Any:
    """A value that fits a schema, another one for another number where the schema leaves room."""
    return _fill(schema, schema, number, _DEPTH)


def _fill(schema: Mapping[str, Any], root: Mapping[str, Any], number: int, depth: int) -> Any:
    match schema:
        case {"$ref": str(address)}:
            target: Any = root
            for name in address.removeprefix("#/").split("/"):
                target = target[name]
            return _fill(target, root, number, depth - 1)
        case {"const": value}:
            return value
        case {"enum": [*values]}:
            return values[number % len(values)]
        case {"anyOf": [*choices]} | {"oneOf": [*choices]}:
            chosen = {"type": "null"} if depth < 0 else choices[0]
            return _fill(chosen, root, number, depth - 1)
        case {"allOf": [first, *_]}:
            return _fill(first, root, number, depth - 1)
    return _fill_type(schema, root, number, depth)


def _fill_type(schema: Mapping[str, Any], root: Mapping[str, Any], number: int, depth: int) -> Any:
    kind = schema.get("type")
    match kind[0] if isinstance(kind, list) else kind:
        case "object":
            fields: Mapping[str, Any] = schema.get("properties") or {}
            return {name: _fill(one, root, number, depth - 1) for name, one in fields.items()}
        case "array":
            few = max(int(schema.get("minItems", 0)), 1 if depth > 0 else 0)
            return [
                _fill(schema.get("items") or {}, root, number + n, depth - 1) for n in range(few)
            ]
        case "integer" | "number":
            low = schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
            return min(low + number % 100, schema.get("maximum", low + 100))
        case "boolean":
            return number % 2 == 0
        case "null":
            return None
    return f"answer {number}".ljust(int(schema.get("minLength", 0)), ".")
