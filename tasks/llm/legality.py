"""What a provider takes as a transcript, whichever way it is written: every tool call has one result, at once.

A transcript that is against this is refused before it is sent: each later request would be rejected too.
"""

from collections.abc import Sequence

from tasks.llm import chat, claude
from tasks.llm.values import Message, ToolCall


def waiting(messages: Sequence[Message]) -> tuple[ToolCall, ...]:
    """The tool calls of the last answer that have no result yet."""
    answered: set[str] = set()
    for message in reversed(messages):
        if message.get("role") == "assistant":
            return tuple(call for call in _calls(message) if call.id not in answered)
        answered.update(_answered(message))
    return ()


def broken(messages: Sequence[Message]) -> str | None:
    """What no provider would take, leaving aside calls that wait at the end; None: nothing."""
    open_calls: list[str] = []
    for message in messages:
        results = _answered(message)
        for one in results:
            if one not in open_calls:
                return f"a result for {one!r}, which no call before it waits for"
            open_calls.remove(one)
        if open_calls and not results:
            return f"no result for {', '.join(open_calls)}"
        calls = [call.id for call in _calls(message)]
        if open_calls and calls:
            return f"no result for {', '.join(open_calls)}"
        if len(set(calls)) < len(calls):
            return f"two calls of one id: {', '.join(calls)}"
        open_calls += calls
    return None


def is_anthropics(messages: Sequence[Message]) -> bool:
    """Whether the last calls in it are written as Anthropic writes them."""
    spoken = (one for one in reversed(messages) if one.get("role") == "assistant")
    return bool(claude.calls_in(next(spoken, {})))


def with_user(messages: Sequence[Message], text: str) -> list[Message]:
    """The user says something more: in the turn that is the user's already, since two in a row are refused."""
    *before, last = messages or [{}]
    if last.get("role") != "user":
        return [*messages, {"role": "user", "content": text}]
    content = last.get("content")
    if isinstance(content, list):
        return [*before, {**last, "content": [*content, {"type": "text", "text": text}]}]
    return [*before, {**last, "content": f"{content}\n\n{text}"}]


def _calls(message: Message) -> tuple[ToolCall, ...]:
    if message.get("role") != "assistant":
        return ()
    return chat.calls_in(message) + claude.calls_in(message)


def _answered(message: Message) -> tuple[str, ...]:
    return chat.answered_in(message) + claude.answered_in(message)
