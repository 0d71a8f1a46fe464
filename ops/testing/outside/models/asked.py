"""What a request says, in any of the dialects: its text, its model, the schema it wants."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

KINDS = {
    "chat/completions": "chat",
    "responses": "responses",
    "embeddings": "embeddings",
    "messages": "messages",
}

_BYTES_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Asked:
    """One request for an answer."""

    kind: str
    body: dict[str, Any]

    @property
    def model(self) -> str:
        return str(self.body.get("model", ""))

    @property
    def stream(self) -> bool:
        return bool(self.body.get("stream"))

    @property
    def background(self) -> bool:
        return self.kind == "responses" and bool(self.body.get("background"))

    @property
    def digest(self) -> str:
        """Of the body with its keys in order: the same request has the same one."""
        canonical = json.dumps(self.body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(canonical.encode()).hexdigest()

    @property
    def turns(self) -> list[Any]:
        """What was said, oldest first."""
        said = self.body.get("messages", self.body.get("input"))
        return said if isinstance(said, list) else [said]

    @property
    def text(self) -> str:
        """Everything that was said, without what the tools look like."""
        before = [self.body.get("system"), self.body.get("instructions")]
        return "\n".join(texts([*before, *self.turns]))

    @property
    def last(self) -> str:
        return "\n".join(texts(self.turns[-1:]))

    @property
    def schema(self) -> dict[str, Any] | None:
        """What the content is to look like."""
        found = (
            _at(self.body, "response_format", "json_schema", "schema")
            or _at(self.body, "text", "format", "schema")
            or _at(self.body, "output_config", "format", "schema")
            or _at(self.body, "output_format", "schema")
        )
        return found if isinstance(found, dict) else None

    @property
    def forced_tool(self) -> tuple[str, dict[str, Any]] | None:
        """(name, schema) of the tool that must be called."""
        choice = self.body.get("tool_choice")
        if choice in ("required", {"type": "any"}):
            return next(self._tools(), None)
        name = _at(choice, "function", "name") or _at(choice, "name")
        return next((tool for tool in self._tools() if tool[0] == name), None)

    def _tools(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for tool in self.body.get("tools") or ():
            told = tool.get("function", tool)
            yield told.get("name", ""), told.get("parameters") or told.get("input_schema") or {}


def texts(said: Any) -> Iterator[str]:
    """Every text in it, at any depth, in order."""
    match said:
        case str():
            yield said
        case dict():
            for key, value in said.items():
                if key not in ("role", "type", "id"):
                    yield from texts(value)
        case list():
            for one in said:
                yield from texts(one)


def count_tokens(text: str) -> int:
    return max(1, len(text.encode()) // _BYTES_PER_TOKEN)


def _at(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value
