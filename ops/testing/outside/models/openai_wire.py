"""Answers as OpenAI's interfaces send them: chat completions, responses, embeddings."""

import base64
import hashlib
import struct
from collections.abc import Iterator
from typing import Any

from ops.testing.outside.models.produced import ToolCall, Turn

Event = dict[str, Any] | str  #: an event of a stream; a text is sent as it is

_PIECE = 12  #: characters of a text that come together
_DIMENSIONS = 8


def pieces(text: str) -> list[str]:
    """A text as a stream brings it."""
    return [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]


def chat(turn: Turn) -> dict[str, Any]:
    """A chat completion."""
    message: dict[str, Any] = {"role": "assistant", "content": turn.text, "refusal": turn.refusal}
    if turn.tool_calls:
        message["content"] = turn.text or None
        message["tool_calls"] = [_chat_call(call) for call in turn.tool_calls]
    choice = {"index": 0, "message": message, "finish_reason": turn.finish, "logprobs": None}
    return {**_chat_head(turn, "chat.completion"), "choices": [choice], "usage": _chat_usage(turn)}


def chat_events(turn: Turn, *, usage: bool) -> tuple[list[Event], int]:
    """The events of a streamed completion, and how many at the end say that it is over."""
    head = _chat_head(turn, "chat.completion.chunk")

    def chunk(delta: dict[str, Any], finish: str | None = None) -> Event:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return {**head, "choices": [choice]}

    events = [chunk({"role": "assistant", "content": ""})]
    events += [chunk({"content": piece}) for piece in pieces(turn.text)]
    events += [chunk({"refusal": piece}) for piece in pieces(turn.refusal or "")]
    for index, call in enumerate(turn.tool_calls):
        events.append(chunk({"tool_calls": [{"index": index, **_chat_call(call, arguments="")}]}))
        events += [
            chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
            for piece in pieces(call.arguments)
        ]
    end: list[Event] = [chunk({}, turn.finish)] if turn.finish else []
    if usage:
        end.append({**head, "choices": [], "usage": _chat_usage(turn)})
    end.append("[DONE]")
    return events + end, len(end)


def response(turn: Turn) -> dict[str, Any]:
    """A finished object of the responses interface."""
    cut_short = turn.finish in ("length", "content_filter")
    reason = "max_output_tokens" if turn.finish == "length" else "content_filter"
    return {
        "id": f"resp_{turn.id}", "object": "response", "created_at": turn.created,
        "status": "incomplete" if cut_short else "completed", "model": turn.model,
        "error": None, "incomplete_details": {"reason": reason} if cut_short else None,
        "instructions": None, "metadata": {}, "output": _items(turn), "parallel_tool_calls": True,
        "previous_response_id": None, "temperature": 1.0, "tool_choice": "auto", "tools": [],
        "top_p": 1.0, "usage": _response_usage(turn),
    }  # fmt: skip


def unfinished(done: dict[str, Any], status: str) -> dict[str, Any]:
    """The same response while it is queued or in progress."""
    return {**done, "status": status, "output": [], "usage": None, "incomplete_details": None}


def response_events(turn: Turn) -> tuple[list[Event], int]:
    """The events of a streamed response, and how many at the end say that it is over."""
    done = response(turn)
    events = list(_numbered(_response_events(done)))
    return events, 1


def _response_events(done: dict[str, Any]) -> Iterator[dict[str, Any]]:
    begun = unfinished(done, "in_progress")
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(done["output"]):
        if item["type"] == "message":
            yield from _message_events(index, item)
        else:
            yield from _call_events(index, item)
    yield {"type": f"response.{done['status']}", "response": done}


def _message_events(index: int, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    part = item["content"][0]
    kind, word = (
        ("output_text", "text") if part["type"] == "output_text" else ("refusal", "refusal")
    )
    place = {"item_id": item["id"], "output_index": index, "content_index": 0}
    empty = {**item, "status": "in_progress", "content": []}
    yield {"type": "response.output_item.added", "output_index": index, "item": empty}
    yield {"type": "response.content_part.added", **place, "part": {**part, word: ""}}
    for piece in pieces(part[word]):
        yield {"type": f"response.{kind}.delta", **place, "delta": piece, "logprobs": []}
    yield {"type": f"response.{kind}.done", **place, word: part[word], "logprobs": []}
    yield {"type": "response.content_part.done", **place, "part": part}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _call_events(index: int, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    place = {"item_id": item["id"], "output_index": index}
    empty = {**item, "status": "in_progress", "arguments": ""}
    yield {"type": "response.output_item.added", "output_index": index, "item": empty}
    for piece in pieces(item["arguments"]):
        yield {"type": "response.function_call_arguments.delta", **place, "delta": piece}
    whole = {"name": item["name"], "arguments": item["arguments"]}
    yield {"type": "response.function_call_arguments.done", **place, **whole}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _numbered(events: Iterator[dict[str, Any]]) -> Iterator[Event]:
    for number, event in enumerate(events):
        yield {**event, "sequence_number": number}


def embeddings(body: dict[str, Any], turn: Turn) -> dict[str, Any]:
    """Vectors that depend on the texts alone."""
    given = body["input"]
    wanted = given if isinstance(given, list) else [given]
    packed = body.get("encoding_format") == "base64"
    size = int(body.get("dimensions") or _DIMENSIONS)
    data = [
        {"object": "embedding", "index": index, "embedding": _vector(str(one), size, packed=packed)}
        for index, one in enumerate(wanted)
    ]
    usage = {"prompt_tokens": turn.tokens_in, "total_tokens": turn.tokens_in}
    return {"object": "list", "data": data, "model": turn.model, "usage": usage}


def _vector(text: str, size: int, *, packed: bool) -> Any:
    numbers = [hashlib.sha256(f"{place} {text}".encode()).digest()[0] for place in range(size)]
    vector = [number / 128 - 1 for number in numbers]
    return base64.b64encode(struct.pack(f"<{size}f", *vector)).decode() if packed else vector


def error(status: int, message: str, code: str | None) -> dict[str, Any]:
    kind = {401: "authentication_error", 429: "rate_limit_error"}.get(status)
    kind = kind or ("invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def _chat_head(turn: Turn, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{turn.id}", "object": kind, "created": turn.created, "model": turn.model,
    }  # fmt: skip


def _chat_call(call: ToolCall, *, arguments: str | None = None) -> dict[str, Any]:
    given = call.arguments if arguments is None else arguments
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": given}}


def _chat_usage(turn: Turn) -> dict[str, Any]:
    return {
        "prompt_tokens": turn.tokens_in, "completion_tokens": turn.tokens_out,
        "total_tokens": turn.tokens_in + turn.tokens_out,
    }  # fmt: skip


def _response_usage(turn: Turn) -> dict[str, Any]:
    return {
        "input_tokens": turn.tokens_in, "output_tokens": turn.tokens_out,
        "total_tokens": turn.tokens_in + turn.tokens_out,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }  # fmt: skip


def _items(turn: Turn) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    part: dict[str, Any] = {
        "type": "output_text",
        "text": turn.text,
        "annotations": [],
        "logprobs": [],
    }
    if turn.refusal is not None:
        part = {"type": "refusal", "refusal": turn.refusal}
    if turn.text or turn.refusal is not None or not turn.tool_calls:
        items.append(
            {
                "type": "message",
                "id": f"msg_{turn.id}",
                "status": "completed",
                "role": "assistant",
                "content": [part],
            }
        )
    items += [
        {
            "type": "function_call", "id": f"fc_{call.id}", "call_id": call.id, "name": call.name,
            "arguments": call.arguments, "status": "completed",
        }
        for call in turn.tool_calls
    ]  # fmt: skip
    return items
