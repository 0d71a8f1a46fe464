"""Agents of the real framework: killed in a real worker, and refused."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    DeferredToolResults,
    TextOutput,
    ToolOutput,
    UserError,
)
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from examples.adapters.desk import Ticket, look_up, open_ticket
from tasks import Context
from tasks.adapters.pydantic_ai import PURE_TOOL, durable, onward_model, toolset
from tasks.errors import CallNameNeeded, UndeclaredEffect
from tests.adapters.proof import AFTER, Desk
from tests.support.models import Answer, ModelService


@pytest.mark.parametrize("after", AFTER)
def test_killed_after_a_recorded_call_asks_nothing_twice(desk: Desk, after: str) -> None:
    desk.check("pydantic-ai", after)


def test_streams_over_a_client_of_the_agents_own_are_recorded_too(desk: Desk) -> None:
    desk.check("pydantic-ai-streamed", "each", step_key="streamed")


def send_mail(to: str) -> str:
    """Send a mail."""
    raise AssertionError("sent")


@pytest.fixture
def ctx(models: ModelService, monkeypatch: pytest.MonkeyPatch) -> Context:
    monkeypatch.setenv("OPENAI_BASE_URL", models.url)
    monkeypatch.setenv("ONWARD_SECRET_OPENAI_API_KEY", "sk-of-a-test")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    return Context.for_test(call=lambda _tool, request: request.model_dump())


def test_an_undeclared_tool_is_refused_before_the_first_request(
    ctx: Context, models: ModelService
) -> None:
    agent = _agent(look_up, send_mail)

    with durable(ctx, agent, pure={"look_up"}), pytest.raises(UndeclaredEffect) as refused:
        agent.run_sync("write to ada")

    assert "'send_mail'" in str(refused.value)
    assert "as_function_tool(ctx, YourTool())" in str(refused.value)
    assert models.count() == 0


def _agent(*tools: Callable[..., str]) -> Agent[None, str]:
    return Agent("openai-chat:gpt-5", tools=tools, defer_model_check=True)


async def _streamed(agent: Agent[None, str]) -> None:
    async with agent.run_stream("write to ada"):
        pass


def test_it_is_refused_in_a_stream_too(ctx: Context, models: ModelService) -> None:
    agent = _agent(send_mail)

    with durable(ctx, agent), pytest.raises(UndeclaredEffect):
        asyncio.run(_streamed(agent))

    assert models.count() == 0


def test_what_a_server_says_of_its_tool_declares_nothing(
    ctx: Context, models: ModelService
) -> None:
    agent = _agent()
    agent.tool_plain(metadata={"onward": "pure"})(send_mail)

    with durable(ctx, agent), pytest.raises(UndeclaredEffect, match="send_mail"):
        agent.run_sync("write to ada")

    assert models.count() == 0


@pytest.mark.parametrize(
    "output", [send_mail, [str, send_mail], ToolOutput(send_mail), [TextOutput(send_mail)]]
)
def test_a_function_that_ends_the_run_is_a_tool_as_well(ctx: Context, output: Any) -> None:
    agent: Agent[None, Any] = Agent("openai-chat:gpt-5", output_type=output, defer_model_check=True)

    with pytest.raises(UndeclaredEffect, match="send_mail"), durable(ctx, agent):
        pass
    with durable(ctx, agent, pure={"send_mail"}):
        pass


def test_servers_that_count_their_calls_anew_are_understood(ctx: Context) -> None:
    opened: list[str] = []

    def ask(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        number = len(messages) // 2
        if number == 2:
            return ModelResponse(parts=[TextPart("done")])
        ticket = {"order": f"o-{number}", "text": "lost"}
        return ModelResponse(parts=[ToolCallPart("desk_open_ticket", ticket, "call_0")])

    def answer(_tool: object, request: Ticket) -> dict[str, str]:
        opened.append(request.order)
        return {"opened": request.order}

    ctx = Context.for_test(call=answer)
    agent = Agent(FunctionModel(ask))
    with durable(ctx, agent):
        run = agent.run_sync("two tickets", toolsets=[toolset(ctx, open_ticket)])

    assert run.output == "done"
    assert opened == ["o-0", "o-1"]


def test_an_agent_that_stops_for_a_person_goes_on_with_the_answer(
    ctx: Context, models: ModelService
) -> None:
    agent: Agent[None, Any] = Agent(
        "openai-chat:gpt-5", output_type=[str, DeferredToolRequests], defer_model_check=True
    )
    agent.tool_plain(requires_approval=True, metadata=PURE_TOOL)(look_up)
    call = {"name": "look_up", "arguments": {"order": "o-1"}}
    models.script("o-1", Answer(tool_calls=(call,)), "found")

    with durable(ctx, agent):
        stopped = agent.run_sync("o-1")
        granted = {one.tool_call_id: True for one in stopped.output.approvals}
        end = agent.run_sync(
            message_history=stopped.all_messages(),
            deferred_tool_results=DeferredToolResults(approvals=dict(granted)),
        )

    assert len(granted) == 1
    assert end.output == "found"
    assert models.rejected() == []


def test_a_tool_is_declared_pure_where_it_is_registered(ctx: Context, models: ModelService) -> None:
    agent = _agent()
    agent.tool_plain(metadata=PURE_TOOL)(look_up)
    models.script("hello", "hello yourself")

    with durable(ctx, agent):
        assert agent.run_sync("hello").output == "hello yourself"


def test_arguments_that_do_not_fit_are_told_to_the_model(
    ctx: Context, models: ModelService
) -> None:
    agent = _agent()
    wrong, right = {"order": "o-1"}, {"order": "o-1", "text": "lost"}
    name = "desk_open_ticket"
    models.script(
        "o-1",
        Answer(tool_calls=({"name": name, "arguments": wrong},)),
        Answer(tool_calls=({"name": name, "arguments": right},)),
        "done",
    )

    with durable(ctx, agent):
        run = agent.run_sync("o-1", toolsets=[toolset(ctx, open_ticket)])

    assert run.output == "done"
    assert "text" in models.calls("o-1")[1].text
    assert models.rejected() == []


def test_a_tool_call_without_an_id_of_the_providers_is_not_made(ctx: Context) -> None:
    ticket = Ticket(order="o-1", text="lost").model_dump()

    def ask(_messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[ToolCallPart("desk_open_ticket", ticket)])

    agent = Agent(FunctionModel(ask))
    with durable(ctx, agent), pytest.raises(CallNameNeeded, match="without an id"):
        agent.run_sync("o-1", toolsets=[toolset(ctx, open_ticket)])


def test_models_that_send_nothing_stay_what_they_are(ctx: Context) -> None:
    agent = _agent()

    answer = agent.run_sync("hello", model=onward_model(ctx, TestModel(custom_output_text="hi")))

    assert answer.output == "hi"


def test_an_agent_without_a_model_is_told_so(ctx: Context) -> None:
    with pytest.raises(UserError, match="no model"), durable(ctx, Agent()):
        pass
