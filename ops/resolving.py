"""What a person found outside, as the result that the step's call would have had."""

import json
from typing import Any

from models.errors import OnwardError, ValueMismatch
from models.journal.stories import EffectView
from models.messages import safe_repr
from models.schemas import annotation_name, schema_of
from models.settings import settings
from models.values import Typed
from tasks import registry
from tasks.tools import tool_named

_ID_FIELDS = ("resource_id", "id")


class ResultNeeded(OnwardError):
    """An id alone does not make a result of this tool."""

    error_type = "result_needed"


class ToolUnknown(OnwardError):
    """The tool's code is not here, so nothing can be held against its types."""

    error_type = "tool_unknown"


def result_of(effect: EffectView, *, external_id: str, given: str | None) -> str:
    """The text to record: ``given`` (JSON), or what the id alone makes, as the tool's result type has it.

    Raises ``ToolUnknown``, ``ResultNeeded``, ``ValueMismatch``.
    """
    if effect.undoes is not None:
        kind = Typed(Any, subject=f"the undoing by {effect.tool}")
    else:
        registry.load_agents()
        try:
            kind = tool_named(effect.tool).result_type
        except LookupError as error:
            raise ToolUnknown(
                f"The result of {effect.key} cannot be checked: {error}. Name its package in ONWARD_AGENTS."
            ) from None
    value = _read(given, kind) if given is not None else _made_of(external_id, kind, effect.tool)
    return kind.open_part(kind.dump(value, limit=settings().output_limit))


def _read(given: str, kind: Typed) -> object:
    try:
        structure = json.loads(given)
    except (ValueError, RecursionError) as error:
        raise ResultNeeded(f"--result is not JSON: {error}.") from None
    return kind.validate(structure)


def _made_of(external_id: str, kind: Typed, tool: str) -> object:
    if kind.annotation in (None, type(None)):
        return None
    fields = _fields(schema_of(kind.annotation))
    try:
        return kind.validate(external_id if fields is None else _filled(fields, external_id))
    except ValueMismatch as error:
        needs = _told(fields) if fields else "which is no text"
        raise ResultNeeded(
            f"The id {safe_repr(external_id)} alone is no result of {tool}: it is {annotation_name(kind.annotation)}, "
            f"{needs} ({error.path}: {error.problem}). Give all of it with --result, as JSON."
        ) from None


def _filled(fields: dict[str, bool], external_id: str) -> dict[str, str]:
    """The id in its field: the one of its name, or the only one that is required."""
    named = [name for name in _ID_FIELDS if name in fields]
    required = [name for name, needed in fields.items() if needed]
    return {name: external_id for name in (named or required)[:1]}


def _told(fields: dict[str, bool]) -> str:
    required = [name for name, needed in fields.items() if needed]
    others = [name for name, needed in fields.items() if not needed]
    return f"which needs {', '.join(required) or 'nothing'}" + (
        f" and may have {', '.join(others)}" if others else ""
    )


def _fields(schema: dict[str, Any]) -> dict[str, bool] | None:
    """By name whether it is required, of a type with fields; None for any other."""
    named: dict[str, Any] = schema.get("$defs", {})
    kind = named.get(schema["$ref"].rpartition("/")[2], {}) if "$ref" in schema else schema
    if kind.get("type") != "object" or "properties" not in kind:
        return None
    required = kind.get("required", ())
    return {name: name in required for name in kind["properties"]}
