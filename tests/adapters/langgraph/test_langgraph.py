"""Graphs of the real framework: killed in a real worker, and refused."""

from typing import Any, Literal

import pytest
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt

from examples.adapters.desk import Ticket, look_up, open_ticket
from tasks import Context
from tasks.adapters.langgraph import PURE_TOOL, as_function_tool, chat_model
from tasks.errors import CallNameNeeded, UndeclaredEffect
from tasks.llm import pure
from tasks.tools import Tool
from tests.adapters.proof import AFTER, Desk
from tests.support.models import ModelService


@pytest.mark.parametrize("after", AFTER)
def test_killed_after_a_recorded_call_asks_nothing_twice(desk: Desk, after: str) -> None:
    desk.check("langgraph", after)


def test_a_graph_on_a_loop_that_streams_is_recorded_too(desk: Desk) -> None:
    desk.check("langgraph-on-a-loop", "each", step_key="on_a_loop")


@pytest.mark.parametrize(
    ("label", "step_key"),
    [("langgraph-side-by-side", "side_by_side"), ("langgraph-tasks", "as_tasks")],
)
def test_branches_in_threads_are_told_apart_by_their_place(
    desk: Desk, label: str, step_key: str
) -> None:
    desk.check_side_by_side(label, step_key=step_key)


def send_mail(to: str) -> str:
    """Send a mail."""
    raise AssertionError("sent")


@pytest.fixture
def ctx(models: ModelService, monkeypatch: pytest.MonkeyPatch) -> Context:
    monkeypatch.setenv("OPENAI_BASE_URL", models.url)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("ONWARD_SECRET_OPENAI_API_KEY", "sk-of-a-test")

    def answer(tool: Tool[Any, Any], request: Any) -> Any:
        return request.model_dump() if tool is open_ticket else tool.execute(request, key="k")

    return Context.for_test(call=answer)


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


def test_what_a_server_says_of_its_tool_declares_nothing(ctx: Context) -> None:
    foreign = tool(send_mail)
    foreign.metadata = {"onward": "pure"}  # annotations of an MCP server end up there

    with pytest.raises(UndeclaredEffect, match="send_mail"):
        chat_model(ctx, model="gpt-5").bind_tools([foreign])


def test_tools_that_are_bound_as_plain_options_are_refused_too(
    ctx: Context, models: ModelService
) -> None:
    definition = {"type": "function", "function": {"name": "send_mail", "parameters": {}}}
    model = chat_model(ctx, model="gpt-5").bind(tools=[definition])

    with pytest.raises(UndeclaredEffect, match="send_mail"):
        model.invoke("write to ada")

    assert models.count() == 0


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_the_shape_of_an_answer_is_no_tool(
    ctx: Context, models: ModelService, method: Literal["json_schema", "function_calling"]
) -> None:
    model = chat_model(ctx, model="gpt-5").with_structured_output(Ticket, method=method)

    assert isinstance(model.invoke("which ticket?"), Ticket)
    assert models.count() == 1


def test_a_pure_function_is_a_tool_whose_answer_is_recorded(ctx: Context) -> None:
    node = as_function_tool(ctx, pure(look_up))
    call = {"name": node.name, "args": {"order": "o-1"}, "id": "call-1", "type": "tool_call"}

    assert "left the warehouse" in node.invoke(call).content


def test_a_graph_that_stops_for_a_person_goes_on_with_the_answer(
    ctx: Context, models: ModelService
) -> None:
    models.script("may I?", "yes, ask")
    model = chat_model(ctx, model="gpt-5")

    def ask(_: MessagesState) -> Any:
        said = model.invoke("may I?").content
        return {"messages": [("assistant", f"{said}: {interrupt('a person')}")]}

    graph = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    compiled = graph.compile(checkpointer=InMemorySaver())
    thread: Any = {"configurable": {"thread_id": ctx.run_id}}

    stopped = compiled.invoke({"messages": []}, thread)
    assert stopped["__interrupt__"][0].value == "a person"
    assert compiled.invoke(Command(resume="granted"), thread)["messages"][-1].content == (
        "yes, ask: granted"
    )


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
