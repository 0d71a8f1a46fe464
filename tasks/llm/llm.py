"""``ctx.llm``: typed questions to a model, texts, conversations with tools, long answers in the background.

What came back is *suggested*; only what passed the schema and the caller's check is *accepted* and reaches the
step. Another attempt gets the recorded answers: nothing that was answered is asked, or paid for, again.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from pydantic import BaseModel

from models.settings import settings
from tasks.context import Context
from tasks.llm import talking
from tasks.llm.asking import Logic, Read, as_text, asked, require_no_calls, sent
from tasks.llm.background import awaited
from tasks.llm.conversation import Conversation
from tasks.llm.driving import adrive, drive
from tasks.llm.errors import NotConfigured
from tasks.llm.forms import Check, form_of, parse, verdict_of
from tasks.llm.performing import Performer
from tasks.llm.standing_in import AnswerWith
from tasks.llm.tooling import bench
from tasks.llm.values import Message, Question, Reply

A = TypeVar("A", bound=BaseModel)
T = TypeVar("T")

MAX_ASKS, MAX_TURNS = 3, 12
POLL_EVERY = 15.0  #: seconds


class LLM:
    """The models that one step may ask."""

    #: What every question may say beside its words; anything else is a sampling parameter of the provider.
    #:
    #: ``messages`` instead of a prompt, in the provider's format; ``system``; ``model`` (``ONWARD_LLM_MODEL``);
    #: ``provider`` (``ONWARD_LLM_PROVIDER``); ``pin``, a pattern for the model that answers (``gpt-x-*``), by
    #: default exactly the one asked for; ``accept_length``, take an answer that ends at the length limit;
    #: ``on_chunk``, gets the text while it comes (a suggestion, and nothing when it is replayed); ``headers``,
    #: sent, and no part of what is asked.

    def __init__(self, ctx: Context, *, answer: AnswerWith | None = None) -> None:
        """``answer`` stands in for the models: ``Context.for_test(llm=...)``."""
        self._performer = Performer(ctx, answer)
        self._by = f"step {ctx.step_key!r} of run {ctx.run_id}"

    def ask(
        self, output: type[A], prompt: str | None = None, *, check: Check[A] | None = None,
        max_asks: int = MAX_ASKS, **asking: Any,
    ) -> A:  # fmt: skip
        """One typed answer: ``ctx.llm.ask(Risks, prompt, check=quotes_the_contract)``.

        ``check`` raises ``ValueError``, or returns False or a reason, to reject an answer. A rejected one is
        asked for again with the reason, an incomplete one in the same words, together at most ``max_asks``
        times over all attempts; then ``SchemaInvalid`` (or ``AnswerIncomplete``) fails the step for good.
        """
        return self._run(self._typed(output, prompt, check=check, max_asks=max_asks, asking=asking))

    async def aask(
        self, output: type[A], prompt: str | None = None, *, check: Check[A] | None = None,
        max_asks: int = MAX_ASKS, **asking: Any,
    ) -> A:  # fmt: skip
        """``ask``, awaited."""
        return await self._arun(
            self._typed(output, prompt, check=check, max_asks=max_asks, asking=asking)
        )

    def text(
        self, prompt: str | None = None, *, check: Check[Any] | None = None,
        max_asks: int = MAX_ASKS, **asking: Any,
    ) -> str:  # fmt: skip
        """An answer in plain text."""
        return self._run(self._plain(prompt, check, max_asks, asking))

    async def atext(
        self, prompt: str | None = None, *, check: Check[Any] | None = None,
        max_asks: int = MAX_ASKS, **asking: Any,
    ) -> str:  # fmt: skip
        """``text``, awaited."""
        return await self._arun(self._plain(prompt, check, max_asks, asking))

    def converse(
        self, talk: Conversation | str | Iterable[Message], *, tools: Iterable[Any] = (),
        max_turns: int = MAX_TURNS, max_asks: int = MAX_ASKS, **asking: Any,
    ) -> Conversation:  # fmt: skip
        """A conversation with tools to its end, within this step.

        ``tools``: instances of ``Tool``, or functions marked ``@pure``. Each call of one goes through the
        ledger (``ctx.call``): it happens once over all attempts, and while it is in doubt the step ends.
        """
        return self._run(self._loop(talk, tools, max_turns, max_asks, asking))

    async def aconverse(
        self, talk: Conversation | str | Iterable[Message], *, tools: Iterable[Any] = (),
        max_turns: int = MAX_TURNS, max_asks: int = MAX_ASKS, **asking: Any,
    ) -> Conversation:  # fmt: skip
        """``converse``, awaited."""
        return await self._arun(self._loop(talk, tools, max_turns, max_asks, asking))

    def background(
        self, output: type[A], prompt: str | None = None, *, check: Check[A] | None = None,
        max_asks: int = MAX_ASKS, poll_every: float = POLL_EVERY, **asking: Any,
    ) -> A:  # fmt: skip
        """``ask`` for an answer that takes minutes or hours (OpenAI's responses with ``background``).

        The provider's id of it is recorded, and the step waits without a worker: it comes back every
        ``poll_every`` seconds to look. Put it first in its step: what is before it runs at each look.
        """
        logic = self._typed(
            output, prompt, check=check, max_asks=max_asks, asking={**asking, "provider": "openai"},
            send=partial(awaited, poll_every=poll_every),
        )  # fmt: skip
        return self._run(logic)

    async def abackground(
        self, output: type[A], prompt: str | None = None, *, check: Check[A] | None = None,
        max_asks: int = MAX_ASKS, poll_every: float = POLL_EVERY, **asking: Any,
    ) -> A:  # fmt: skip
        """``background`` for ``async def`` steps: each look is one short request, made in place."""
        logic = self._typed(
            output, prompt, check=check, max_asks=max_asks, asking={**asking, "provider": "openai"},
            send=partial(awaited, poll_every=poll_every),
        )  # fmt: skip
        return await self._arun(logic)

    def think(
        self, talk: Conversation, *, tools: Iterable[Any] = (), max_asks: int = MAX_ASKS, **asking: Any
    ) -> Conversation:  # fmt: skip
        """One answer of the model, for a conversation that is kept as steps.

        @step(kind="llm")
        def think(ctx, talk: Conversation) -> Conversation | Then[Conversation]:
            talk = ctx.llm.think(talk, tools=TOOLS)
            return Then(talk, act.s() | think.s()) if talk.pending else talk

        @step(kind="write")
        def act(ctx, talk: Conversation) -> Conversation:
            return ctx.llm.act(talk, tools=TOOLS)
        """
        return self._run(self._turn(talk, tools, max_asks, asking))

    async def athink(
        self, talk: Conversation, *, tools: Iterable[Any] = (), max_asks: int = MAX_ASKS, **asking: Any
    ) -> Conversation:  # fmt: skip
        """``think``, awaited."""
        return await self._arun(self._turn(talk, tools, max_asks, asking))

    def act(self, talk: Conversation, *, tools: Iterable[Any]) -> Conversation:
        """A result for each tool call that the last answer asks for, from the ledger or from the tool."""
        return self._run(talking.acted(talk, bench(tools), where=self._where(talk)))

    async def aact(self, talk: Conversation, *, tools: Iterable[Any]) -> Conversation:
        """``act``, awaited."""
        return await self._arun(talking.acted(talk, bench(tools), where=self._where(talk)))

    def _where(self, talk: Conversation) -> str:
        """Under which name calls are settled that wait in a conversation: two scopes may have one each."""
        return f"turn-{talk.turns}{self._performer.scope()}"

    def _typed(
        self, output: type[A], prompt: str | None, *, check: Check[A] | None, max_asks: int,
        asking: Mapping[str, Any], send: Callable[[Question], Logic[Reply]] = sent,
    ) -> Logic[A]:  # fmt: skip
        question = replace(self._question(prompt, asking), form=form_of(output))
        return asked(
            question,
            _typed_answer(output, check),
            what=f"{output.__name__} by {self._by}",
            max_asks=max_asks,
            send=send,
        )

    def _plain(
        self, prompt: str | None, check: Check[Any] | None, max_asks: int, asking: Mapping[str, Any]
    ) -> Logic[str]:
        question = self._question(prompt, asking)
        what = f"a text by {self._by}"
        return asked(question, _text_answer(check), what=what, max_asks=max_asks)

    def _loop(
        self, talk: Conversation | str | Iterable[Message], tools: Iterable[Any], max_turns: int,
        max_asks: int, asking: Mapping[str, Any],
    ) -> Logic[Conversation]:  # fmt: skip
        begun = talk if isinstance(talk, Conversation) else Conversation.begin(talk)
        tools_by_name = bench(tools)
        question = replace(self._question("", asking), tools=tools_by_name.offers)
        return talking.conversed(
            begun, tools_by_name, question, max_turns=max_turns, max_asks=max_asks, by=self._by,
            where=self._where(begun),
        )  # fmt: skip

    def _turn(
        self, talk: Conversation, tools: Iterable[Any], max_asks: int, asking: Mapping[str, Any]
    ) -> Logic[Conversation]:
        question = replace(self._question("", asking), tools=bench(tools).offers)
        return _first(talking.turned(talk, question, max_asks=max_asks, by=self._by))

    def _question(self, prompt: str | None, given: Mapping[str, Any]) -> Question:
        """What is asked, with the defaults of the settings."""
        sampling = dict(given)
        messages, provider = sampling.pop("messages", None), sampling.pop("provider", None)
        if (prompt is None) == (messages is None):
            raise TypeError("ask takes a prompt or messages=[...], and not both")
        return Question(
            provider=provider or settings().llm_provider,
            model=sampling.pop("model", None) or self._model(),
            messages=list(messages) if messages is not None else [_said(prompt)],
            system=sampling.pop("system", None),
            response_format=settings().llm_response_format,
            pin=sampling.pop("pin", None) or settings().llm_pin or None,
            accept_length=sampling.pop("accept_length", False),
            on_chunk=sampling.pop("on_chunk", None),
            headers=sampling.pop("headers", None) or {},
            sampling=sampling,
        )

    def _model(self) -> str:
        if settings().llm_model:
            return settings().llm_model
        if self._performer.answer is not None:
            return "model-under-test"
        raise NotConfigured(
            f"ctx.llm does not know which model {self._by} is to ask: set ONWARD_LLM_MODEL, or give model=... with "
            f"the question; then `onward runs retry`."
        )

    def _run(self, logic: Logic[T]) -> T:
        return drive(logic, self._performer.perform)

    async def _arun(self, logic: Logic[T]) -> T:
        return await adrive(logic, self._performer.aperform)


def _typed_answer(output: type[A], check: Check[A] | None) -> Read[A]:
    def read(reply: Reply) -> A:
        require_no_calls(reply.calls)
        value = parse(output, reply.text)
        return _checked(value, check, is_accepted=reply.taken.verdict == "accepted")

    return read


def _text_answer(check: Check[Any] | None) -> Read[str]:
    def read(reply: Reply) -> str:
        return _checked(as_text(reply), check, is_accepted=reply.taken.verdict == "accepted")

    return read


def _checked(value: T, check: Check[Any] | None, *, is_accepted: bool) -> T:
    """The value, unless the check rejects it. One that was accepted stays so, whatever the check says now."""
    reason = None if is_accepted else verdict_of(check, value)
    if reason is not None:
        raise ValueError(reason)
    return value


def _first(turn: Logic[tuple[Conversation, Reply]]) -> Logic[Conversation]:
    talk, _ = yield from turn
    return talk


def _said(prompt: str | None) -> Message:
    return {"role": "user", "content": prompt}
