"""Conversations with tools: turns of the model, and what its tool calls come to.

A tool is called through the ledger under a name made of the model's recorded answer and the call's id, so it
happens once over all attempts. Whatever leaves it open what became of it ends the attempt (``Stop``): no
result is invented, and the model is told when the ledger knows.
"""

from dataclasses import replace
from typing import Any

from models.messages import one_line
from tasks.llm.asking import Invoke, Logic, asked
from tasks.llm.conversation import Conversation
from tasks.llm.errors import TranscriptIllegal, TurnsExhausted
from tasks.llm.tooling import Bench, call_name, told
from tasks.llm.values import Question, Reply, ToolCall, ToolResult
from tasks.tool_base import Refused


def conversed(
    talk: Conversation, bench: Bench, question: Question, *, max_turns: int, max_asks: int, by: str,
    where: str,
) -> Logic[Conversation]:  # fmt: skip
    """The whole loop in one step, until the model asks for no tool. Calls that wait are settled first."""
    talk = yield from acted(talk, bench, where=where)
    for _ in range(max_turns):
        talk, reply = yield from turned(talk, question, max_asks=max_asks, by=by)
        if not reply.calls:
            return talk
        talk = yield from acted(talk, bench, where=_where(reply, talk))
    raise TurnsExhausted(
        f"The model asked for tools in {max_turns} turns of {by} and came to no answer. What was done so far is "
        f"settled and will not be done again. Raise max_turns, or ask for less; then `onward runs retry`."
    )


def turned(
    talk: Conversation, question: Question, *, max_asks: int, by: str
) -> Logic[tuple[Conversation, Reply]]:
    """One answer of the model."""
    _require_same_provider(talk, question, by)
    talk.require_settled(by=by)
    _require_users_turn(talk, by)
    reply: Reply = yield from asked(
        _asking(question, talk),
        _legal,
        what=f"its turn in a conversation of {by}",
        max_asks=max_asks,
    )
    return talk.with_reply(reply, provider=question.provider), reply


def acted(talk: Conversation, bench: Bench, *, where: str) -> Logic[Conversation]:
    """A result for each tool call that waits for one."""
    results = []
    for index, call in enumerate(talk.pending):
        results.append((yield from _settled(call, bench, name=call_name(where, index, call))))
    return talk.with_results(results) if results else talk


def _settled(call: ToolCall, bench: Bench, *, name: str) -> Logic[ToolResult]:
    try:
        tool, request = bench.requested(call)
    except ValueError as error:
        return ToolResult(call, f"Error: {error}", failed=True)
    try:
        result: Any = yield Invoke(tool, request, name)
    except Refused as refusal:
        return ToolResult(call, f"Refused: {one_line(str(refusal), limit=2000)}", failed=True)
    text, refused = told(tool, result)
    return ToolResult(call, f"Refused: {text}" if refused else text, failed=refused)


def _asking(question: Question, talk: Conversation) -> Question:
    return replace(question, messages=talk.messages, system=talk.system or question.system)


def _legal(reply: Reply) -> Reply:
    """Raises ``ValueError`` for an answer after which no transcript could be legal."""
    if reply.calls and reply.taken.state == "length":
        raise ValueError("it was cut off at its length limit while it asked for tools")
    if not reply.calls and not reply.text.strip():
        raise ValueError("there is neither text nor a tool call in it")
    ids = [call.id for call in reply.calls]
    if not all(ids) or len(set(ids)) < len(ids):
        raise ValueError("its tool calls do not have ids of their own")
    return reply


def _require_same_provider(talk: Conversation, question: Question, by: str) -> None:
    if talk.provider and talk.provider != question.provider:
        raise TranscriptIllegal(
            f"A conversation that {talk.provider} has answered cannot be sent to {question.provider}, which writes "
            f"tool calls in another way: nothing was sent by {by}. Go on with provider={talk.provider!r} (or "
            f"ONWARD_LLM_PROVIDER={talk.provider}), then `onward runs retry`."
        )


def _require_users_turn(talk: Conversation, by: str) -> None:
    if talk.turns and talk.messages[-1].get("role") == "assistant":
        raise TranscriptIllegal(
            f"The model has spoken last in the conversation that {by} goes on with: nothing was sent. Say something "
            f"first, with conversation.with_user(...)."
        )


def _where(reply: Reply, talk: Conversation) -> str:
    """Which answer of the step it is: some servers count tool calls anew in each."""
    place = reply.taken.place
    if place is None:
        return f"turn-{talk.turns}"
    return f"call{place.scope}-{place.position}"
