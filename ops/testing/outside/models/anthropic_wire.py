"""Answers as Anthropic's messages interface sends them."""

import json
from typing import Any

from ops.testing.outside.models.openai_wire import Event, pieces
from ops.testing.outside.models.produced import Turn

_STOPS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}

_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def message(turn: Turn) -> dict[str, Any]:
    """A finished message. Arguments that are no JSON object are sent as one that has them inside."""
    said = turn.text if turn.refusal is None else turn.refusal
    content: list[dict[str, Any]] = [{"type": "text", "text": said}] if said else []
    content += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": _object(call.arguments)}
        for call in turn.tool_calls
    ]
    return {
        "id": f"msg_{turn.id}", "type": "message", "role": "assistant", "model": turn.model,
        "content": content, "stop_reason": _stop(turn), "stop_sequence": None,
        "usage": {"input_tokens": turn.tokens_in, "output_tokens": turn.tokens_out},
    }  # fmt: skip


def message_events(turn: Turn) -> tuple[list[Event], int]:
    """The events of a streamed message, and how many at the end say that it is over."""
    done = message(turn)
    usage = {"input_tokens": turn.tokens_in, "output_tokens": 0}
    begun = {**done, "content": [], "stop_reason": None, "usage": usage}
    events: list[Event] = [{"type": "message_start", "message": begun}]
    for index, block in enumerate(done["content"]):
        events += _block_events(index, block)
    stop = {"stop_reason": done["stop_reason"], "stop_sequence": None}
    end: list[Event] = [
        {"type": "message_delta", "delta": stop, "usage": {"output_tokens": turn.tokens_out}},
        {"type": "message_stop"},
    ]
    return events + end, len(end)


def error(status: int, text: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": _ERRORS.get(status, "api_error"), "message": text}}


def _block_events(index: int, block: dict[str, Any]) -> list[Event]:
    if block["type"] == "text":
        empty, kind, word, said = {**block, "text": ""}, "text_delta", "text", block["text"]
    else:
        empty, kind, word = {**block, "input": {}}, "input_json_delta", "partial_json"
        said = json.dumps(block["input"], ensure_ascii=False)
    return [
        {"type": "content_block_start", "index": index, "content_block": empty},
        *(
            {"type": "content_block_delta", "index": index, "delta": {"type": kind, word: piece}}
            for piece in pieces(said)
        ),
        {"type": "content_block_stop", "index": index},
    ]


def _stop(turn: Turn) -> str | None:
    if turn.refusal is not None:
        return "refusal"
    return _STOPS.get(turn.finish or "", turn.finish)


def _object(arguments: str) -> dict[str, Any]:
    try:
        value = json.loads(arguments)
    except ValueError:
        return {"raw": arguments}
    return value if isinstance(value, dict) else {"raw": value}
