"""A conversation as a value: what was said, and which tool calls still have no result.

It may be piped from step to step. Every verb leaves it legal or refuses: a provider takes no transcript in
which a tool call has no result, and an invented one would be worse.
"""

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict

from tasks.llm import chat, claude, legality
from tasks.llm.errors import TranscriptIllegal
from tasks.llm.values import Message, Reply, ToolCall, ToolResult


class Conversation(BaseModel):
    """What was said so far. Begin one with ``Conversation.begin("...")``; steps hand it on."""

    model_config = ConfigDict(frozen=True)

    messages: list[dict[str, Any]]
    system: str | None = None
    provider: str = ""  #: whose format the messages have; empty: nobody has answered yet
    model: str = ""  #: that answered last
    turns: int = 0  #: answers of the model
    answer: str | None = (
        None  #: the text of an answer that asks for no tool: the end, unless you go on
    )

    @classmethod
    def begin(cls, prompt: str | Iterable[Message], *, system: str | None = None) -> "Conversation":
        """A conversation that starts with a question, or with messages in the provider's format."""
        said = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
        return cls(messages=said, system=system)

    @property
    def pending(self) -> tuple[ToolCall, ...]:
        """The tool calls of the last answer that have no result yet."""
        return legality.waiting(self.messages)

    def with_reply(self, reply: Reply, *, provider: str) -> "Conversation":
        """The model has said something."""
        return self.model_copy(
            update={
                "messages": [*self.messages, reply.message],
                "provider": provider,
                "model": reply.model,
                "turns": self.turns + 1,
                "answer": None if reply.calls else reply.text,
            }
        )

    def with_results(self, results: Iterable[ToolResult]) -> "Conversation":
        """Every pending call has a result. Raises ``TranscriptIllegal`` unless each has exactly one."""
        given = list(results)
        wanted, got = [call.id for call in self.pending], [one.call.id for one in given]
        if sorted(wanted) != sorted(got):
            raise TranscriptIllegal(
                f"The model waits for results of the calls {', '.join(wanted) or '(none)'}, and there are results "
                f"of {', '.join(got) or '(none)'}: each call needs exactly one."
            )
        anthropics = self.provider == "anthropic" or legality.is_anthropics(self.messages)
        written: list[Message] = (claude if anthropics else chat).results(given)
        return self.model_copy(update={"messages": [*self.messages, *written]})

    def with_user(self, text: str) -> "Conversation":
        """The user says something more."""
        self.require_settled()
        return self.model_copy(
            update={"messages": legality.with_user(self.messages, text), "answer": None}
        )

    def require_settled(self, *, by: str = "") -> None:
        """Raise ``TranscriptIllegal`` for what no provider would take. ``by``: whose conversation it is."""
        whose = f" by {by}" if by else ""
        if waiting := [call.id for call in self.pending]:
            raise TranscriptIllegal(
                f"The model waits for results of {', '.join(waiting)}: nothing was sent{whose}. Settle them first, "
                f"with ctx.llm.act(conversation, tools=...)."
            )
        if problem := legality.broken(self.messages):
            raise TranscriptIllegal(
                f"In the conversation there is {problem}: nothing was sent{whose}, since no provider takes it. "
                f"Messages from elsewhere need one result for each call, right after it."
            )
