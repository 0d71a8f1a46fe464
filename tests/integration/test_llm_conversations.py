"""Conversations with tools over a real journal: the ledger's results, and nobody else's, reach the model."""

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from models.journal.values import Claimed
from tasks import Context, Refused, Unanswered
from tasks.errors import EffectUnknown
from tasks.llm import Conversation, pure
from tasks.recorder.scopes import new_loop
from tests.support.desk import DESK, Queryable, raises
from tests.support.intents import again, at_work
from tests.support.journal import Journal
from tests.support.models import Answer, ModelService
from tests.support.recording import attempt, configured, next_attempt

PROVIDERS = ("openai", "anthropic")
READ: list[str] = []


@pure
def read(page: str) -> str:
    """One page."""
    READ.append(page)
    return f"{page}, read {len(READ)} times"


@pytest.fixture(params=PROVIDERS)
def claimed(
    request: pytest.FixtureRequest, journal: Journal, models: ModelService
) -> Iterator[Claimed]:
    DESK.reset()
    READ.clear()
    with configured(
        ONWARD_LLM_BASE_URL=models.url, ONWARD_LLM_MODEL="gpt-x", ONWARD_LLM_PROVIDER=request.param
    ):
        yield at_work()


TOOLS = [read, Queryable()]


def wants(*calls: tuple[str, dict[str, Any]]) -> Answer:
    """An answer that asks for tools, under ids that a server may give again in its next answer."""
    return Answer(
        tool_calls=tuple(
            {"name": name, "arguments": arguments, "id": f"call_{number}"}
            for number, (name, arguments) in enumerate(calls)
        )
    )


def test_a_finished_conversation_is_given_again_whole(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    both = wants(("read", {"page": "A"}), ("desk_queryable", {"servers": 3}))
    models.script("begin", both, wants(("desk_queryable", {"servers": 5})), "Done.")
    with attempt(claimed) as ctx:
        first = ctx.llm.converse("begin", tools=TOOLS)
    assert first.answer == "Done."
    with next_attempt(journal, claimed) as ctx:
        assert ctx.llm.converse("begin", tools=TOOLS) == first
    assert models.count("begin") == 3
    assert models.rejected() == []
    assert READ == ["A"]
    assert [request.servers for _, request in DESK.calls] == [3, 5]
    assert len({key for key, _ in DESK.calls}) == 2


def test_in_doubt_the_model_is_told_nothing(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    DESK.then(raises(Unanswered("no answer")))
    models.script("begin", wants(("read", {"page": "A"}), ("desk_queryable", {})), "Done.")
    with attempt(claimed) as ctx, pytest.raises(EffectUnknown):
        ctx.llm.converse("begin", tools=TOOLS)
    assert models.count("begin") == 1


def test_a_refusal_is_told_and_stands(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    DESK.then(raises(Refused("not on a Sunday")))
    models.script("begin", wants(("desk_queryable", {})), "Then not.")
    with attempt(claimed) as ctx:
        first = ctx.llm.converse("begin", tools=TOOLS)
    with next_attempt(journal, claimed) as ctx:
        assert ctx.llm.converse("begin", tools=TOOLS) == first
    assert len(DESK.calls) == 1
    assert "not on a Sunday" in str(first.messages)
    assert models.rejected() == []


def test_turns_as_steps_go_on_from_each_others_results(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    models.script("begin", wants(("desk_queryable", {"servers": 3}), ("unheard", {})), "Done.")
    with attempt(claimed) as ctx:
        thought = ctx.llm.think(Conversation.begin("begin"), tools=TOOLS)
        acted = ctx.llm.act(thought, tools=TOOLS)
        ended = ctx.llm.think(acted, tools=TOOLS)
    assert ended.answer == "Done."
    with next_attempt(journal, claimed) as ctx:
        assert ctx.llm.think(Conversation.begin("begin"), tools=TOOLS) == thought
        assert ctx.llm.act(thought, tools=TOOLS) == acted
        assert ctx.llm.think(acted, tools=TOOLS) == ended
    assert len(DESK.calls) == 1
    assert models.count("begin") == 2


def test_concurrent_conversations_keep_their_tools_apart(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    models.script("order 1", wants(("desk_queryable", {"servers": 1})), "One.")
    models.script("order 2", wants(("desk_queryable", {"servers": 2})), "Two.")

    async def body(ctx: Context) -> list[Conversation]:
        ctx.enter_task()
        both = (ctx.llm.aconverse(f"order {number}", tools=TOOLS) for number in (1, 2))
        return await asyncio.gather(*both)

    with attempt(claimed) as ctx:
        first = run(body(ctx))
    with attempt(again(journal, claimed)) as ctx:
        assert run(body(ctx)) == first
    assert [one.answer for one in first] == ["One.", "Two."]
    assert sorted(request.servers for _, request in DESK.calls) == [1, 2]
    assert models.rejected() == []


def run(body: Coroutine[Any, Any, list[Conversation]]) -> list[Conversation]:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(body)
