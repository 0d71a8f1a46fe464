"""Tools as a model sees them, and a transcript that stays legal whatever the model asks for."""

import json
from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel

from tasks import Context, Effect, Refused, Tool, tool
from tasks.errors import CallNameTaken, DefinitionError, EffectUnknown
from tasks.llm import (
    Conversation,
    Question,
    ToolCall,
    TranscriptIllegal,
    TurnsExhausted,
    make,
    pure,
)
from tasks.llm.tooling import as_tool, bench, call_name, told

pytestmark = pytest.mark.unit


class Booking(BaseModel):
    room: str
    day: date


class Booked(BaseModel):
    id: str
    tags: set[str] = set()


class BookRoom(Tool[Booking, Booked]):
    """Books a meeting room."""

    name = "test-llm.book"
    effect = Effect.ONCE

    def execute(self, request: Booking, *, key: str) -> Booked:
        del key
        if request.room == "closed":
            raise Refused("that room is closed")
        return Booked(id=f"{request.room}-{request.day}", tags={"b", "a", "c"})


@pure
def weekday(day: date) -> str:
    """The name of a day."""
    if day.year < 2000:
        raise Refused("too long ago")
    return day.strftime("%A")


def unmarked(day: date) -> str:
    return day.isoformat()


def call(name: str, arguments: dict[str, Any] | str, *, id: str = "c1") -> ToolCall:
    return ToolCall(id, name, arguments if isinstance(arguments, str) else json.dumps(arguments))


def said(*answers: Any) -> tuple[Any, list[Question]]:
    asked: list[Question] = []
    left = iter(answers)

    def answer(question: Question) -> Any:
        asked.append(question)
        return next(left)

    return answer, asked


def test_a_model_sees_names_descriptions_and_schemas() -> None:
    booking, day = bench([BookRoom(), weekday]).offers
    assert (booking.name, booking.description) == ("test-llm_book", "Books a meeting room.")
    assert set(booking.schema["properties"]) == {"room", "day"}
    assert (day.name, day.description) == ("weekday", "The name of a day.")
    assert day.schema["required"] == ["day"]


def test_a_function_that_says_nothing_of_itself_is_refused() -> None:
    with pytest.raises(DefinitionError, match="Mark it with @pure"):
        bench([unmarked])
    with pytest.raises(DefinitionError, match="two tools would be 'weekday'"):
        bench([weekday, weekday])


def test_a_conversation_goes_on_from_what_the_tools_say() -> None:
    answer, asked = said(
        [
            call("test-llm_book", {"room": "A", "day": "2026-03-02"}),
            call("weekday", {"day": "2026-03-02"}, id="c2"),
        ],
        "Booked for Monday.",
    )
    talk = Context.for_test(llm=answer).llm.converse("Book A", tools=[BookRoom(), weekday])
    assert (talk.answer, talk.turns, talk.pending) == ("Booked for Monday.", 2, ())
    results = [one for one in asked[1].messages if one["role"] == "tool"]
    assert [one["tool_call_id"] for one in results] == ["c1", "c2"]
    assert json.loads(results[0]["content"]) == {"id": "A-2026-03-02", "tags": ["a", "b", "c"]}
    assert results[1]["content"] == "Monday"


def test_what_cannot_be_called_or_is_refused_is_told_to_the_model() -> None:
    answer, asked = said(
        [
            call("nothing", {}, id="1"), call("weekday", "{half", id="2"), call("weekday", {"day": "no day"}, id="3"),
            call("weekday", {"day": "2026-01-01", "zone": "CET"}, id="4"),
            call("weekday", {"day": "1999-01-01"}, id="5"),
            call("test-llm_book", {"room": "closed", "day": "2026-01-01"}, id="6"),
            call("weekday", "[]", id="7"),
        ],
        "I give up.",
    )  # fmt: skip
    Context.for_test(llm=answer).llm.converse("Go", tools=[BookRoom(), weekday])
    results = {
        one["tool_call_id"]: one["content"] for one in asked[1].messages if one["role"] == "tool"
    }
    assert "there is no tool 'nothing'; there are: test-llm_book, weekday" in results["1"]
    assert "not a JSON object" in results["2"]
    assert "$.day" in results["3"]
    assert "$.zone" in results["4"]
    assert results["5"] == "Refused: too long ago"
    assert results["6"] == "Refused: that room is closed"
    assert "not a JSON object" in results["7"]


def test_anthropic_transcripts_alternate() -> None:
    answer, asked = said(
        [call("weekday", {"day": "2026-03-02"}, id="a"), call("nothing", {}, id="b")], "Monday."
    )
    llm = Context.for_test(llm=answer).llm
    talk = llm.converse("Which day?", tools=[weekday], provider="anthropic")
    assert [one["role"] for one in talk.messages] == ["user", "assistant", "user", "assistant"]
    assert [block["tool_use_id"] for block in asked[1].messages[-1]["content"]] == ["a", "b"]


def test_a_stop_leaves_no_result_behind() -> None:
    def stops(_tool: Any, _request: Any) -> Any:
        raise EffectUnknown("it may have happened")

    answer, asked = said([call("test-llm_book", {"room": "A", "day": "2026-03-02"})])
    with pytest.raises(EffectUnknown):
        Context.for_test(call=stops, llm=answer).llm.converse("Book", tools=[BookRoom()])
    assert len(asked) == 1, "no answer of the model is asked for while a call is in doubt"


def test_thinking_and_acting_as_steps() -> None:
    answer, _ = said([call("weekday", {"day": "2026-03-02"})], "Monday.")
    llm = Context.for_test(llm=answer).llm
    talk = llm.think(Conversation.begin("Which day?"), tools=[weekday])
    assert [one.name for one in talk.pending] == ["weekday"]
    with pytest.raises(TranscriptIllegal, match="c1"):
        llm.think(talk, tools=[weekday])
    with pytest.raises(TranscriptIllegal, match="exactly one"):
        talk.with_results([])
    acted = llm.act(talk, tools=[weekday])
    assert acted.pending == ()
    assert llm.act(acted, tools=[weekday]) == acted
    assert llm.think(acted, tools=[weekday]).answer == "Monday."
    assert Conversation.model_validate_json(acted.model_dump_json()) == acted


def test_tool_calls_without_ids_of_their_own_are_no_answer() -> None:
    twice = [call("weekday", {"day": "2026-03-02"}), call("weekday", {"day": "2026-03-03"})]
    answer, asked = said(twice, "Never mind.")
    talk = Context.for_test(llm=answer).llm.converse("Go", tools=[weekday])
    assert talk.answer == "Never mind."
    assert asked[1].messages == asked[0].messages


def test_turns_end() -> None:
    llm = make(
        Context.for_test(),
        answer=lambda question: [
            call("weekday", {"day": "2026-03-02"}, id=f"c{len(question.messages)}")
        ],
    )
    with pytest.raises(TurnsExhausted, match="3 turns"):
        llm.converse("Go", tools=[weekday], max_turns=3)


def test_the_same_id_in_two_answers_names_two_calls() -> None:
    one = call("test-llm_book", {"room": "A", "day": "2026-03-02"}, id="call_0")
    answer, _ = said([one], [one], "Twice.")
    assert Context.for_test(llm=answer).llm.converse("Go", tools=[BookRoom()]).answer == "Twice."
    assert call_name("w", 0, call("f", {}, id="a b")) != call_name("w", 0, call("f", {}, id="a_b"))
    ctx = Context.for_test()
    ctx.call(BookRoom(), Booking(room="A", day=date(2026, 3, 2)), name="turn-1.0.call_0")
    with pytest.raises(CallNameTaken):
        ctx.call(BookRoom(), Booking(room="A", day=date(2026, 3, 2)), name="turn-1.0.call_0")


@tool("test-llm.count", effect=Effect.PURE)
def count(request: str, *, key: str) -> int:
    """Counts letters."""
    del key
    return len(request)


def test_a_request_that_is_no_object_is_given_as_one() -> None:
    offered = bench([count])
    assert offered.offers[0].schema["required"] == ["request"]
    assert offered.requested(call("test-llm_count", {"request": "four"})) == (count, "four")
    assert told(count, 4) == ("4", False)


def test_pure_functions_may_be_async() -> None:
    @pure
    async def shout(word: str) -> str:
        return word.upper()

    made = as_tool(shout)
    value = Context.for_test().call(made, made.request_type.validate({"word": "hi"}), name="a")
    assert told(made, value) == ("HI", False)
