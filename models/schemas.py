"""Annotations: the adapter that validates by one, and its schema for the interface digest.

The schema says only what decides whether a value fits. Titles, descriptions and examples are left
out, so that a reworded docstring does not make every run in flight incompatible.
"""

from collections.abc import Callable
from inspect import Parameter
from typing import Any, cast, get_args

from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, JsonSchemaWarningKind
from pydantic_core import CoreSchema

from models.errors import OnwardError, UnsupportedAnnotation
from models.messages import one_line, shorten

_PROSE = frozenset({"title", "description", "examples"})
_NAMED_SCHEMAS = frozenset({"properties", "patternProperties", "$defs", "dependentSchemas"})
_DATA = frozenset({"default", "const", "enum", "required", "discriminator"})
_SILENT: set[JsonSchemaWarningKind] = {
    "skipped-choice",
    "non-serializable-default",
    "skipped-discriminator",
}


def adapter_of(annotation: object, subject: str) -> TypeAdapter[Any]:
    """What dumps and validates values of ``annotation``. Raises UnsupportedAnnotation."""
    # mypy wants a type form here, and an annotation read from a signature is only an object.
    build = cast("Callable[[object], TypeAdapter[Any]]", TypeAdapter)
    try:
        adapter = build(annotation)
    except (PydanticUserError, NameError, TypeError) as error:
        reason = one_line(str(error))
        raise UnsupportedAnnotation(subject, annotation_name(annotation), reason) from error
    if adapter.pydantic_complete:
        return adapter
    reason = "it names a type that is not defined"
    raise UnsupportedAnnotation(subject, annotation_name(annotation), reason)


def annotation_name(annotation: object) -> str:
    if isinstance(annotation, type) and not get_args(annotation):
        return shorten(annotation.__name__)
    return shorten(one_line(repr(annotation)))


def schema_of(annotation: object) -> dict[str, Any]:
    """The schema of what ``annotation`` accepts; ``{}`` for what is not annotated."""
    if annotation is Parameter.empty:
        return {}
    try:
        schema = adapter_of(annotation, "the annotation").json_schema(
            by_alias=False, schema_generator=_InterfaceSchema
        )
    except (OnwardError, PydanticUserError):
        return {"x-python-type": getattr(annotation, "__qualname__", repr(annotation))}
    kept: dict[str, Any] = _without_prose(schema)
    return kept


class _InterfaceSchema(GenerateJsonSchema):
    """A type that JSON Schema cannot describe is named there instead of failing the whole."""

    ignored_warning_kinds = _SILENT

    def handle_invalid_for_json_schema(
        self, schema: CoreSchema, error_info: str
    ) -> JsonSchemaValue:
        del error_info  # says what is missing in JSON Schema, not what the type is
        kind = schema.get("cls") or schema.get("function") or schema["type"]
        return {"x-python-type": getattr(kind, "__qualname__", str(schema["type"]))}


def _without_prose(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_prose(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Any] = {}
    for key, item in schema.items():
        if key in _NAMED_SCHEMAS:
            kept[key] = {name: _without_prose(named) for name, named in item.items()}
        elif key in _DATA:
            kept[key] = item
        elif key not in _PROSE:
            kept[key] = _without_prose(item)
    return kept
