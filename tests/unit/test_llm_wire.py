"""Requests as each provider wants them, answers and streams as each sends them."""

import json
from typing import Any

import pytest
from pydantic import BaseModel

from tasks.llm import chat, claude
from tasks.llm.events import Deltas
from tasks.llm.forms import form_of
from tasks.llm.values import Offer, Question, ToolCall, ToolResult, Unrecorded

pytestmark = pytest.mark.unit

TAKEN = Unrecorded()


class Risk(BaseModel):
    clause: str
    severity: int


SEARCH = Offer(
    "search", "Finds things.", {"type": "object", "properties": {"q": {"type": "string"}}}
)


def question(**changes: Any) -> Question:
    given: dict[str, Any] = {
        "provider": "openai", "model": "gpt-x", "messages": [{"role": "user", "content": "Hello"}],
    }  # fmt: skip
    return Question(**{**given, **changes})


def test_chat_puts_everything_that_was_asked_into_the_request() -> None:
    asked = chat.payload(
        question(
            system="Be brief.", form=form_of(Risk), tools=[SEARCH], sampling={"temperature": 0.2}
        )
    )
    assert asked["messages"][0] == {"role": "system", "content": "Be brief."}
    assert asked["response_format"]["json_schema"]["strict"] is True
    assert asked["tools"][0]["function"]["parameters"] == SEARCH.schema
    assert asked["temperature"] == 0.2
    assert "stream" not in asked


def test_an_endpoint_without_schemas_is_told_in_words() -> None:
    asked = chat.payload(question(form=form_of(Risk), response_format="text"))
    assert "response_format" not in asked
    assert '"severity"' in asked["messages"][0]["content"]
    loose = chat.payload(question(form=form_of(Risk), response_format="json_object"))
    assert loose["response_format"] == {"type": "json_object"}


def test_a_live_listener_makes_it_a_stream_with_its_usage() -> None:
    asked = chat.payload(question(on_chunk=print))
    assert (asked["stream"], asked["stream_options"]) == (True, {"include_usage": True})
    assert claude.payload(question(on_chunk=print))["stream"] is True


def test_chat_answers_and_streams_come_to_the_same() -> None:
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "search", "arguments": '{"q": "x"}'},
    }
    whole = chat.reply(
        {
            "id": "r1",
            "model": "gpt-x",
            "choices": [{"message": {"content": "Ok", "tool_calls": [call]}}],
        },
        TAKEN,
    )
    begun = {"index": 0, "id": "c1", "function": {"name": "search", "arguments": '{"q"'}}
    rest = {"index": 0, "function": {"arguments": ': "x"}'}}
    streamed = chat.reply(
        chat.gathered(
            [
                {"id": "r1", "model": "gpt-x", "choices": [{"delta": {"content": "O"}}]},
                {"choices": [{"delta": {"content": "k", "tool_calls": [begun]}}]},
                {"choices": [{"delta": {"tool_calls": [rest]}, "finish_reason": "tool_calls"}]},
                {"choices": [], "usage": {"total_tokens": 3}},
            ]
        ),
        TAKEN,
    )
    assert (streamed.text, streamed.calls, streamed.message) == (
        whole.text,
        whole.calls,
        whole.message,
    )
    assert whole.calls == (ToolCall("c1", "search", '{"q": "x"}'),)
    assert chat.calls_in(whole.message) == whole.calls


def test_anthropic_answers_and_streams_come_to_the_same() -> None:
    text, used = (
        {"type": "text", "text": "Ok"},
        {"type": "tool_use", "id": "t1", "name": "search", "input": {"q": "x"}},
    )
    whole = claude.reply(
        {"id": "m", "model": "c", "content": [text | {"citations": None}, used]}, TAKEN
    )
    streamed = claude.reply(
        claude.gathered(
            [
                {"type": "message_start", "message": {"id": "m", "model": "c", "content": []}},
                {
                    "type": "content_block_start",
                    "index": 0,
                    "content_block": {"type": "text", "text": ""},
                },
                {
                    "type": "content_block_delta",
                    "index": 0,
                    "delta": {"type": "text_delta", "text": "Ok"},
                },
                {"type": "content_block_start", "index": 1, "content_block": used | {"input": {}}},
                {
                    "type": "content_block_delta",
                    "index": 1,
                    "delta": {"type": "input_json_delta", "partial_json": '{"q":'},
                },
                {
                    "type": "content_block_delta",
                    "index": 1,
                    "delta": {"type": "input_json_delta", "partial_json": ' "x"}'},
                },
                {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
            ]
        ),
        TAKEN,
    )
    assert streamed.message == whole.message == {"role": "assistant", "content": [text, used]}
    assert (
        streamed.calls
        == claude.calls_in(whole.message)
        == (ToolCall("t1", "search", '{"q": "x"}'),)
    )


def test_results_of_parallel_calls_keep_the_roles_alternating() -> None:
    found = [
        ToolResult(ToolCall("a", "f", "{}"), "1"),
        ToolResult(ToolCall("b", "g", "{}"), "no", failed=True),
    ]
    assert [one["tool_call_id"] for one in chat.results(found)] == ["a", "b"]
    (message,) = claude.results(found)
    assert claude.answered_in(message) == ("a", "b")
    assert message["content"][1]["is_error"] is True


def test_pieces_of_text_are_heard_however_the_bytes_are_cut() -> None:
    events = [{"choices": [{"delta": {"content": word}}]} for word in ("Grüße", " and", " more")]
    wire = b"".join(
        f"data: {json.dumps(event, ensure_ascii=False)}\n\n".encode() for event in events
    )
    wire += b"data: [DONE]\n\n"
    for size in (1, 7, len(wire)):
        heard: list[str] = []
        listen = Deltas(chat.delta, heard.append)
        for start in range(0, len(wire), size):
            listen(wire[start : start + size])
        assert heard == ["Grüße", " and", " more"]
