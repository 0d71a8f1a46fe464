"""Answers of OpenAI's interfaces and of all that are compatible with them."""

from dataclasses import replace
from typing import Any

from tasks.recorder import sse
from tasks.recorder.reading import Reading, count, dicts, fields, name, problem, text, worst

_CUT_OFF, _FILTERED = "length", "content_filter"


def chat(answer: dict[str, Any]) -> Reading:
    """``chat.completion``; a legacy ``text_completion`` has ``text`` in place of a message."""
    if "error" in answer and "choices" not in answer:
        return Reading("failed", detail=problem(answer["error"]))
    if not isinstance(answer.get("choices"), list):
        return Reading("malformed", detail="there are no choices in it")
    states = [
        _state(text(one.get("finish_reason")), *_content(one)) for one in dicts(answer["choices"])
    ]
    return _with_usage(Reading(worst(states)), answer)


def chat_stream(body: bytes) -> Reading:
    """``chat.completion.chunk`` events: whole when every choice has said why it ended."""
    events = sse.read(body)
    reasons: dict[int, str | None] = {}
    filled: set[int] = set()
    refused: set[int] = set()
    reading = Reading("cut")
    for event in events.values:
        reading = _with_usage(reading, event)
        if "error" in event and "choices" not in event:
            return reading.as_state("cut", problem(event["error"]))
        for choice in dicts(event.get("choices")):
            place = count(choice.get("index")) or 0
            has_content, has_refused = _content({**choice, "message": choice.get("delta")})
            reasons[place] = text(choice.get("finish_reason")) or reasons.get(place)
            filled |= {place} if has_content else set()
            refused |= {place} if has_refused else set()
    if not reasons:
        state = "empty" if events.done else "cut"
        return reading.as_state("malformed" if events.malformed else state)
    states = [
        _state(reason, place in filled, place in refused) for place, reason in reasons.items()
    ]
    return reading.as_state("malformed" if events.malformed else worst(states))


def _content(choice: dict[str, Any]) -> tuple[bool, bool]:
    """Whether a choice holds anything, and whether it is a refusal."""
    message = fields(choice.get("message"))
    parts = ("content", "tool_calls", "function_call", "audio")
    filled = any(message.get(part) for part in parts) or bool(choice.get("text"))
    return filled, bool(message.get("refusal"))


def _state(reason: str | None, filled: bool, refused: bool) -> str:
    if refused or reason == _FILTERED:
        return "refused"
    if reason is None:
        return "cut"
    if not filled:
        return "empty"
    return "length" if reason == _CUT_OFF else "complete"


def responses(answer: dict[str, Any]) -> Reading:
    """A ``response`` object, whatever its status."""
    reading = _with_usage(Reading("complete"), answer)
    status = text(answer.get("status"))
    if status in ("queued", "in_progress"):
        return reading.as_state("pending")
    if status in ("failed", "cancelled") or (status is None and "error" in answer):
        return reading.as_state("failed", problem(answer.get("error")) or status)
    if status == "incomplete":
        why = text(fields(answer.get("incomplete_details")).get("reason"))
        return reading.as_state("refused" if why == _FILTERED else "length", why)
    if not isinstance(answer.get("output"), list):
        return reading.as_state("malformed", "there is no output in it")
    return reading.as_state(_output_state(dicts(answer["output"])))


def _output_state(output: list[dict[str, Any]]) -> str:
    states = []
    for item in output:
        parts = dicts(item.get("content")) if item.get("type") == "message" else []
        if any(part.get("type") == "refusal" for part in parts):
            return "refused"
        if item.get("type") == "reasoning" or (item.get("type") == "message" and not _said(parts)):
            continue
        states.append("complete")
    return worst(states)


def _said(parts: list[dict[str, Any]]) -> bool:
    return any(part.get("text") or part.get("type") != "output_text" for part in parts)


def responses_stream(body: bytes) -> Reading:
    """The last event holds the whole response; without one the stream was cut."""
    events = sse.read(body)
    reading = Reading("malformed" if events.malformed and not events.values else "cut")
    for event in events.values:
        kind, response = text(event.get("type")) or "", fields(event.get("response"))
        if kind in ("response.completed", "response.incomplete", "response.failed"):
            return responses(response)
        if kind == "error":
            return reading.as_state("cut", problem(event.get("error")) or problem(event))
        if response:
            reading = _with_usage(reading, response)
    return reading


def embeddings(answer: dict[str, Any]) -> Reading:
    """A list of vectors."""
    if not isinstance(answer.get("data"), list):
        return Reading("malformed", detail="there is no data in it")
    whole = bool(answer["data"]) and all(one.get("embedding") for one in dicts(answer["data"]))
    reading = _with_usage(Reading("complete" if whole else "empty"), answer)
    return (
        reading if reading.tokens is None else replace(reading, tokens_out=reading.tokens_out or 0)
    )


def _with_usage(reading: Reading, answer: dict[str, Any]) -> Reading:
    """What an answer, or one event of it, says about its maker and its price. The last word counts."""
    usage = fields(answer.get("usage"))
    tokens_in = count(usage.get("prompt_tokens", usage.get("input_tokens")))
    tokens_out = count(usage.get("completion_tokens", usage.get("output_tokens")))
    if tokens_out is not None and (total := count(usage.get("total_tokens"))) is not None:
        tokens_out = max(
            tokens_out, total - (tokens_in or 0)
        )  # some count their thinking there only
    return Reading(
        reading.state,
        model=name(answer.get("model")) or reading.model,
        response_id=name(answer.get("id")) or reading.response_id,
        tokens_in=reading.tokens_in if tokens_in is None else tokens_in,
        tokens_out=reading.tokens_out if tokens_out is None else tokens_out,
        detail=reading.detail,
    )
