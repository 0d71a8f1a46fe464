"""What Onward refuses, and why: one root, the docstring is the meaning, the facts are attributes.

Every message says what happened, to what, and what to do next, in printable ASCII: it is stored in
text columns and shown in terminals, so a NUL or an escape sequence in the cause must not reach it.
"""

from typing import Any, ClassVar

from models.messages import an, safe_repr


class OnwardError(Exception):
    """Onward refused, or could not answer."""

    error_type: ClassVar[str] = "onward_error"  #: name in the journal and in ``--json`` output

    def __reduce__(self) -> tuple[Any, ...]:
        # A prefork child pickles its exceptions to the parent. The default would call the
        # constructor with the message alone and fail there, which hides the error.
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(
    kind: type[OnwardError], args: tuple[object, ...], state: dict[str, object]
) -> OnwardError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error


class UnserialisableValue(OnwardError):
    """A value has no lossless form in the journal."""

    error_type = "unserialisable_output"

    def __init__(self, subject: str, path: str, *, type_name: str, advice: str) -> None:
        super().__init__(
            f"{subject} cannot be recorded: {path} is {an(type_name)}, which the journal cannot "
            f"hold without loss; {advice}"
        )
        self.path = path
        self.type_name = type_name


class OutputTooLarge(OnwardError):
    """A value takes more room than one recorded value may."""

    error_type = "output_too_large"

    def __init__(self, subject: str, path: str, *, field_size: int, size: int, limit: int) -> None:
        super().__init__(
            f"{subject} takes {size:,} bytes and one recorded value may take {limit:,}; the "
            f"largest field is {path} with {field_size:,}. Keep it as an artifact (ctx.artifact.put) "
            f"and hand on what that returns, split the step, or raise the limit: "
            f"ONWARD_ARTIFACT_LIMIT for values of steps, ONWARD_OUTPUT_LIMIT for what tools are "
            f"asked and answer"
        )
        self.path = path
        self.field_size = field_size
        self.size = size
        self.limit = limit


class ValueMismatch(OnwardError):
    """A value does not fit the annotation it is recorded or bound under."""

    error_type = "value_mismatch"

    def __init__(self, subject: str, annotation: str, *, path: str, problem: str) -> None:
        super().__init__(
            f"{subject} does not fit its annotation {annotation}: {path}: {problem}. "
            f"Correct the value or the annotation"
        )
        self.annotation = annotation
        self.path = path
        self.problem = problem


class UnsupportedAnnotation(OnwardError):
    """An annotation from which no value could be rebuilt."""

    error_type = "unsupported_annotation"

    def __init__(self, subject: str, annotation: str, problem: str) -> None:
        super().__init__(
            f"{subject} is annotated {annotation}, from which no recorded value could be rebuilt "
            f"({problem}). Use a pydantic model, dataclass, TypedDict, Enum or built-in type"
        )
        self.annotation = annotation


class UndecodableValue(OnwardError):
    """Stored text that this version of Onward did not write or can no longer read."""

    error_type = "undecodable_value"

    def __init__(self, problem: str, text: str) -> None:
        super().__init__(
            f"recorded value cannot be read: {problem}, in {safe_repr(text)}. It was changed by "
            f"hand, or written by a newer Onward or on a machine with other time-zone data"
        )


class InvalidIdentifier(OnwardError):
    """A field that identifies something holds text that cannot serve as a name."""

    error_type = "invalid_identifier"

    def __init__(self, field: str, reason: str, value: object) -> None:
        super().__init__(f"{field} {reason}: {safe_repr(value)}")
        self.field = field
        self.reason = reason
