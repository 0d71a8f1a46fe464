"""The shape of an answer: told to the provider, told to the model in words, held against what came."""

import inspect
import json
import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from models.messages import one_line, path_of, safe_repr
from tasks.errors import DefinitionError
from tasks.llm.values import Form

A = TypeVar("A", bound=BaseModel)
#: Raises ``ValueError`` (or fails an ``assert``), or returns False, the reason or a list of reasons, to reject an
#: answer.
Check = Callable[[A], object]

_PROBLEMS_SHOWN = 5
_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_FENCED = re.compile(r"\A```[A-Za-z]*\s*\n(.*?)\n?```\Z", re.DOTALL)


def form_of(output: Any) -> Form:
    """The form of a model's values; enforced by the provider where its schema allows that."""
    if not (isinstance(output, type) and issubclass(output, BaseModel)):
        raise DefinitionError(
            f"ask takes a pydantic model for its answer, and {safe_repr(output)} is none: put it into a class of "
            f"BaseModel, as a field, or use text(...)"
        )
    schema = output.model_json_schema()
    strict = _closed(deepcopy(schema))
    name = _NAME.sub("_", output.__name__).strip("_")[:64] or "answer"
    return Form(name, schema if strict is None else strict, strict is not None)


def in_words(form: Form) -> str:
    """The form for models whose endpoint does not enforce it."""
    schema = json.dumps(form.schema, ensure_ascii=False, sort_keys=True)
    return (
        "Answer with one JSON object that fits this JSON schema, and nothing else: no Markdown, no comment.\n"
        + schema
    )


def parse(output: type[A], text: str) -> A:
    """The typed answer in a text. Raises ``ValueError`` that says, for a model, what does not fit and where."""
    try:
        return output.model_validate_json(_unwrapped(text))
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        told = [f"{path_of(one['loc'])}: {one_line(one['msg'])}" for one in found[:_PROBLEMS_SHOWN]]
        if len(found) > len(told):
            told.append(f"and {len(found) - len(told)} more")
        raise ValueError(f"it does not fit {output.__name__}: {'; '.join(told)}") from error


def verdict_of(check: Check[Any] | None, value: Any) -> str | None:
    """Why the caller's check rejects an answer; None: it passes."""
    if check is None:
        return None
    try:
        found = check(value)
    except (ValueError, AssertionError) as error:
        return str(error) or "the check rejects it"
    if inspect.isawaitable(found):  # it would look like a yes
        getattr(found, "close", lambda: None)()
        raise DefinitionError(
            "check is awaited by nobody: give a plain function that raises ValueError, or returns False or a "
            "reason, to reject an answer"
        )
    if found is False:
        return "the check rejects it"
    if isinstance(found, list | tuple | set | frozenset):
        return "; ".join(map(str, found)) or None
    return found if isinstance(found, str) and found else None


def _unwrapped(text: str) -> str:
    """The JSON inside a code fence or between polite sentences; a bare text as it is."""
    text = text.strip()
    if fenced := _FENCED.match(text):
        return fenced[1].strip()
    if text.startswith(("{", "[")):
        return text
    start, end = text.find("{"), text.rfind("}")
    return text[start : end + 1] if 0 <= start < end else text


def _closed(schema: dict[str, Any]) -> dict[str, Any] | None:
    """The schema with every property required and no other allowed; None: it has free-form parts."""
    return schema if _close(schema) else None


def _close(part: Any) -> bool:
    if isinstance(part, list):
        return all([_close(item) for item in part])
    if not isinstance(part, dict):
        return True
    part.pop("default", None)
    if part.get("type") == "object" or "properties" in part:
        if part.get("additionalProperties") or "properties" not in part:
            return False
        part["additionalProperties"] = False
        part["required"] = list(part["properties"])
    named = ("properties", "$defs")
    inner = [one for key in named for one in _values(part.get(key))]
    inner += [
        value for key, value in part.items() if key not in (*named, "enum", "const", "required")
    ]
    return all([_close(one) for one in inner])


def _values(named: object) -> list[Any]:
    return list(named.values()) if isinstance(named, Mapping) else []
