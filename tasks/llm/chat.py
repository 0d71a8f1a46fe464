"""OpenAI's chat completions: requests as they are sent, answers as they are read. Pure."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tasks.llm.forms import in_words
from tasks.llm.values import (
    UNREADABLE,
    Message,
    Offer,
    Question,
    Reply,
    Taken,
    ToolCall,
    ToolResult,
)
from tasks.recorder.reading import dicts, fields

PATH = "chat/completions"


def payload(question: Question) -> dict[str, Any]:
    """The arguments of ``client.chat.completions.create``."""
    messages = list(question.messages)
    system = question.system
    if question.form is not None and question.response_format != "json_schema":
        system = "\n\n".join(filter(None, (system, in_words(question.form))))
    if system:
        messages.insert(0, {"role": "system", "content": system})
    asked: dict[str, Any] = {"model": question.model, "messages": messages}
    if question.form is not None and (shape := _shape(question)):
        asked["response_format"] = shape
    if question.tools:
        asked["tools"] = [_tool(offer) for offer in question.tools]
    if question.on_chunk is not None:
        asked |= {"stream": True, "stream_options": {"include_usage": True}}
    return asked | dict(question.sampling)


def reply(answer: Mapping[str, Any], taken: Taken) -> Reply:
    """A finished completion. The recorder has refused those that are cut, empty or refusals."""
    choices = dicts(answer.get("choices")) or [{}]
    said = fields(choices[0].get("message"))
    calls = tuple(map(_call, dicts(said.get("tool_calls"))))
    text = _text(said.get("content"))
    return Reply(
        text=text,
        calls=calls,
        message=_assistant(text, calls),
        model=str(answer.get("model") or ""),
        response_id=str(answer.get("id") or ""),
        taken=taken,
    )


def gathered(chunks: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The completion that a stream's chunks make."""
    whole: dict[str, Any] = {"id": "", "model": ""}
    text: list[str] = []
    calls: dict[int, dict[str, Any]] = {}
    finish = None
    for chunk in chunks:
        whole["id"] = chunk.get("id") or whole["id"]
        whole["model"] = chunk.get("model") or whole["model"]
        for choice in dicts(chunk.get("choices"))[:1]:
            delta = fields(choice.get("delta"))
            text.append(_text(delta.get("content")))
            for piece in dicts(delta.get("tool_calls")):
                _add(calls, piece)
            finish = choice.get("finish_reason") or finish
    said = {"content": "".join(text), "tool_calls": [calls[index] for index in sorted(calls)]}
    return whole | {"choices": [{"message": said, "finish_reason": finish}]}


def delta(event: Mapping[str, Any]) -> str:
    """The text in one event of a stream."""
    choices = dicts(event.get("choices"))
    return _text(fields(choices[0].get("delta")).get("content")) if choices else ""


def results(found: Sequence[ToolResult]) -> list[Message]:
    """What came of tool calls, as messages: one for each call."""
    return [
        {"role": "tool", "tool_call_id": one.call.id, "content": one.text or "(no content)"}
        for one in found
    ]


def calls_in(message: Message) -> tuple[ToolCall, ...]:
    """What an assistant's message asks for."""
    return tuple(map(_call, dicts(message.get("tool_calls"))))


def answered_in(message: Message) -> tuple[str, ...]:
    """The ids of the calls whose results a message holds."""
    return (str(message.get("tool_call_id")),) if message.get("role") == "tool" else ()


def _assistant(text: str, calls: Sequence[ToolCall]) -> Message:
    message: Message = {"role": "assistant", "content": text or None}
    if calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": _sendable(call.arguments)},
            }
            for call in calls
        ]
    return message


def _shape(question: Question) -> dict[str, Any] | None:
    form = question.form
    if form is None or question.response_format == "text":
        return None
    if question.response_format == "json_object":
        return {"type": "json_object"}
    told = {"name": form.name, "schema": dict(form.schema), "strict": form.strict}
    return {"type": "json_schema", "json_schema": told}


def _tool(offer: Offer) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": offer.name,
            "description": offer.description,
            "parameters": dict(offer.schema),
        },
    }


def _add(calls: dict[int, dict[str, Any]], piece: Mapping[str, Any]) -> None:
    """One piece of one of the tool calls that a stream interleaves."""
    index = piece.get("index")
    number = index if isinstance(index, int) else 0
    whole = calls.setdefault(number, {"id": "", "function": {"name": "", "arguments": ""}})
    whole["id"] = piece.get("id") or whole["id"]
    function = fields(piece.get("function"))
    whole["function"]["name"] = function.get("name") or whole["function"]["name"]
    whole["function"]["arguments"] += _arguments(function.get("arguments"))


def _call(given: Mapping[str, Any]) -> ToolCall:
    function = fields(given.get("function"))
    return ToolCall(
        str(given.get("id") or ""),
        str(function.get("name") or ""),
        _arguments(function.get("arguments")),
    )


def _arguments(given: Any) -> str:
    """Some services send the object itself."""
    if isinstance(given, Mapping):
        return json.dumps(given, ensure_ascii=False)
    return given if isinstance(given, str) else ""


def _sendable(arguments: str) -> str:
    """Arguments as they may be said back: a JSON object, whatever the model wrote."""
    try:
        is_object = isinstance(json.loads(arguments or "{}"), dict)
    except (ValueError, RecursionError):
        is_object = False
    if is_object:
        return arguments or "{}"
    return json.dumps({UNREADABLE: arguments}, ensure_ascii=False)


def _text(content: Any) -> str:
    """A content's text: some services send it in parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in dicts(content))
    return content if isinstance(content, str) else ""
