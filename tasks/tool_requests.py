"""What is asked of a tool: as it is sent, as it is recorded, and what makes it the same request again."""

from collections.abc import Set
from dataclasses import dataclass
from typing import Any

from models.digests import digest
from models.errors import OnwardError
from models.settings import settings
from models.values import Typed, decode, encode
from tasks.errors import DefinitionError


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    value: Any  #: what ``execute`` gets: what the journal would give back, secrets included
    recorded: str  #: without secret fields; look-ups are made from it
    digest: str  #: without volatile and secret fields


def ask(
    request_type: Typed, request: object, *, volatile: Set[str] = frozenset(), secret: Set[str] = frozenset()
) -> Asked:  # fmt: skip
    """Read a request as the journal would. Raises, before anything is sent, for what it cannot hold."""
    text, value = request_type.round_trip(request, limit=settings().output_limit)
    structure = decode(text)
    bound = digest(structure, without=volatile | secret)
    if not secret:
        return Asked(value, text, bound)
    recorded = encode(_without(structure, secret, ""), subject=request_type.subject)
    try:
        request_type.load(recorded)
    except OnwardError as error:
        raise DefinitionError(
            f"{request_type.subject} cannot be read without its secret fields ({', '.join(sorted(secret))}), which "
            f"are not recorded, so no look-up could be made from it: give them defaults. {error}"
        ) from error
    return Asked(value, recorded, bound)


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
