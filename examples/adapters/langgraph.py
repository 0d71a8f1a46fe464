"""A LangGraph graph as a step."""

from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from examples.adapters.desk import INSTRUCTIONS, look_up, open_ticket
from tasks import Context, step, workflow
from tasks.adapters.langgraph import as_function_tool, chat_model
from tasks.canvas import Canvas


@step
def answer(ctx: Context, question: str) -> str:
    tools = [tool(look_up), as_function_tool(ctx, open_ticket)]
    model = chat_model(ctx, model="gpt-5", pure={"look_up"}).bind_tools(tools)
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    end = graph.compile().invoke({"messages": [("system", INSTRUCTIONS), ("user", question)]})
    return str(end["messages"][-1].content)


@workflow("desk-langgraph", version="1", steps=[answer])
def desk(question: str) -> Canvas:
    return answer.s(question)
