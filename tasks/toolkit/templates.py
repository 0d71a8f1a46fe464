"""Texts with holes: ``{field}`` of the request, ``{key}``, ``{result.field}``, ``${ENVIRONMENT}``, ``{{secret:NAME}}``.

A field may be a path: ``{customer.id}``, ``{lines.0.sku}``. ``{request.key}`` is a field that happens to be
called ``key``. What comes from a request is escaped, so that no value adds a path segment, a parameter or a
header; what comes from the environment is secret, and appears in no message. References to secrets, in a template
or in a request (``Secret``), are looked up for each request and are in no key, digest or record.
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, to_jsonable_python

from models import redaction
from models.credentials import is_credential_name
from models.errors import OnwardError
from models.ids import new_nonce
from models.messages import one_line
from models.secret import WRITE_AS, Secret, unmarked
from tasks.errors import DefinitionError

_HOLE = re.compile(
    r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}|\{([A-Za-z_][\w-]*(?:\.[\w-]+)*)\}|\{\{secret:([A-Za-z_][\w.-]*)\}\}"
)
_SCHEMES = ("http://", "https://")
_HEADER_TEXT = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")


class CannotFill(ValueError):
    """A hole has no value, or one that must not stand there. Nothing was sent."""


class Missing(LookupError):
    """A path leads nowhere."""


@dataclass(frozen=True)
class Values:
    """What holes are filled with, for one call."""

    key: str
    request: Any
    result: Any = None
    hidden: tuple[str, ...] = ()  #: values of secret fields
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def get(self, path: str) -> Any:
        """The value under a path. Raises ``CannotFill``."""
        head, _, rest = path.partition(".")
        try:
            if path == "key":
                return self.key
            if head in ("request", "result") and rest:
                return at(self.request if head == "request" else self.result, rest)
            return at(self.request, path)
        except Missing as error:
            raise CannotFill(f"there is no {path!r} to fill in: {error}") from None

    def env(self, name: str) -> str:
        """A variable of the environment. Raises ``CannotFill``."""
        value = self.environ.get(name, "")
        if not value:
            raise CannotFill(f"the environment variable {name} is not set in this worker")
        if len(value) >= redaction.SHORTEST and is_credential_name(name):
            redaction.register(name, value)
        return value

    def fill(self, hole: "re.Match[str]") -> str:
        """A hole as text. Raises ``CannotFill``."""
        if hole[1]:
            return self.env(hole[1])
        return revealed(hole[3]) if hole[3] else spelled(self.get(hole[2]), hole[2])

    def secrets(self, used: Iterator[str]) -> list[str]:
        """What must not be repeated in a message: the variables used, and fields declared secret.

        What was revealed is struck out of every message anyway.
        """
        texts = [*self.hidden, *(self.environ.get(name, "") for name in used)]
        return sorted({text for text in texts if text}, key=len, reverse=True)


class Template:
    """One text with holes, checked when it is declared."""

    def __init__(self, text: str | Secret, *, owner: str) -> None:
        text = unmarked(str(text))  # of a reference: its placeholder
        self.text, self._owner = text, owner
        rest = _HOLE.sub("", text)
        if "{" in rest or "}" in rest:
            raise DefinitionError(
                f"{owner}: {text!r} has a brace that is neither {{field}} nor ${{VARIABLE}}"
            )

    @cached_property
    def fields(self) -> frozenset[str]:
        """The paths of its holes, without those of the environment."""
        return frozenset(match[2] for match in _HOLE.finditer(self.text) if match[2])

    @cached_property
    def variables(self) -> frozenset[str]:
        """The environment variables of its holes."""
        return frozenset(match[1] for match in _HOLE.finditer(self.text) if match[1])

    def value(self, values: Values) -> Any:
        """As part of a body: a single hole keeps its type, anything else is text."""
        whole = _HOLE.fullmatch(self.text)
        if whole and whole[2]:
            return values.get(whole[2])
        return self.plain(values)

    def plain(self, values: Values) -> str:
        """As text, nothing escaped."""
        return _HOLE.sub(values.fill, self.text)

    def header(self, values: Values) -> str:
        """As the value of a header, which no line break may end."""
        text = self.plain(values)
        if not _HEADER_TEXT.fullmatch(text):
            raise CannotFill(f"{self.text!r} gives something that cannot stand in a header")
        return text

    def __repr__(self) -> str:
        return repr(self.text)


class UrlTemplate(Template):
    """A URL with holes. Requests fill paths and queries, never the host."""

    def __init__(self, text: str, *, owner: str) -> None:
        super().__init__(text, owner=owner)
        base = re.match(r"\$\{\w+\}(?=[/?]|$)|https?://[^/?{]+(?=[/?]|$)", text)
        if base is None:
            raise DefinitionError(
                f"{owner}: url={text!r} begins with https://host/ or ${{VARIABLE}}/, and requests do not "
                "choose the host"
            )
        self._base, self._rest = base[0], text[base.end() :]

    def url(self, values: Values) -> str:
        """The address, every filled-in value escaped."""
        url = Template(self._base, owner=self._owner).plain(values).rstrip("/") + _HOLE.sub(
            lambda hole: _escaped(hole, values), self._rest
        )
        if not url.startswith(_SCHEMES):
            raise CannotFill(f"{self.text!r} does not give an http:// or https:// address")
        if any(unquote(segment) in (".", "..") for segment in urlsplit(url).path.split("/")):
            raise CannotFill(f"{self.text!r} would leave its path: a value gives '.' or '..'")
        return url


def at(structure: Any, path: str) -> Any:
    """What a path like ``data.items.0`` leads to; an empty one to all of it. Raises ``Missing``."""
    found = structure
    for name in path.split(".") if path else ():
        if isinstance(found, Mapping) and name in found:
            found = found[name]
        elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        else:
            raise Missing(f"{name!r} is missing" + (f" in {path!r}" if name != path else ""))
    return found


def put(structure: dict[str, Any], path: str, value: Any) -> None:
    """Set what a path leads to, making objects on the way."""
    *parents, last = path.split(".")
    for name in parents:
        structure = structure.setdefault(name, {})
        if not isinstance(structure, dict):
            raise CannotFill(f"{path!r} leads through {name!r}, which is no object")
    structure[last] = value


def spelled(value: Any, path: str) -> str:
    """A scalar as text, as JSON spells it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    kind = "null" if value is None else type(value).__name__
    raise CannotFill(f"{path!r} is {kind} and is wanted as text")


def plain(value: Any, *, by_alias: bool = True, reveal: bool = False) -> Any:
    """A request or result as JSON has it, by the names the other side uses.

    ``reveal``: with the values of its references, which are known by a mark that no text from outside has.
    """
    mark = f"secret-{new_nonce()}:" if reveal else ""
    met: list[str] = []

    def write(name: str) -> Any:
        met.append(name)
        return f"{mark}{name}" if reveal else {"$secret": name}

    def fallback(other: Any) -> Any:
        if isinstance(other, Secret):
            return write(other.name)
        raise PydanticSerializationError(f"Unable to serialize unknown type: {type(other)}")

    try:
        found = to_jsonable_python(
            value, by_alias=by_alias, context={WRITE_AS: write}, fallback=fallback
        )
    except PydanticSerializationError as error:
        raise CannotFill(f"it cannot be written as JSON: {one_line(str(error))}") from error
    return _with_values(found, mark) if reveal and met else found


def _with_values(structure: Any, mark: str) -> Any:
    if isinstance(structure, dict):
        return {key: _with_values(item, mark) for key, item in structure.items()}
    if isinstance(structure, list):
        return [_with_values(item, mark) for item in structure]
    if isinstance(structure, str) and structure.startswith(mark):
        return revealed(structure.removeprefix(mark))
    return structure


def revealed(name: str) -> str:
    """The value of a secret. Raises ``CannotFill``."""
    try:
        return Secret(name).reveal()
    except OnwardError as error:
        raise CannotFill(str(error)) from None


def secrets_in(request: Any, paths: frozenset[str]) -> tuple[str, ...]:
    """What stands in the secret fields of a request. Their paths are of names in Python, as for every tool."""
    if not paths:
        return ()
    named = plain(request, by_alias=False)
    found = (text for path in sorted(paths) for text in _scalars(_under(named, path)))
    return tuple(text for text in found if len(text) > 2)


def wire_names(annotation: object, paths: frozenset[str]) -> frozenset[str]:
    """Paths of names in Python as the other side spells their first part."""
    if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        return paths
    spelled_so = {name: _wire_name(name, one) for name, one in annotation.model_fields.items()}
    parts = (path.partition(".") for path in paths)
    return frozenset(spelled_so.get(top, top) + dot + rest for top, dot, rest in parts)


def _wire_name(name: str, one: FieldInfo) -> str:
    return one.serialization_alias or one.alias or name


def fields_of(annotation: object) -> frozenset[str] | None:
    """The fields of a model, as the other side calls them; None when anything may be there."""
    if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        return None
    if annotation.model_config.get("extra") == "allow":
        return None
    named = annotation.model_fields.items()
    return frozenset(_wire_name(name, one) for name, one in named)


def _escaped(hole: "re.Match[str]", values: Values) -> str:
    text = values.fill(hole)
    if not text:
        raise CannotFill(f"{hole[2]!r} is empty and part of an address")
    try:
        return quote(text, safe="")
    except UnicodeEncodeError:
        raise CannotFill(f"{hole[2]!r} contains half of a surrogate pair") from None


def _under(structure: Any, path: str) -> list[Any]:
    """Everything a path leads to, through every member of a list."""
    found = [structure]
    for name in path.split("."):
        members = [
            one for value in found for one in (value if isinstance(value, list) else [value])
        ]
        found = [one[name] for one in members if isinstance(one, dict) and name in one]
    return found


def _scalars(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for one in value.values():
            yield from _scalars(one)
    elif isinstance(value, list):
        for one in value:
            yield from _scalars(one)
    elif value is not None:
        yield str(value)
