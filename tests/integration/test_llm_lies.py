"""``ctx.llm`` on servers with ways of their own: what is an answer is read, what is none is not taken."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from models.journal.values import Claimed
from models.settings import settings
from tasks.errors import AnswerIncomplete
from tasks.llm import SchemaInvalid, pure
from tests.support.intents import at_work
from tests.support.journal import Journal
from tests.support.liar import Liar, answer, liar
from tests.support.recording import attempt, calls, configured, next_attempt

pytestmark = pytest.mark.integration


class Verdict(BaseModel):
    score: int


@pure
def double(number: int) -> int:
    """Twice a number."""
    return 2 * number


@pytest.fixture
def server() -> Iterator[Liar]:
    with liar() as server:
        yield server


@pytest.fixture(params=["openai", "anthropic"])
def claimed(request: pytest.FixtureRequest, journal: Journal, server: Liar) -> Iterator[Claimed]:
    with configured(
        ONWARD_LLM_BASE_URL=server.url, ONWARD_LLM_MODEL="gpt-x", ONWARD_LLM_PROVIDER=request.param
    ):
        yield at_work()


def chat(message: dict[str, Any], finish: str = "stop") -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", **message}}
    return {"id": "c1", "object": "chat.completion", "model": "gpt-x", "choices": [choice]}


def claude(*blocks: dict[str, Any], stop: str = "end_turn") -> dict[str, Any]:
    return {
        "id": "m1", "type": "message", "role": "assistant", "model": "gpt-x", "content": list(blocks),
        "stop_reason": stop, "usage": {"input_tokens": 3, "output_tokens": 4},
    }  # fmt: skip


def text(words: str, **fields: str) -> dict[str, Any]:
    """An answer of these words in the dialect that is asked for."""
    if settings().llm_provider == "anthropic":
        return claude({"type": "text", "text": words}, **fields)
    return chat({"content": words}, **fields)


def events(words: str) -> bytes:
    """The same as a stream."""
    if settings().llm_provider == "anthropic":
        start = {**claude(), "stop_reason": None}
        found: list[Any] = [
            {"type": "message_start", "message": start},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": words}},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
            {"type": "message_stop"},
        ]  # fmt: skip
        return b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in found)
    choice = {"index": 0, "delta": {"content": words}, "finish_reason": "stop"}
    event = {"id": "c1", "model": "gpt-x", "choices": [choice]}
    return b"data: " + json.dumps(event).encode() + b"\n\ndata: [DONE]\n\n"


def test_an_answer_in_the_other_form_or_under_another_type_is_read(
    journal: Journal, server: Liar, claimed: Claimed
) -> None:
    server.says(
        answer(text("whole")),
        answer(events("streamed"), content_type="text/event-stream"),
        answer(text("as a page"), content_type="text/html"),
    )
    with attempt(claimed) as ctx:
        first = [
            ctx.llm.text("a", on_chunk=lambda _: None),
            ctx.llm.text("b"),
            ctx.llm.text("c"),
        ]
    assert first == ["whole", "streamed", "as a page"]
    with next_attempt(journal, claimed) as ctx:
        again = [ctx.llm.text("a", on_chunk=lambda _: None), ctx.llm.text("b"), ctx.llm.text("c")]
    assert again == first
    assert len(server.asked) == 3


@pytest.mark.parametrize("words", ["", " \n\t ", "\ud800 half a character"])
def test_what_says_nothing_or_cannot_be_written_down_is_not_taken(
    journal: Journal, server: Liar, claimed: Claimed, words: str
) -> None:
    server.says(answer(text(words)), answer(text("well")))
    with attempt(claimed) as ctx:
        assert ctx.llm.text("say it") == "well"
    first, second = (json.loads(one.partition(b"\r\n\r\n")[2]) for one in server.asked)
    assert second["messages"] == first["messages"], "there is nothing to say back"
    assert [verdict for *_, verdict in calls(journal)] == ["rejected", "accepted"]


def test_a_listener_that_fails_costs_no_answer(
    server: Liar, claimed: Claimed, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: str) -> None:
        raise OSError("the browser has gone")

    server.says(answer(events("streamed"), content_type="text/event-stream"))
    with attempt(claimed) as ctx, caplog.at_level(logging.ERROR):
        assert ctx.llm.text("say it", on_chunk=broken) == "streamed"
    assert "on_chunk failed" in caplog.text
    assert len(server.asked) == 1


def asks_for(arguments: Any, finish: str = "") -> dict[str, Any]:
    """An answer that calls ``double`` with arguments that may be none."""
    if settings().llm_provider == "anthropic":
        block = {"type": "tool_use", "id": "t1", "name": "double", "input": arguments}
        return claude(block, stop="max_tokens" if finish else "tool_use")
    call = {"id": "t1", "type": "function", "function": {"name": "double", "arguments": arguments}}
    return chat({"content": None, "tool_calls": [call]}, finish=finish or "tool_calls")


@pytest.mark.parametrize("arguments", ['{"number": 2', "[2]", None, 5])
def test_arguments_that_are_none_are_told_and_never_said_back_as_they_were(
    server: Liar, claimed: Claimed, arguments: Any
) -> None:
    """A provider refuses a transcript with them, for ever."""
    server.says(answer(asks_for(arguments)), answer(text("then not")))
    with attempt(claimed) as ctx:
        assert ctx.llm.converse("double 2", tools=[double]).answer == "then not"
    sent = json.loads(server.asked[1].partition(b"\r\n\r\n")[2])["messages"]
    if settings().llm_provider == "anthropic":
        (block,) = sent[1]["content"]
        assert isinstance(block["input"], dict)
    else:
        (call,) = sent[1]["tool_calls"]
        assert isinstance(json.loads(call["function"]["arguments"]), dict)
    assert "Error" in json.dumps(sent[2])


def test_arguments_that_are_an_object_are_taken_as_one(server: Liar, claimed: Claimed) -> None:
    server.says(answer(asks_for({"number": 2})), answer(text("four")))
    with attempt(claimed) as ctx:
        assert ctx.llm.converse("double 2", tools=[double]).answer == "four"
    sent = json.loads(server.asked[1].partition(b"\r\n\r\n")[2])["messages"]
    assert '"4"' in json.dumps(sent[2])


def test_calls_of_an_answer_at_its_length_limit_are_never_made(
    journal: Journal, server: Liar, claimed: Claimed
) -> None:
    """``accept_length`` takes a text as far as it goes; half a request is another request."""
    cut_off = {"number": 2} if settings().llm_provider == "anthropic" else '{"number": 2}'
    server.says(answer(asks_for(cut_off, finish="length")))
    with attempt(claimed) as ctx, pytest.raises(SchemaInvalid, match="length limit"):
        ctx.llm.converse("double 2", tools=[double], accept_length=True)
    assert [state for _, _, state, _ in calls(journal)] == ["length"] * 3


def test_an_error_in_the_place_of_an_answer_is_none(
    journal: Journal, server: Liar, claimed: Claimed
) -> None:
    server.says(answer({"type": "error", "error": {"message": "try later", "code": 502}}))
    with attempt(claimed) as ctx, pytest.raises(AnswerIncomplete):
        ctx.llm.ask(Verdict, "judge")
    assert [verdict for *_, verdict in calls(journal)] == ["rejected"] * 3
