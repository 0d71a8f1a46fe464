"""Which requests a provider would reject: every tool call has exactly one result, and roles take turns."""

import json
from collections.abc import Iterable
from typing import Any

from ops.testing.outside.models.asked import Asked

_CHAT_ROLES = {"system", "developer", "user", "assistant", "tool"}


class Rejected(Exception):
    """A request that is against the rules, in the words of the provider."""


def check(asked: Asked, *, alternation: bool) -> None:
    """Raises ``Rejected``."""
    if not asked.model:
        raise Rejected("you must provide a model parameter")
    match asked.kind:
        case "chat":
            _check_chat(_messages(asked), alternation=alternation)
        case "messages":
            if not isinstance(asked.body.get("max_tokens"), int):
                raise Rejected("max_tokens: Field required")
            _check_anthropic(_messages(asked), alternation=alternation)
        case "responses" if not asked.body.get("previous_response_id"):
            _check_items(asked.turns)
    if "input" not in asked.body and asked.kind in ("responses", "embeddings"):
        raise Rejected("Missing required parameter: 'input'.")


def _messages(asked: Asked) -> list[dict[str, Any]]:
    messages = asked.body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Rejected("messages: at least one message is required")
    if not all(isinstance(message, dict) for message in messages):
        raise Rejected("messages: each must be an object")
    return messages


def _check_chat(messages: list[dict[str, Any]], *, alternation: bool) -> None:
    open_calls: set[str] = set()
    before = ""
    for message in messages:
        role = str(message.get("role"))
        if role not in _CHAT_ROLES:
            raise Rejected(f"Invalid value: '{role}' is no role")
        if role == "tool":
            _close(open_calls, message.get("tool_call_id"))
        elif open_calls:
            raise Rejected(
                "An assistant message with 'tool_calls' must be followed by tool messages responding to"
                f" each 'tool_call_id'. Without a response: {', '.join(sorted(open_calls))}"
            )
        if alternation and role == before and role in ("user", "assistant"):
            raise Rejected(f"roles must alternate: two turns of '{role}' in a row")
        if role == "assistant":
            _check_arguments(message.get("tool_calls") or ())
            open_calls = _distinct(call.get("id") for call in message.get("tool_calls") or ())
        before = role
    if open_calls:
        raise Rejected(f"tool calls without a response: {', '.join(sorted(open_calls))}")


def _check_arguments(calls: Iterable[dict[str, Any]]) -> None:
    for call in calls:
        try:
            is_object = isinstance(json.loads(call["function"]["arguments"]), dict)
        except (ValueError, TypeError, KeyError):
            is_object = False
        if not is_object:
            raise Rejected(f"the arguments of tool call '{call.get('id')}' are no JSON object")


def _check_anthropic(messages: list[dict[str, Any]], *, alternation: bool) -> None:
    open_calls: set[str] = set()
    before = ""
    for message in messages:
        role = str(message.get("role"))
        if role not in ("user", "assistant"):
            raise Rejected(f"messages: unexpected role '{role}'")
        if not before and role != "user":
            raise Rejected("messages: first message must use the 'user' role")
        if alternation and role == before:
            raise Rejected(
                f"messages: roles must alternate, but there are two of '{role}' in a row"
            )
        results = [block.get("tool_use_id") for block in _blocks(message, "tool_result")]
        for result in results:
            _close(open_calls, result)
        if open_calls:
            raise Rejected(
                "`tool_use` ids were found without `tool_result` blocks immediately after:"
                f" {', '.join(sorted(open_calls))}"
            )
        open_calls = _distinct(block.get("id") for block in _blocks(message, "tool_use"))
        before = role
    if open_calls:
        raise Rejected(f"`tool_use` ids without `tool_result`: {', '.join(sorted(open_calls))}")


def _check_items(items: list[Any]) -> None:
    """A function call may stand beside others before the results of all of them come."""
    open_calls: set[str] = set()
    for item in items:
        match item:
            case {"type": "function_call", "call_id": call}:
                if call in open_calls:
                    raise Rejected(f"Duplicate function call {call}.")
                open_calls.add(call)
            case {"type": "function_call_output", "call_id": call}:
                _close(open_calls, call)
    if open_calls:
        raise Rejected(f"No tool output found for function call {', '.join(sorted(open_calls))}.")


def _blocks(message: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    return [block for block in blocks if isinstance(block, dict) and block.get("type") == kind]


def _distinct(calls: Iterable[Any]) -> set[str]:
    found = [str(call) for call in calls]
    if len(found) > len(set(found)):
        raise Rejected(f"tool calls must have different ids: {', '.join(found)}")
    return set(found)


def _close(open_calls: set[str], call: Any) -> None:
    if str(call) not in open_calls:
        raise Rejected(f"a tool result for '{call}', which no call before it waits for")
    open_calls.remove(str(call))
