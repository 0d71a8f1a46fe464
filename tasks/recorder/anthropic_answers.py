"""Answers of Anthropic's messages interface."""

from typing import Any

from tasks.recorder import sse
from tasks.recorder.reading import Reading, count, dicts, fields, name, problem, text

_CUT_OFF = ("max_tokens", "model_context_window_exceeded")
_READ = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def messages(answer: dict[str, Any]) -> Reading:
    """A ``message`` object."""
    if answer.get("type") == "error":
        return Reading("failed", detail=problem(answer.get("error")))
    if not isinstance(answer.get("content"), list):
        return Reading("malformed", detail="there is no content in it")
    filled = any(_says(block) for block in dicts(answer["content"]))
    return _with_usage(Reading(_state(text(answer.get("stop_reason")), filled)), answer)


def messages_stream(body: bytes) -> Reading:
    """Events from ``message_start`` to ``message_stop``: without the last one the stream was cut."""
    events = sse.read(body)
    reading = Reading("malformed" if events.malformed and not events.values else "cut")
    reason: str | None = None
    for event in events.values:
        if event.get("type") == "error":
            return reading.as_state("cut", problem(event.get("error")))
        reading = _with_usage(_with_usage(reading, fields(event.get("message"))), event)
        reason = text(fields(event.get("delta")).get("stop_reason")) or reason
    if events.malformed:
        return reading.as_state("malformed")
    if not any(event.get("type") == "message_stop" for event in events.values):
        return reading
    return reading.as_state(_state(reason, any(map(_fills, events.values))))


def _fills(event: dict[str, Any]) -> bool:
    """Whether an event brings any of the answer."""
    if event.get("type") == "content_block_start":
        return _says(fields(event.get("content_block")))
    return event.get("type") == "content_block_delta" and _says(fields(event.get("delta")))


def _says(block: dict[str, Any]) -> bool:
    """Thinking alone is no answer."""
    kind = block.get("type")
    if kind in ("text", "text_delta"):
        return bool(block.get("text"))
    return kind not in ("thinking", "thinking_delta", "redacted_thinking", "signature_delta", None)


def _state(reason: str | None, filled: bool) -> str:
    if reason == "refusal":
        return "refused"
    if reason is None:
        return "cut"
    if not filled:
        return "empty"
    return "length" if reason in _CUT_OFF else "complete"


def _with_usage(reading: Reading, message: dict[str, Any]) -> Reading:
    usage = fields(message.get("usage"))
    read = [count(usage.get(name)) for name in _READ]
    tokens_in = sum(part or 0 for part in read) if count(usage.get(_READ[0])) is not None else None
    tokens_out = count(usage.get("output_tokens"))
    return Reading(
        reading.state,
        model=name(message.get("model")) or reading.model,
        response_id=name(message.get("id")) or reading.response_id,
        tokens_in=reading.tokens_in if tokens_in is None else tokens_in,
        tokens_out=reading.tokens_out if tokens_out is None else tokens_out,
        detail=reading.detail,
    )
