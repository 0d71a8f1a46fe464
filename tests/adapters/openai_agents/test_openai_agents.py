"""Agents of the real SDK: killed in a real worker, and refused."""

import asyncio
from typing import Any

import httpx2
import pytest
from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    Runner,
    UserError,
    function_tool,
    set_default_openai_responses_transport,
)
from openai import AsyncOpenAI

from examples.adapters.desk import look_up, open_ticket
from tasks import Context
from tasks.adapters.openai_agents import as_function_tool, run_config
from tasks.adapters.openai_sdk import async_openai_client
from tasks.errors import UndeclaredEffect
from tests.adapters.proof import AFTER, Desk
from tests.support.models import Answer, ModelService


@pytest.mark.parametrize("after", AFTER)
def test_killed_after_a_recorded_call_asks_nothing_twice(desk: Desk, after: str) -> None:
    desk.check("openai-agents", after)


def test_streams_of_chat_completions_are_recorded_too(desk: Desk) -> None:
    desk.check("openai-agents-streamed", "each", step_key="streamed")


def send_mail(to: str) -> str:
    """Send a mail."""
    raise AssertionError("sent")


@pytest.fixture
def ctx(models: ModelService, monkeypatch: pytest.MonkeyPatch) -> Context:
    monkeypatch.setenv("OPENAI_BASE_URL", models.url)
    monkeypatch.setenv("ONWARD_SECRET_OPENAI_API_KEY", "sk-of-a-test")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    return Context.for_test(call=lambda _tool, request: request.model_dump())


def _agent(*tools: object) -> Agent[None]:
    return Agent(name="desk", model="gpt-5", tools=list(tools))


def test_an_undeclared_tool_is_refused_before_the_first_request(
    ctx: Context, models: ModelService
) -> None:
    agent = _agent(function_tool(look_up), function_tool(send_mail))

    with pytest.raises(UndeclaredEffect) as refused:
        Runner.run_sync(agent, "write to ada", run_config=run_config(ctx, pure={"look_up"}))

    assert "'send_mail'" in str(refused.value)
    assert "as_function_tool(ctx, YourTool())" in str(refused.value)
    assert models.count() == 0


async def _streamed(agent: Agent[None], ctx: Context) -> None:
    async for _ in Runner.run_streamed(agent, "hi", run_config=run_config(ctx)).stream_events():
        pass


def test_it_is_refused_in_a_stream_too(ctx: Context, models: ModelService) -> None:
    with pytest.raises(UndeclaredEffect):
        asyncio.run(_streamed(_agent(function_tool(send_mail)), ctx))
    assert models.count() == 0


def test_an_agent_that_is_a_tool_inherits_the_recorder(ctx: Context, models: ModelService) -> None:
    inner = _agent(function_tool(send_mail))
    outer = _agent(inner.as_tool("ask_the_other", "Asks the other one."))
    models.script(
        "please", Answer(tool_calls=({"name": "ask_the_other", "arguments": {"input": "write"}},))
    )

    with pytest.raises(UndeclaredEffect, match="send_mail"):
        Runner.run_sync(outer, "please", run_config=run_config(ctx, pure={"ask_the_other"}))


def test_a_model_object_of_the_agents_own_is_refused(ctx: Context, models: ModelService) -> None:
    own = OpenAIChatCompletionsModel("gpt-5", async_openai_client(ctx))
    agent = Agent(name="desk", model=own)

    with pytest.raises(UserError, match="would not be recorded"):
        Runner.run_sync(agent, "hello", run_config=run_config(ctx))

    assert models.count() == 0


def test_one_for_the_whole_run_is_refused_too(ctx: Context) -> None:
    own = OpenAIChatCompletionsModel("gpt-5", AsyncOpenAI(api_key="sk-of-its-own"))

    with pytest.raises(UserError, match="would not be recorded"):
        run_config(ctx, model=own)


def test_names_of_models_with_clients_of_their_own_are_refused(ctx: Context) -> None:
    agent = Agent(name="desk", model="litellm/some-model")

    with pytest.raises(UserError, match="would not be recorded"):
        Runner.run_sync(agent, "hello", run_config=run_config(ctx))


def test_a_client_of_the_callers_sends_through_the_recorder(
    ctx: Context, models: ModelService
) -> None:
    def elsewhere(_request: httpx2.Request) -> httpx2.Response:
        raise AssertionError("sent past the recorder")

    transport = httpx2.MockTransport(elsewhere)
    own = AsyncOpenAI(
        api_key="sk-of-its-own",
        base_url=models.url,
        http_client=httpx2.AsyncClient(transport=transport),
    )
    models.script("hello", "hello yourself")
    agent = Agent(name="desk", model="openai/gpt-5")

    run = Runner.run_sync(agent, "hello", run_config=run_config(ctx, client=own))

    assert run.final_output == "hello yourself"
    assert "sk-of-its-own" in models.calls("hello")[0].headers
    assert models.calls("hello")[0].model == "gpt-5"


def test_what_the_sdk_would_send_by_websocket_is_sent_by_http(
    ctx: Context, models: ModelService
) -> None:
    models.script("hello", "hello yourself")
    set_default_openai_responses_transport("websocket")
    try:
        run = Runner.run_sync(_agent(), "hello", run_config=run_config(ctx))
    finally:
        set_default_openai_responses_transport("http")

    assert run.final_output == "hello yourself"
    assert models.count("hello") == 1


def test_an_agent_that_stops_for_a_person_goes_on_with_the_answer(
    ctx: Context, models: ModelService
) -> None:
    agent = _agent(function_tool(look_up, needs_approval=True))
    call = {"name": "look_up", "arguments": {"order": "o-1"}}
    models.script("o-1", Answer(tool_calls=(call,)), "found")

    async def both() -> Any:
        config = run_config(ctx, pure={"look_up"})
        stopped = await Runner.run(agent, "o-1", run_config=config)
        (asked,) = stopped.interruptions
        state = stopped.to_state()
        state.approve(asked)
        return await Runner.run(agent, state, run_config=config)

    end = asyncio.run(both())

    assert end.final_output == "found"
    assert models.rejected() == []


def test_arguments_that_do_not_fit_are_told_to_the_model(
    ctx: Context, models: ModelService
) -> None:
    agent = _agent(as_function_tool(ctx, open_ticket))
    wrong, right = {"order": "o-1"}, {"order": "o-1", "text": "lost"}
    name = "desk_open_ticket"
    models.script(
        "o-1",
        Answer(tool_calls=({"name": name, "arguments": wrong},)),
        Answer(tool_calls=({"name": name, "arguments": right},)),
        "done",
    )

    run = Runner.run_sync(agent, "o-1", run_config=run_config(ctx))

    assert run.final_output == "done"
    assert "invalid arguments" in models.calls("o-1")[1].text
    assert models.rejected() == []
