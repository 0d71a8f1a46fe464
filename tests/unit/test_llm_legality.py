"""A transcript that no provider would take is refused before it is sent, whoever wrote it and in whichever way."""

from typing import Any

import pytest

from tasks import Context
from tasks.llm import Conversation, Question, ToolCall, TranscriptIllegal, pure

pytestmark = pytest.mark.unit


@pure
def double(number: int) -> int:
    """Twice a number."""
    return 2 * number


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def chat_calls(*ids: str) -> dict[str, Any]:
    function = {"name": "double", "arguments": '{"number": 2}'}
    calls = [{"id": one, "type": "function", "function": function} for one in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def chat_result(call: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call, "content": "4"}


def claude_calls(*ids: str) -> dict[str, Any]:
    blocks = [
        {"type": "tool_use", "id": one, "name": "double", "input": {"number": 2}} for one in ids
    ]
    return {"role": "assistant", "content": blocks}


def claude_results(*calls: str) -> dict[str, Any]:
    blocks = [{"type": "tool_result", "tool_use_id": one, "content": "4"} for one in calls]
    return {"role": "user", "content": blocks}


class Asked:
    """What reached the model."""

    def __init__(self) -> None:
        self.questions: list[Question] = []

    def __call__(self, question: Question) -> str:
        self.questions.append(question)
        return "well"


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([user("a"), chat_calls("t1"), user("b")], "t1"),
        ([user("a"), claude_calls("t1"), user("b")], "t1"),
        ([user("a"), chat_calls("t1"), said("b"), user("c")], "no result for t1"),
        ([user("a"), claude_calls("t1", "t2"), claude_results("t1"), user("b")], "t2"),
        (
            [user("a"), chat_calls("t1", "t2"), chat_result("t1"), said("b"), user("c")],
            "no result for t2",
        ),
        ([user("a"), chat_calls("t1"), chat_result("t1"), chat_result("t1")], "a result for 't1'"),
        (
            [user("a"), claude_calls("t1"), claude_results("t1", "t1")],
            "a result for 't1'",
        ),
        ([user("a"), chat_result("t1")], "a result for 't1'"),
        ([user("a"), chat_calls("t1", "t1"), chat_result("t1")], "two calls of one id"),
    ],
)
def test_what_is_illegal_is_refused_and_nothing_is_sent(
    messages: list[dict[str, Any]], problem: str
) -> None:
    asked = Asked()
    ctx = Context.for_test(llm=asked)
    with pytest.raises(TranscriptIllegal, match=problem) as refused:
        ctx.llm.think(Conversation.begin(messages), tools=[double])
    assert ctx.run_id in str(refused.value)
    assert not asked.questions


def test_legal_ones_of_both_ways_are_sent() -> None:
    asked = Asked()
    llm = Context.for_test(llm=asked).llm
    for messages in (
        [user("a"), chat_calls("t1", "t2"), chat_result("t2"), chat_result("t1")],
        [user("a"), claude_calls("t1", "t2"), claude_results("t2", "t1"), said("b"), user("c")],
        [user("a"), chat_calls("t1"), chat_result("t1"), chat_calls("t1"), chat_result("t1")],
    ):
        assert llm.think(Conversation.begin(messages), tools=[double]).answer == "well"
    assert len(asked.questions) == 3


@pytest.mark.parametrize("calls", [chat_calls, claude_calls])
def test_calls_that_wait_at_the_end_are_settled_before_the_model_is_asked(calls: Any) -> None:
    """A conversation persisted elsewhere may have lost the results of its last calls."""
    asked = Asked()
    begun = Conversation.begin([user("a"), calls("t1", "t2")])
    assert [one.id for one in begun.pending] == ["t1", "t2"]
    talk = Context.for_test(llm=asked).llm.converse(begun, tools=[double])
    assert (talk.answer, talk.pending) == ("well", ())
    (question,) = asked.questions
    assert str(question.messages).count("'4'") == 2


def test_the_user_never_has_two_turns_in_a_row() -> None:
    """Providers that want alternating roles refuse them."""
    talk = Conversation.begin("first").with_user("and then")
    assert talk.messages == [user("first\n\nand then")]
    after_results = Conversation.begin(
        [user("a"), claude_calls("t1"), claude_results("t1")]
    ).with_user("also this")
    *_, last = after_results.messages
    assert [block["type"] for block in last["content"]] == ["tool_result", "text"]
    after_tool = Conversation.begin([user("a"), chat_calls("t1"), chat_result("t1")])
    assert after_tool.with_user("also").messages[-1] == user("also")


def test_a_model_that_has_spoken_is_not_asked_for_another_turn() -> None:
    llm = Context.for_test(llm=Asked()).llm
    ended = llm.think(Conversation.begin("a"))
    with pytest.raises(TranscriptIllegal, match="spoken last"):
        llm.think(ended)
    assert llm.think(ended.with_user("go on")).turns == 2


def test_a_conversation_stays_with_the_provider_that_has_answered() -> None:
    """Its tool calls are written in that provider's way."""
    llm = Context.for_test(llm=Asked()).llm
    ended = llm.think(Conversation.begin("a"), provider="anthropic").with_user("more")
    with pytest.raises(TranscriptIllegal, match="provider='anthropic'"):
        llm.think(ended)
    assert llm.think(ended, provider="anthropic").turns == 2


def test_one_id_twice_in_one_answer_is_asked_for_again() -> None:
    answers = iter([[ToolCall("x", "double", "{}")] * 2, "well"])
    ctx = Context.for_test(llm=lambda _: next(answers))
    assert ctx.llm.converse("a", tools=[double]).answer == "well"
