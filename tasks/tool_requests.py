"""What is asked of a tool: as it is sent, as it is recorded, and what makes it the same request again."""

from collections.abc import Iterator, Set
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from billiard.exceptions import SoftTimeLimitExceeded
from pydantic import BaseModel
from typing_extensions import is_typeddict

from models.digests import digest
from models.errors import OnwardError, ValueMismatch
from models.schemas import annotation_name
from models.secret import MARK, unmarked
from models.settings import settings
from models.values import Typed, decode, encode
from tasks.errors import DefinitionError

_STRUCK = "***"
_SHORTEST_SECRET = 4  #: characters; shorter ones would strike out half of every message


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    value: Any  #: what ``execute`` gets: what the journal would give back, secrets included
    recorded: str  #: without secret fields; look-ups are made from it
    digest: str  #: without volatile and secret fields
    secrets: frozenset[str] = frozenset()  #: the texts in its secret fields

    def strike(self, text: str) -> str:
        """``text`` without the secrets of this request: services repeat them in their errors."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            text = text.replace(secret, _STRUCK)
        return text


def ask(
    request_type: Typed, request: object, *, volatile: Set[str] = frozenset(), secret: Set[str] = frozenset()
) -> Asked:  # fmt: skip
    """Read a request as the journal would. Raises, before anything is sent, for what it cannot hold."""
    try:
        text, value = request_type.round_trip(request, limit=settings().output_limit)
        if MARK in text:  # under one key a service is sent the same by every process
            text = unmarked(text)
            value = request_type.load(text)
    except ValueMismatch as error:
        if not secret:
            raise
        cut = isinstance(error.__cause__, SoftTimeLimitExceeded)  # says nothing about the request
        raise _untold(error, request_type) from (error.__cause__ if cut else None)
    # A value that was revealed is neither recorded nor part of what is asked, since it rotates.
    text = request_type.open_part(text)
    if not secret:
        return Asked(value, text, digest(decode(text), without=volatile))
    structure = decode(text)
    open_part = _without(structure, secret, "")
    bound = digest(open_part, without=volatile)
    recorded = encode(open_part, subject=request_type.subject)
    try:
        request_type.load(recorded)
    except OnwardError as error:
        raise DefinitionError(
            f"{request_type.subject} cannot be read without its secret fields ({', '.join(sorted(secret))}), which "
            f"are not recorded, so no look-up could be made from it: give them defaults. {error}"
        ) from error
    return Asked(
        value, recorded, bound, frozenset(_texts_in(structure)) - set(_texts_in(open_part))
    )


def check_fields(annotation: object, names: Set[str], *, owner: str) -> None:
    """Refuse a volatile or secret field that requests do not have: misspelled, a secret would be recorded."""
    known = _fields_of(annotation)
    unknown = sorted(
        name for name in names if known is not None and name.partition(".")[0] not in known
    )
    if unknown:
        raise DefinitionError(
            f"{owner}: volatile or secret names {', '.join(unknown)}, which its requests do not have; they have "
            f"{', '.join(sorted(known or ()))} (the names in Python, not aliases)"
        )


def _fields_of(annotation: object) -> frozenset[str] | None:
    """The names of a model, dataclass or TypedDict; None when anything may be there."""
    if is_dataclass(annotation):
        return frozenset(one.name for one in fields(annotation))
    if is_typeddict(annotation):
        return frozenset(annotation.__annotations__)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        extra = annotation.model_config.get("extra") == "allow"
        return None if extra else frozenset(annotation.model_fields)
    return None


def _untold(error: ValueMismatch, request_type: Typed) -> ValueMismatch:
    """The mismatch without what does not fit, which may be a secret, or hold one."""
    problem = (
        "what is there does not fit, and is not shown, since these requests have secret fields"
    )
    return ValueMismatch(
        request_type.subject,
        annotation_name(request_type.annotation),
        path=error.path,
        problem=problem,
    )


def _texts_in(structure: Any) -> Iterator[str]:
    """Every text of a structure that is long enough to be a secret by itself."""
    if type(structure) is str and len(structure) >= _SHORTEST_SECRET:
        yield structure
    elif type(structure) is dict:
        for value in structure.values():
            yield from _texts_in(value)
    elif type(structure) in (list, tuple):
        for value in structure:
            yield from _texts_in(value)


def _without(structure: Any, names: Set[str], prefix: str) -> Any:
    """A structure less the fields of these dotted paths, which go through every member of a list."""
    if type(structure) is dict:
        return {
            field: _without(value, names, f"{prefix}{field}.")
            for field, value in structure.items()
            if f"{prefix}{field}" not in names
        }
    if type(structure) is list:
        return [_without(value, names, prefix) for value in structure]
    if type(structure) is tuple:
        return tuple(_without(value, names, prefix) for value in structure)
    return structure
