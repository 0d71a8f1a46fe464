"""Values of steps: what is recorded for an annotation, and what the next step gets.

``Typed`` is built once per annotation and used on both paths. The live path hands on what it reads
back, so a step sees the same types and values whether or not anything crashed before it; a type
that would not survive is refused at once, with the same error.

Without an annotation (or with ``Any``, ``object``) the codec's own types are all there is.
"""

import re
from collections.abc import Callable, Mapping
from inspect import Parameter
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import TypeAdapter, ValidationError

from models.decoding import decode
from models.encoding import check_size, encode, encode_structure
from models.errors import UndecodableValue, UnserialisableValue, ValueMismatch
from models.exceptions import NOT_A_REFERENCE
from models.messages import one_line, path_of, safe_repr
from models.redaction import redact
from models.schemas import adapter_of, annotation_name, schema_of
from models.survival import first_difference

__all__ = ["Typed", "check_size", "decode", "encode", "schema_of"]

_ANYTHING = (Any, object, Parameter.empty)
_JSON_TYPES = (str, int, float, bool, list, dict, None, NoneType)
_PROBLEMS_SHOWN = 3
_UNEXPECTED = re.compile(
    r"Expected (`.+?`).*? \[(?:field_name='(.*?)', )?input_value=(.*?), input_type="
)


class Typed:
    """Records and rebuilds the values of one annotation."""

    def __init__(self, annotation: object, *, subject: str = "the value") -> None:
        """``subject`` begins every message: ``"the result of step contract-review.read"``.

        Raises UnsupportedAnnotation, so that a workflow which could never resume is not registered.
        """
        self.annotation = annotation
        self.subject = subject
        self._adapter = None if _one_of(annotation, _ANYTHING) else adapter_of(annotation, subject)
        self._plain = _is_json_annotation(annotation)

    def dump(self, value: object, *, limit: int | None = None) -> str:
        """The text to record.

        Raises UnserialisableValue, ValueMismatch or OutputTooLarge.
        """
        if self._adapter is None:
            return encode(value, subject=self.subject, limit=limit)
        if not self._plain:
            return self._round_trip_model(self._adapter, value, limit=limit)[0]
        # The codec is lossless for all that passes strict validation: nothing to compare.
        fitting = self._checked(self._adapter.validate_python, value, strict=True)
        return encode(fitting, subject=self.subject, limit=limit)

    def round_trip(self, value: object, *, limit: int | None = None) -> tuple[str, object]:
        """The text to record, and the value that everyone after this moment sees."""
        if self._adapter is not None and not self._plain:
            return self._round_trip_model(self._adapter, value, limit=limit)
        text = self.dump(value, limit=limit)
        return text, self.load(text)

    def _round_trip_model(
        self, adapter: TypeAdapter[Any], value: object, *, limit: int | None
    ) -> tuple[str, object]:
        structure = self._checked(
            adapter.dump_python,
            value,
            by_alias=False,
            exclude_computed_fields=True,
            warnings="error",
        )
        text = encode_structure(structure, subject=self.subject)
        if limit is not None:
            check_size(text, structure, subject=self.subject, limit=limit)
        after = self.load(text)
        difference = first_difference(value, after)
        if difference is not None:
            raise self._mismatch(difference.path, difference.problem)
        return text, after

    def open_part(self, text: str) -> str:
        """What ``dump`` gave, without values of revealed secrets: what is recorded and handed on instead.

        Raises ``ValueMismatch`` where that could not be read again.
        """
        safe = redact(text)
        if safe is not text:
            self.opened(text, None)
        return safe

    def opened(self, text: str, value: object) -> tuple[str, object]:
        """What ``round_trip`` gave, without values of revealed secrets."""
        safe = redact(text)
        if safe is text:
            return text, value
        try:
            return safe, self.load(safe)
        except (UndecodableValue, ValueMismatch):
            problem = (
                "it holds the value of a secret, which is never recorded, and cannot be read without it: return "
                "something that does not depend on the secret"
            )
            raise self._mismatch("$", problem) from None

    def load(self, text: str) -> object:
        """The value that ``dump`` recorded. Raises UndecodableValue or ValueMismatch."""
        return self.validate(decode(text))

    def validate(self, structure: object) -> object:
        """A decoded value or argument as the annotation wants it. Raises ValueMismatch."""
        if self._adapter is None:
            return structure
        # Not strict, whatever a model's configuration says: enums and paths are stored as their
        # base. By field name, since that is what was recorded.
        return self._checked(
            self._adapter.validate_python, structure, strict=False, by_name=True, by_alias=False
        )

    def _checked(self, act: Callable[..., object], value: object, **options: object) -> object:
        """pydantic's refusals, in our words. Validators and serialisers of users raise anything."""
        try:
            return act(value, **options)
        except ValidationError as error:
            path, problem = _problems(error)
            raise self._mismatch(path, problem) from error
        except RecursionError:
            raise UnserialisableValue(
                self.subject, "$", type_name="structure nested too deeply", advice="flatten it"
            ) from None
        except MemoryError:
            raise  # says nothing about the value: another process may have the room
        except Exception as error:
            if isinstance(error.__cause__, MemoryError):
                raise error.__cause__ from None
            path, problem = _unexpected(one_line(str(error)))
            raise self._mismatch(path, problem) from error

    def _mismatch(self, path: str, problem: str) -> ValueMismatch:
        return ValueMismatch(
            self.subject, annotation_name(self.annotation), path=path, problem=problem
        )


def _is_json_annotation(annotation: object) -> bool:
    """Only types whose values are their own structure: no adapter output to compare, so faster."""
    if _one_of(annotation, _ANYTHING) or _one_of(annotation, _JSON_TYPES):
        return True
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is dict and arguments[0] is not str:
        return False
    if origin is list or origin is dict or origin is Union or origin is UnionType:
        return all(_is_json_annotation(argument) for argument in arguments)
    return False


def _one_of(annotation: object, choices: tuple[object, ...]) -> bool:
    return any(annotation is choice for choice in choices)  # annotations may lack a hash


def _problems(error: ValidationError) -> tuple[str, str]:
    """The path of the first problem, and the first few problems."""
    found: list[Mapping[str, Any]] = [
        *error.errors(include_url=False, include_context=False, include_input=True)
    ]
    shown = [
        _problem(item, with_path=index > 0) for index, item in enumerate(found[:_PROBLEMS_SHOWN])
    ]
    if len(found) > _PROBLEMS_SHOWN:
        shown.append(f"and {len(found) - _PROBLEMS_SHOWN} more")
    return path_of(found[0]["loc"]), "; ".join(shown)


def _problem(item: Mapping[str, Any], *, with_path: bool) -> str:
    where = f"{path_of(item['loc'])}: " if with_path else ""
    message = one_line(item["msg"])
    if item["type"] == NOT_A_REFERENCE:
        return f"{where}{message}"
    return f"{where}{message}, not {safe_repr(item['input'], limit=60)}"


def _unexpected(message: str) -> tuple[str, str]:
    """A serialiser's complaint in the words of a validator's; it knows the field, not its path."""
    found = _UNEXPECTED.search(message)
    if found is None:
        return "$", message
    expected, field, value = found.groups()
    return path_of([field] if field else []), f"expected {expected}, not {value}"
