"""The graph of the example, killed after each of its calls; and its like on a loop, streaming."""

from langchain_core.tools import tool
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


desk = killed_after_each_call("langgraph", answer)
other = killed_after_each_call("langgraph-on-a-loop", on_a_loop, when=("each",))
