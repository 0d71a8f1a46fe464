"""What a unit test answers in the model's place: ``Context.for_test(llm=answer)``.

``answer(question)`` returns a text, a pydantic model or a dict (the answer as JSON), a list of ``ToolCall``, or
a whole ``Reply``. Schema, check and limits apply to it as to any answer.
"""

import json
from collections.abc import Callable
from typing import Any, TypeAlias

from pydantic import BaseModel

from tasks.llm import chat, claude
from tasks.llm.values import Question, Reply, ToolCall, Unrecorded

AnswerWith: TypeAlias = Callable[[Question], Any]


def stand_in(answer: AnswerWith, question: Question) -> Reply:
    """The answer of a test, in the form of a provider's."""
    said = answer(question)
    if isinstance(said, Reply):
        return said
    calls = tuple(said) if isinstance(said, list | tuple) else ()
    text = "" if calls else _text(said)
    if question.on_chunk is not None and text:
        question.on_chunk(text)
    if question.provider == "anthropic":
        return claude.reply(
            {"content": _blocks(text, calls), "model": question.model}, Unrecorded()
        )
    message = {"content": text, "tool_calls": [_function(call) for call in calls]}
    return chat.reply({"choices": [{"message": message}], "model": question.model}, Unrecorded())


def _text(said: Any) -> str:
    if isinstance(said, BaseModel):
        return said.model_dump_json()
    return said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)


def _blocks(text: str, calls: tuple[ToolCall, ...]) -> list[dict[str, Any]]:
    used = [
        {"type": "tool_use", "id": one.id, "name": one.name, "input": json.loads(one.arguments)}
        for one in calls
    ]
    return [{"type": "text", "text": text}, *used] if text else used


def _function(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "function": {"name": call.name, "arguments": call.arguments}}
