"""The graph of the example, killed after each of its calls; its like on a loop; and branches side by side."""

from typing import TypedDict

from langchain_core.tools import tool
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from examples.adapters.desk import look_up, open_ticket
from examples.adapters.langgraph import answer
from tasks import Context, step
from tasks.adapters.langgraph import as_function_tool, chat_model
from tests.adapters.killing import killed_after_each_call


@step
async def on_a_loop(ctx: Context, question: str) -> str:
    tools = [tool(look_up), as_function_tool(ctx, open_ticket)]
    model = chat_model(ctx, model="gpt-5", pure={"look_up"}, streaming=True).bind_tools(tools)

    async def ask(state: MessagesState) -> dict[str, object]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", ask)
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    end = await graph.compile().ainvoke({"messages": [("user", question)]})
    return str(end["messages"][-1].content)


class Sides(TypedDict, total=False):
    """What the nodes found."""

    left: str
    right: str
    both: str


def ask_both(ctx: Context, question: str) -> str:
    """The left and the right asked about in nodes side by side."""
    model = chat_model(ctx, model="gpt-5")

    def say(side: str) -> str:
        return str(model.invoke(f"{side} of {question}").content)

    graph = StateGraph(Sides)
    graph.add_node("ask_left", lambda _: {"left": say("left")})
    graph.add_node("ask_right", lambda _: {"right": say("right")})
    graph.add_node("ask_both", lambda _: {"both": say("both")})
    graph.add_edge(START, "ask_left")
    graph.add_edge(START, "ask_right")
    graph.add_edge(["ask_left", "ask_right"], "ask_both")
    end = graph.compile().invoke({})
    return f"{end['left']}, {end['right']}: {end['both']}"


@step
def side_by_side(ctx: Context, question: str) -> str:
    return ask_both(ctx, question)


@step
def as_tasks(ctx: Context, question: str) -> str:
    model = chat_model(ctx, model="gpt-5", streaming=True)

    @task
    def say(side: str) -> str:
        return str(model.invoke(f"{side} of {question}").content)

    @entrypoint()
    def both(_: str) -> str:
        left, right = say("left"), say("right")
        return f"{left.result()}, {right.result()}: {say('both').result()}"

    return str(both.invoke(question))


desk = killed_after_each_call("langgraph", answer)
other = killed_after_each_call("langgraph-on-a-loop", on_a_loop, when=("each",))
sides = killed_after_each_call("langgraph-side-by-side", side_by_side, when=("each",))
in_tasks = killed_after_each_call("langgraph-tasks", as_tasks, when=("each",))
