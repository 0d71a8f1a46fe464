"""What is sent: method, address, headers and body, filled in from a request."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from models.secret import Secret
from tasks.errors import DefinitionError
from tasks.toolkit.exchange import Call, Meaning
from tasks.toolkit.lookup import LookUp
from tasks.toolkit.templates import CannotFill, Template, UrlTemplate, Values, at, put

#: Everything of the request, nothing, some of its fields, or an object made of templates and constants.
Body: TypeAlias = bool | Sequence[str] | Mapping[str, Any]

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_BODILESS = ("GET", "HEAD", "DELETE")


@dataclass(frozen=True)
class Undo:
    """How to undo it: ``Undo("https://host/orders/{result.id}")``.

    ``gone`` are the answers that mean that it was undone before. A service that may not see for a while what
    it has just made says 404 of that too: then leave 404 out, ``gone={410}``.
    """

    url: str
    method: str = "DELETE"
    body: Body | None = None
    gone: Collection[int] = (404, 410)
    answers: Mapping[int, Meaning] = field(default_factory=dict)
    check: LookUp | None = None  #: whether it was undone; None: by the tool's own look-up


class Outgoing:
    """One kind of request, checked when it is declared."""

    def __init__(
        self, method: str, url: str, *, owner: str, headers: Mapping[str, Template], body: Body | None,
        key_header: str | None, key_field: str | None,
    ) -> None:  # fmt: skip
        if method not in _METHODS:
            raise DefinitionError(f"{owner}: method={method!r} is not one of {', '.join(_METHODS)}")
        self.method, self._headers = method, headers
        self._url = UrlTemplate(url, owner=owner)
        self._key_header, self._key_field = key_header, key_field
        self._whole = body is True or (body is None and method not in _BODILESS)
        self._parts: dict[str, Any] = {}
        if isinstance(body, str):
            raise DefinitionError(f"{owner}: body takes a list of field names")
        if isinstance(body, Mapping):
            self._parts = {
                path: Template(part, owner=owner) if isinstance(part, str | Secret) else part
                for path, part in body.items()
            }
        elif isinstance(body, Sequence):
            self._parts = {name: Template("{request." + name + "}", owner=owner) for name in body}

    @property
    def fields(self) -> frozenset[str]:
        """Everything that it needs of the request, or of the result."""
        return self._url.fields.union(*(template.fields for template in self._templates()))

    @property
    def what(self) -> str:
        """Its name in messages: nothing that was filled in."""
        return f"{self.method} {self._url.text}"

    @property
    def carries_key(self) -> bool:
        """Whether the other side gets the key at all."""
        return bool(self._key_header or self._key_field or "key" in self.fields)

    def fill(self, values: Values) -> Call:
        """The request of one call. Raises ``CannotFill``; nothing was sent then."""
        content = self._content(values)
        headers = {"Accept": "application/json"}
        if content is not None:
            headers["Content-Type"] = "application/json"
        if self._key_header:
            headers[self._key_header] = values.key
        own = {name: template.header(values) for name, template in self._headers.items()}
        given = {name.lower() for name in own}
        headers = {name: text for name, text in headers.items() if name.lower() not in given} | own
        variables = set(self._url.variables).union(*(t.variables for t in self._templates()))
        hidden = tuple(values.secrets(iter(sorted(variables))))
        return Call(self.method, self._url.url(values), self.what, headers, content, hidden)

    def _content(self, values: Values) -> bytes | None:
        if not (self._whole or self._parts or self._key_field):
            return None
        body = at(values.request, "") if self._whole else {}
        if self._parts or self._key_field:
            if not isinstance(body, dict):
                raise CannotFill(f"{self.what} adds to the request, which is no object")
            body = json.loads(json.dumps(body))  # a copy: the request is not ours to change
        for path, part in self._parts.items():
            put(body, path, part.value(values) if isinstance(part, Template) else part)
        if self._key_field:
            put(body, self._key_field, values.key)
        try:
            return json.dumps(body, allow_nan=False).encode()
        except ValueError as error:
            raise CannotFill(f"the body of {self.what} is not JSON: {error}") from None

    def _templates(self) -> list[Template]:
        parts = [part for part in self._parts.values() if isinstance(part, Template)]
        return [self._url, *self._headers.values(), *parts]
