"""A LangGraph graph inside a step: its nodes call a chat model whose requests are recorded.

    model = chat_model(ctx, model="gpt-5", pure={"look_up"})
    graph = build(model.bind_tools(tools), ToolNode(tools))    # the graph itself stays as it is
    graph.invoke(...)

Tools are refused when they are bound unless they are declared pure or are Onward tools. No checkpointer is
needed: after a crash the graph runs again from its start, over recorded answers.
"""

from collections.abc import Collection, Sequence
from typing import Any

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langchain_openai import ChatOpenAI
from pydantic import PrivateAttr

from models.errors import ValueMismatch
from tasks.adapters.bridge import Bridge
from tasks.adapters.guard import MARK, PURE, Guard
from tasks.adapters.loops import NO_KEEPALIVE
from tasks.adapters.openai_sdk import KEY
from tasks.context import Context
from tasks.tools import Tool

PURE_TOOL = {MARK: PURE}  #: a tool's ``metadata``: it changes nothing outside

_SAY_PURE = "chat_model(ctx, pure={{{name!r}}})"


class RecordedChatOpenAI(ChatOpenAI):
    """``ChatOpenAI`` on the recording transport, which takes no tool of which nobody has said what it does."""

    _guard: Guard = PrivateAttr(default_factory=lambda: Guard((), say_pure=_SAY_PURE))

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> Any:
        self._guard.check(_name(one) for one in tools if MARK not in _metadata(one))
        return super().bind_tools(tools, **options)


def chat_model(ctx: Context, *, pure: Collection[str] = (), **options: Any) -> RecordedChatOpenAI:
    """A chat model for the nodes of a graph. Options are ``ChatOpenAI``'s; ``api_key`` may name a secret."""
    clients = {
        "http_client": ctx.httpx_client(),
        "http_async_client": ctx.async_httpx_client(limits=NO_KEEPALIVE),
        "max_retries": 0,
    }
    made = RecordedChatOpenAI(**{"api_key": KEY, **options, **clients})
    made._guard = Guard(pure, say_pure=_SAY_PURE)
    return made


def as_function_tool(ctx: Context, tool: Tool[Any, Any]) -> BaseTool:
    """An Onward tool as a ``ToolNode`` calls it: through the ledger, named by the id of the tool call."""
    bridge = Bridge(ctx, tool)
    made = _Bridged(
        name=bridge.name,
        description=bridge.description,
        args_schema=bridge.schema,
        metadata={MARK: tool.name},
    )
    made._bridge = bridge
    return made


class _Bridged(BaseTool):
    """Only ``invoke`` and ``ainvoke`` see the id of the tool call, so they are all there is of it."""

    _bridge: Bridge = PrivateAttr()

    def invoke(self, input: Any, *_: Any, **__: Any) -> ToolMessage:
        request = self._request(input)
        if isinstance(request, ToolMessage):
            return request
        return self._message(input, self._bridge.call(request, input["id"]))

    async def ainvoke(self, input: Any, *_: Any, **__: Any) -> ToolMessage:
        request = self._request(input)
        if isinstance(request, ToolMessage):
            return request
        return self._message(input, await self._bridge.acall(request, input["id"]))

    def _request(self, call: Any) -> Any:
        try:
            return self._bridge.request(call["args"])
        except ValueMismatch as error:  # the model asks again; that is a recorded call too
            return self._message(call, f"invalid arguments: {error}", status="error")

    def _message(self, call: Any, content: str, **options: Any) -> ToolMessage:
        return ToolMessage(content, tool_call_id=call["id"] or "", name=self.name, **options)

    def _run(self, *_: Any, **__: Any) -> Any:
        raise TypeError(f"{self.name} is called with a whole tool call, as a ToolNode does")


def _name(tool: Any) -> str:
    if isinstance(tool, dict):
        return str(tool.get("name") or tool.get("function", {}).get("name") or tool.get("type"))
    return str(getattr(tool, "name", None) or getattr(tool, "__name__", tool))


def _metadata(tool: Any) -> dict[str, Any]:
    return getattr(tool, "metadata", None) or {}
