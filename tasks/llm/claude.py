"""Anthropic's messages: requests as they are sent, answers as they are read. Pure."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tasks.llm.forms import in_words
from tasks.llm.values import (
    UNREADABLE,
    Message,
    Question,
    Reply,
    Taken,
    ToolCall,
    ToolResult,
)
from tasks.recorder.reading import dicts, fields

PATH = "messages"
MAX_TOKENS = 4096  #: the interface wants a limit; ``max_tokens=`` of a call says another


def payload(question: Question) -> dict[str, Any]:
    """The arguments of ``client.messages.create``."""
    system, form = question.system, question.form
    if form is not None and question.response_format != "json_schema":
        system = "\n\n".join(filter(None, (system, in_words(form))))
    asked: dict[str, Any] = {
        "model": question.model,
        "messages": list(question.messages),
        "max_tokens": MAX_TOKENS,
    }
    if system:
        asked["system"] = system
    if form is not None and question.response_format == "json_schema":
        asked["output_config"] = {"format": {"type": "json_schema", "schema": dict(form.schema)}}
    if question.tools:
        asked["tools"] = [
            {"name": one.name, "description": one.description, "input_schema": dict(one.schema)}
            for one in question.tools
        ]
    if question.on_chunk is not None:
        asked["stream"] = True
    return asked | dict(question.sampling)


def reply(answer: Mapping[str, Any], taken: Taken) -> Reply:
    """A finished message. The recorder has refused those that are cut, empty or refusals."""
    blocks = [_sendable(block) for block in dicts(answer.get("content"))]
    said = [block.get("text") for block in blocks if block.get("type") == "text"]
    return Reply(
        text="".join(one for one in said if isinstance(one, str)),
        calls=_calls(blocks),
        message={"role": "assistant", "content": blocks},
        model=str(answer.get("model") or ""),
        response_id=str(answer.get("id") or ""),
        taken=taken,
    )


def gathered(events: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The message that a stream's events make."""
    whole: dict[str, Any] = {}
    blocks: dict[int, dict[str, Any]] = {}
    written: dict[int, str] = {}
    for event in events:
        match event.get("type"):
            case "message_start":
                whole = dict(fields(event.get("message")))
            case "content_block_start":
                blocks[_index(event)] = dict(fields(event.get("content_block")))
            case "content_block_delta":
                block = blocks.setdefault(_index(event), {})
                _add(block, fields(event.get("delta")), written, _index(event))
            case "message_delta":
                whole |= {"stop_reason": fields(event.get("delta")).get("stop_reason")}
    for index, text in written.items():
        blocks[index]["input"] = _object(text)
    return whole | {"content": [blocks[index] for index in sorted(blocks)]}


def _index(event: Mapping[str, Any]) -> int:
    index = event.get("index")
    return index if isinstance(index, int) else 0


def delta(event: Mapping[str, Any]) -> str:
    """The text in one event of a stream."""
    piece = event.get("delta") if event.get("type") == "content_block_delta" else None
    text = fields(piece).get("text")
    return text if isinstance(text, str) else ""


def results(found: Sequence[ToolResult]) -> list[Message]:
    """What came of tool calls: one message with a block for each call, as roles must alternate."""
    blocks = [
        {
            "type": "tool_result",
            "tool_use_id": one.call.id,
            "content": one.text or "(no content)",
            **({"is_error": True} if one.failed else {}),
        }
        for one in found
    ]
    return [{"role": "user", "content": blocks}]


def calls_in(message: Message) -> tuple[ToolCall, ...]:
    """What an assistant's message asks for."""
    content = message.get("content")
    if message.get("role") != "assistant" or not isinstance(content, list):
        return ()
    return _calls(dicts(content))


def answered_in(message: Message) -> tuple[str, ...]:
    """The ids of the calls whose results a message holds."""
    content = message.get("content")
    if message.get("role") != "user" or not isinstance(content, list):
        return ()
    results = [one for one in dicts(content) if one.get("type") == "tool_result"]
    return tuple(str(one.get("tool_use_id")) for one in results)


def _calls(blocks: Iterable[Mapping[str, Any]]) -> tuple[ToolCall, ...]:
    return tuple(
        ToolCall(
            str(block.get("id") or ""), str(block.get("name") or ""), _text(block.get("input"))
        )
        for block in blocks
        if block.get("type") == "tool_use"
    )


def _text(arguments: Any) -> str:
    return json.dumps(arguments if arguments is not None else {}, ensure_ascii=False)


def _add(
    block: dict[str, Any], delta: Mapping[str, Any], written: dict[int, str], index: int
) -> None:
    match delta.get("type"):
        case "text_delta":
            block["text"] = block.get("text", "") + str(delta.get("text") or "")
        case "input_json_delta":
            written[index] = written.get(index, "") + str(delta.get("partial_json") or "")
        case "thinking_delta":
            block["thinking"] = block.get("thinking", "") + str(delta.get("thinking") or "")
        case "signature_delta":
            block["signature"] = delta.get("signature")


def _object(text: str) -> Any:
    try:
        return json.loads(text or "{}")
    except (ValueError, RecursionError):
        return text


def _sendable(block: Mapping[str, Any]) -> dict[str, Any]:
    """A block as it may be sent back: what stands in answers alone is empty, and an input is an object."""
    kept = {name: value for name, value in block.items() if value is not None}
    if kept.get("type") == "tool_use" and not isinstance(kept.setdefault("input", {}), dict):
        kept["input"] = {UNREADABLE: kept["input"]}
    return kept
