"""Graphs of the real framework: killed in a real worker, and refused."""

from typing import Any

import pytest
from langchain_core.tools import tool
from langgraph.prebuilt import ToolNode

from examples.adapters.desk import look_up, open_ticket
from tasks import Context
from tasks.adapters.langgraph import PURE_TOOL, as_function_tool, chat_model
from tasks.errors import CallNameNeeded, UndeclaredEffect
from tests.adapters.proof import AFTER, Desk
from tests.support.models import ModelService


@pytest.mark.parametrize("after", AFTER)
def test_killed_after_a_recorded_call_asks_nothing_twice(desk: Desk, after: str) -> None:
    desk.check("langgraph", after)


def test_a_graph_on_a_loop_that_streams_is_recorded_too(desk: Desk) -> None:
    desk.check("langgraph-on-a-loop", "each", step_key="on_a_loop")


def send_mail(to: str) -> str:
    """Send a mail."""
    raise AssertionError("sent")


@pytest.fixture
def ctx(models: ModelService, monkeypatch: pytest.MonkeyPatch) -> Context:
    monkeypatch.setenv("OPENAI_BASE_URL", models.url)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    return Context.for_test(call=lambda _tool, request: request.model_dump())


@pytest.mark.parametrize(
    "undeclared",
    [tool(send_mail), send_mail, {"type": "function", "function": {"name": "send_mail"}}],
    ids=["tool", "function", "definition"],
)
def test_an_undeclared_tool_is_refused_when_it_is_bound(ctx: Context, undeclared: object) -> None:
    model = chat_model(ctx, model="gpt-5", pure={"look_up"})

    with pytest.raises(UndeclaredEffect) as refused:
        model.bind_tools([look_up, as_function_tool(ctx, open_ticket), undeclared])

    assert "'send_mail'" in str(refused.value)
    assert "as_function_tool(ctx, YourTool())" in str(refused.value)


def test_a_tool_is_declared_pure_by_its_metadata(ctx: Context, models: ModelService) -> None:
    declared = tool(look_up)
    declared.metadata = PURE_TOOL
    models.script("hello", "hello yourself")

    model = chat_model(ctx, model="gpt-5").bind_tools([declared])

    assert model.invoke("hello").content == "hello yourself"


def _call(ctx: Context, arguments: dict[str, str], call_id: str) -> Any:
    node = as_function_tool(ctx, open_ticket)
    return node.invoke({"name": node.name, "args": arguments, "id": call_id, "type": "tool_call"})


def test_arguments_that_do_not_fit_are_told_to_the_model(ctx: Context) -> None:
    told = _call(ctx, {"order": "o-1"}, "call-1")

    assert told.status == "error"
    assert "invalid arguments" in told.content


def test_a_tool_call_without_an_id_is_not_made(ctx: Context) -> None:
    with pytest.raises(CallNameNeeded, match="without an id"):
        _call(ctx, {"order": "o-1", "text": "lost"}, "")


def test_a_tool_node_takes_the_tool(ctx: Context) -> None:
    assert "desk_open_ticket" in ToolNode([as_function_tool(ctx, open_ticket)]).tools_by_name
