"""``ctx.llm``: what a step asks of language models. See ``docs/llm.md``.

What belongs here: how a question is worded for each provider (``chat``, ``claude``), how an answer comes to be
accepted (``asking``), conversations with tools (``talking``, ``tooling``). What does not: recording, replaying,
waiting for an endpoint, paying (``tasks.recorder``).
"""

from typing import TYPE_CHECKING

from tasks.llm.conversation import Conversation
from tasks.llm.errors import NotConfigured, SchemaInvalid, TranscriptIllegal, TurnsExhausted
from tasks.llm.tooling import pure
from tasks.llm.values import Question, Reply, ToolCall
from tasks.recorder.declared import declare_endpoint

if TYPE_CHECKING:
    from tasks.context import Context
    from tasks.llm.llm import LLM
    from tasks.llm.standing_in import AnswerWith

__all__ = [
    "Conversation",
    "NotConfigured",
    "Question",
    "Reply",
    "SchemaInvalid",
    "ToolCall",
    "TranscriptIllegal",
    "TurnsExhausted",
    "declare_endpoint",
    "make",
    "pure",
]


def make(ctx: "Context", *, answer: "AnswerWith | None" = None) -> "LLM":
    """The models that a step may ask; ``answer`` stands in for them in a test."""
    from tasks.llm.llm import LLM  # noqa: PLC0415 - its parts know the context, which knows this function

    return LLM(ctx, answer=answer)
