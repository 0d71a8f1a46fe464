"""OpenAI's chat completions: requests as they are sent, answers as they are read. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tasks.llm.forms import in_words
from tasks.llm.values import Message, Offer, Question, Reply, Taken, ToolCall, ToolResult

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
    choices = answer.get("choices") or [{}]
    said = choices[0].get("message") or {}
    calls = tuple(
        ToolCall(
            str(call.get("id") or ""),
            str(_of(call, "function", "name") or ""),
            str(_of(call, "function", "arguments") or ""),
        )
        for call in said.get("tool_calls") or ()
    )
    text = said.get("content") or ""
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
        for choice in (chunk.get("choices") or ())[:1]:
            delta = choice.get("delta") or {}
            text.append(delta.get("content") or "")
            for piece in delta.get("tool_calls") or ():
                _add(calls, piece)
            finish = choice.get("finish_reason") or finish
    said = {"content": "".join(text), "tool_calls": [calls[index] for index in sorted(calls)]}
    return whole | {"choices": [{"message": said, "finish_reason": finish}]}


def delta(event: Mapping[str, Any]) -> str:
    """The text in one event of a stream."""
    choices = event.get("choices") or ()
    return str(_of(choices[0], "delta", "content") or "") if choices else ""


def results(found: Sequence[ToolResult]) -> list[Message]:
    """What came of tool calls, as messages: one for each call."""
    return [
        {"role": "tool", "tool_call_id": one.call.id, "content": one.text or "(no content)"}
        for one in found
    ]


def calls_in(message: Message) -> tuple[ToolCall, ...]:
    """What an assistant's message asks for."""
    return tuple(
        ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in message.get("tool_calls") or ()
    )


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
                "function": {"name": call.name, "arguments": call.arguments},
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
    whole = calls.setdefault(
        int(piece.get("index") or 0), {"id": "", "function": {"name": "", "arguments": ""}}
    )
    whole["id"] = piece.get("id") or whole["id"]
    function = piece.get("function") or {}
    whole["function"]["name"] = function.get("name") or whole["function"]["name"]
    whole["function"]["arguments"] += function.get("arguments") or ""


def _of(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
