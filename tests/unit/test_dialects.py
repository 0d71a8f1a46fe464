"""What answers of model services say about themselves, as JSON and as streams, whole and cut anywhere."""

import json
from typing import Any

import pytest

from tasks.recorder import dialects
from tasks.recorder.dialects import CHAT, EMBEDDINGS, MESSAGES, RESPONSES, Dialect
from tasks.recorder.reading import Reading
from tasks.recorder.values import Arrived

CALL = {"id": "t1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def read(
    dialect: Dialect,
    body: bytes | dict[str, Any],
    *,
    kind: str = "application/json",
    broken: bool = False,
) -> Reading:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    error = OSError("the connection broke") if broken else None
    answer = Arrived(status=200, headers=(("Content-Type", kind),), body=content, broken=error)
    return dialects.read(dialect, answer)


def stream(*events: dict[str, Any] | str) -> bytes:
    datas = (one if isinstance(one, str) else json.dumps(one) for one in events)
    return "".join(f"data: {data}\n\n" for data in datas).encode()


def read_stream(dialect: Dialect, body: bytes, *, broken: bool = False) -> Reading:
    return read(dialect, body, kind="text/event-stream; charset=utf-8", broken=broken)


def choice(reason: str | None, **message: Any) -> dict[str, Any]:
    return {"index": 0, "finish_reason": reason, "message": {"role": "assistant", **message}}


def completion(*choices: dict[str, Any]) -> dict[str, Any]:
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    return {"id": "c1", "model": "gpt-x", "choices": list(choices), "usage": usage}


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (completion(choice("stop", content="yes")), "complete"),
        (completion(choice("tool_calls", content=None, tool_calls=[CALL])), "complete"),
        (completion(choice("length", content='{"a": 1}')), "length"),
        (completion(choice("length", content="")), "empty"),
        (completion(choice("stop", content="")), "empty"),
        (completion(choice("stop", content=None)), "empty"),
        (completion(), "empty"),
        (completion(choice("content_filter", content="no")), "refused"),
        (completion(choice("stop", content=None, refusal="I cannot")), "refused"),
        (completion(choice(None, content="half")), "cut"),
        (completion(choice("stop", content="a"), choice("length", content="b")), "length"),
        ({"error": {"message": "overloaded"}}, "failed"),
        ({"choices": "none"}, "malformed"),
        ({}, "malformed"),
        (b"<html>bad gateway</html>", "malformed"),
        (b"[1, 2]", "malformed"),
        (b"", "malformed"),
        (b'{"choices": [{"finish_reason": "stop", "mess', "malformed"),
    ],
)
def test_a_chat_answer(answer: Any, state: str) -> None:
    assert read(CHAT, answer).state == state


def test_a_chat_answer_says_who_made_it_and_what_it_took() -> None:
    reading = read(CHAT, completion(choice("stop", content="yes")))
    assert (reading.model, reading.response_id) == ("gpt-x", "c1")
    assert (reading.tokens_in, reading.tokens_out, reading.tokens) == (7, 3, 10)


def test_an_answer_whose_connection_broke_is_cut() -> None:
    assert read(CHAT, b'{"choices": [{"fin', broken=True).state == "cut"
    assert read(CHAT, completion(choice("stop", content="yes")), broken=True).state == "cut"


def piece(reason: str | None = None, **delta: Any) -> dict[str, Any]:
    return {
        "id": "c1", "model": "gpt-x", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
    }  # fmt: skip


USAGE = {"id": "c1", "choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}
WHOLE = stream(
    piece(role="assistant"), piece(content="All is "), piece(content="well."), piece("stop"), USAGE, "[DONE]",
)  # fmt: skip


def test_a_whole_chat_stream() -> None:
    reading = read_stream(CHAT, WHOLE)
    assert (reading.state, reading.model, reading.tokens) == ("complete", "gpt-x", 7)


def test_a_chat_stream_is_whole_only_when_its_choice_has_said_why_it_ended() -> None:
    said = WHOLE.index(b'"stop"')
    ends = WHOLE.index(b"\n\n", said) + 2
    for length in range(len(WHOLE) + 1):
        state = read_stream(CHAT, WHOLE[:length]).state
        assert state == ("complete" if length >= ends else "cut"), WHOLE[:length]


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ((piece(content="All is well."),), "cut"),  # a sentence is no end
        ((piece(content="All is well."), "[DONE]"), "cut"),
        ((piece(tool_calls=[{"index": 0, "function": {"arguments": '{"serv'}}]),), "cut"),
        ((piece(content="a"), {"error": {"message": "overloaded"}}), "cut"),
        ((piece(content='{"a": 1}'), piece("length"), "[DONE]"), "length"),
        ((piece(role="assistant"), piece("length"), "[DONE]"), "empty"),
        ((piece(role="assistant", content=""), piece("stop"), "[DONE]"), "empty"),
        ((piece(refusal="I cannot"), piece("stop"), "[DONE]"), "refused"),
        ((piece(tool_calls=[CALL]), piece("tool_calls"), "[DONE]"), "complete"),
        (("[DONE]",), "empty"),
        (("no json",), "malformed"),
        ((piece(content="a"), "no json", piece("stop"), "[DONE]"), "malformed"),
    ],
)
def test_a_chat_stream(events: Any, state: str) -> None:
    assert read_stream(CHAT, stream(*events)).state == state


def response(status: str, **fields: Any) -> dict[str, Any]:
    usage = {"input_tokens": 11, "output_tokens": 4}
    output = [{"type": "message", "content": [{"type": "output_text", "text": "yes"}]}]
    return {
        "id": "resp_1",
        "model": "gpt-x",
        "status": status,
        "output": output,
        "usage": usage,
        **fields,
    }


SAID_NOTHING = [
    {"type": "reasoning"},
    {"type": "message", "content": [{"type": "output_text", "text": ""}]},
]


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (response("completed"), "complete"),
        (response("completed", output=[{"type": "function_call", "name": "f"}]), "complete"),
        (response("completed", output=[]), "empty"),
        (response("completed", output=SAID_NOTHING), "empty"),
        (
            response("completed", output=[{"type": "message", "content": [{"type": "refusal"}]}]),
            "refused",
        ),
        (response("incomplete", incomplete_details={"reason": "max_output_tokens"}), "length"),
        (response("incomplete", incomplete_details={"reason": "content_filter"}), "refused"),
        (response("queued", output=[]), "pending"),
        (response("in_progress", output=[]), "pending"),
        (response("failed", error={"message": "no"}), "failed"),
        (response("cancelled"), "failed"),
        ({"id": "resp_1"}, "malformed"),
    ],
)
def test_a_response(answer: Any, state: str) -> None:
    reading = read(RESPONSES, answer)
    assert (reading.state, reading.response_id) == (state, "resp_1")


def test_a_stream_of_a_response_holds_it_in_its_last_event() -> None:
    begun = {"type": "response.created", "response": response("in_progress", usage=None)}
    delta = {"type": "response.output_text.delta", "delta": "yes"}
    whole = read_stream(
        RESPONSES,
        stream(begun, delta, {"type": "response.completed", "response": response("completed")}),
    )
    assert (whole.state, whole.tokens) == ("complete", 15)
    cut = read_stream(RESPONSES, stream(begun, delta))
    assert (cut.state, cut.model, cut.tokens) == ("cut", "gpt-x", None)
    error = read_stream(RESPONSES, stream(begun, {"type": "error", "message": "overloaded"}))
    assert (error.state, error.detail) == ("cut", "overloaded")


def test_embeddings() -> None:
    answer = {
        "model": "e-1",
        "data": [{"embedding": [0.1]}],
        "usage": {"prompt_tokens": 3, "total_tokens": 3},
    }
    reading = read(EMBEDDINGS, answer)
    assert (reading.state, reading.model, reading.tokens) == ("complete", "e-1", 3)
    assert read(EMBEDDINGS, {"data": []}).state == "empty"
    assert read(EMBEDDINGS, {}).state == "malformed"


def message(reason: str | None, *content: dict[str, Any]) -> dict[str, Any]:
    usage = {"input_tokens": 8, "cache_read_input_tokens": 2, "output_tokens": 5}
    return {
        "type": "message", "id": "m1", "model": "claude-x", "content": list(content), "stop_reason": reason,
        "usage": usage,
    }  # fmt: skip


TEXT = {"type": "text", "text": "yes"}


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (message("end_turn", TEXT), "complete"),
        (message("tool_use", {"type": "tool_use", "name": "f"}), "complete"),
        (message("max_tokens", TEXT), "length"),
        (message("model_context_window_exceeded", TEXT), "length"),
        (message("max_tokens"), "empty"),
        (message("end_turn", {"type": "thinking", "thinking": "hm"}), "empty"),
        (message("refusal", TEXT), "refused"),
        (message(None, TEXT), "cut"),
        ({"type": "message"}, "malformed"),
        ({"type": "error", "error": {"message": "overloaded"}}, "failed"),
    ],
)
def test_a_message(answer: Any, state: str) -> None:
    assert read(MESSAGES, answer).state == state


def test_a_stream_of_a_message_ends_with_its_mark() -> None:
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message(None), "usage": {"input_tokens": 8, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "yes"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 6}},
        {"type": "message_stop"},
    ]  # fmt: skip
    whole = read_stream(MESSAGES, stream(*events))
    assert (whole.state, whole.model, whole.tokens_in, whole.tokens_out) == (
        "complete", "claude-x", 8, 6,
    )  # fmt: skip
    for count in range(1, len(events)):
        cut = read_stream(MESSAGES, stream(*events[:count]))
        assert (cut.state, cut.tokens_in) == ("cut", 8)
    error = read_stream(
        MESSAGES, stream(*events[:3], {"type": "error", "error": {"message": "no"}})
    )
    assert (error.state, error.detail) == ("cut", "no")


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://api.openai.com/v1/chat/completions", "openai.chat"),
        ("https://x.azure.com/openai/deployments/d/chat/completions", "openai.chat"),
        ("http://h:1/v1/completions", "openai.chat"),
        ("https://api.openai.com/v1/responses", "openai.responses"),
        ("https://api.openai.com/v1/embeddings", "openai.embeddings"),
        ("https://api.anthropic.com/v1/messages", "anthropic.messages"),
        ("https://api.openai.com/v1/files", None),
        ("https://api.openai.com/v1/responses/resp_1/cancel", None),
        ("https://api.anthropic.com/v1/messages/batches", None),
    ],
)
def test_a_dialect_is_known_by_its_path(url: str, name: str | None) -> None:
    dialect = dialects.of_path(url)
    assert (dialect.name if dialect else None) == name


def test_what_a_request_may_take_at_most() -> None:
    body = json.dumps(
        {"model": "gpt-x", "max_tokens": 50, "n": 2, "messages": ["x" * 1000]}
    ).encode()
    wanted = dialects.wanted(CHAT, body)
    assert (wanted.model, wanted.max_output) == ("gpt-x", 100)
    assert wanted.tokens_in >= len(body) // 2
    assert dialects.wanted(CHAT, b"{}").max_output is None
    assert dialects.wanted(EMBEDDINGS, b'{"model": "e"}').max_output == 0
    assert dialects.wanted(CHAT, b"no json").model is None


@pytest.mark.parametrize(
    ("answered", "pin", "fits"),
    [
        ("gpt-x", "gpt-x", True),
        ("gpt-x-mini", "gpt-x", False),
        ("gpt-x-2026-01-02", "gpt-x", False),
        ("gpt-x-2026-01-02", "gpt-x-*", True),
        (None, "gpt-x", False),
        (None, "gpt-*", False),
        (None, "*", True),
        ("gpt-y", "*", True),
    ],
)
def test_the_model_that_answered_is_the_one_that_was_pinned(
    answered: str | None, pin: str, fits: bool
) -> None:
    assert dialects.fits(answered, pin) is fits
