"""A LangGraph graph inside a step: its nodes call a chat model whose requests are recorded.

    model = chat_model(ctx, model="gpt-5", pure={"look_up"})
    graph = build(model.bind_tools(tools), ToolNode(tools))    # the graph itself stays as it is
    graph.invoke(...)

Tools are refused when they are bound unless they are declared pure or are Onward tools. No checkpointer is
needed: after a crash the graph runs again from its start, over recorded answers.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from hashlib import sha256
from typing import Any

from langchain_core.messages import ToolMessage
from langchain_core.runnables.config import ensure_config
from langchain_core.tools import BaseTool
from langchain_openai import ChatOpenAI
from pydantic import PrivateAttr

from tasks.adapters.bridge import Bridge
from tasks.adapters.guard import MARK, PURE_TOOL, Declared, Guard, is_declared
from tasks.adapters.keys import client_options
from tasks.adapters.loops import NO_KEEPALIVE, is_on_loop
from tasks.adapters.openai_sdk import KEY
from tasks.context import Context
from tasks.llm.tooling import is_pure
from tasks.recorder import scopes

__all__ = ["PURE_TOOL", "RecordedChatOpenAI", "as_function_tool", "chat_model"]

_SAY_PURE = "chat_model(ctx, pure={{{name!r}}})"
_PLAIN = re.compile(
    r"[\w.|-]{1,120}", re.ASCII
)  #: names of nodes may be anything, those of scopes not
_SCHEMA_ONLY = (
    "ls_structured_output_format"  #: LangChain's mark of a "tool" that is the shape of an answer
)


class RecordedChatOpenAI(ChatOpenAI):
    """``ChatOpenAI`` on the recording transport, which takes no tool of which nobody has said what it does."""

    _ctx: Context | None = PrivateAttr(default=None)
    _guard: Guard = PrivateAttr(default_factory=lambda: Guard((), say_pure=_SAY_PURE))

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> Any:
        declared = [_name(one) for one in tools if _SCHEMA_ONLY in options or _is_declared(one)]
        self._guard.allow(declared)
        self._guard.check(map(_name, tools))
        return super().bind_tools(tools, **options)

    def _get_request_payload(self, *args: Any, **options: Any) -> dict[str, Any]:
        payload = super()._get_request_payload(*args, **options)
        self._guard.check(
            map(_name, payload.get("tools") or ())
        )  # bind(tools=...) says nothing of them
        return payload

    def _generate(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any
    ) -> Any:
        with self._within():
            return super()._generate(messages, stop, run_manager, **options)

    def _stream(self, *args: Any, **options: Any) -> Iterator[Any]:
        chunks = iter(super()._stream(*args, **options))
        with self._within():  # the request is made for the first one
            first = next(chunks, None)
        if first is not None:
            yield first
            yield from chunks

    def _within(self) -> AbstractContextManager[None]:
        """The scope of the node or task that asks: those side by side run in threads of a pool.

        On a loop there are tasks, which have scopes of their own.
        """
        place = _place(ensure_config().get("metadata") or {})
        if self._ctx is None or place is None or is_on_loop():
            return nullcontext()
        return _of_node(self._ctx, place)


def chat_model(ctx: Context, *, pure: Collection[str] = (), **options: Any) -> RecordedChatOpenAI:
    """A chat model for the nodes of a graph. Options are ``ChatOpenAI``'s; ``api_key`` may name a secret."""
    given = client_options(options, secret=KEY, http_client=ctx.httpx_client())
    loop_client = ctx.async_httpx_client(limits=NO_KEEPALIVE)
    made = RecordedChatOpenAI(**given, http_async_client=loop_client)
    made._ctx, made._guard = ctx, Guard(pure, say_pure=_SAY_PURE)
    return made


def as_function_tool(ctx: Context, tool: Any) -> BaseTool:
    """An Onward tool as a ``ToolNode`` calls it: through the ledger, named by the id of the tool call.

    A ``@pure`` function (``tasks.llm``) is one too: what it answers is recorded.
    """
    bridge = Bridge(ctx, tool)
    made = _Bridged(
        name=bridge.name,
        description=bridge.description,
        args_schema=bridge.schema,
        metadata={MARK: Declared.TOOL},
    )
    made._bridge = bridge
    return made


@contextmanager
def _of_node(ctx: Context, place: str) -> Iterator[None]:
    with ctx.scope(place):
        scopes.across_threads()
        yield


def _place(metadata: dict[str, Any]) -> str | None:
    """Where in its graph a node or a task stands, the same in every attempt, unlike its id."""
    path = metadata.get("langgraph_path")
    if path is None:
        return None
    parents = "|".join(
        one.partition(":")[0] for one in str(metadata.get("langgraph_checkpoint_ns")).split("|")
    )
    place = "-".join((parents, str(metadata.get("langgraph_step")), *_flat(path)))
    return (
        place
        if _PLAIN.fullmatch(place)
        else sha256(place.encode("utf-8", "surrogatepass")).hexdigest()
    )


def _flat(path: Any) -> Iterator[str]:
    for part in path:
        if isinstance(part, list | tuple):
            yield from _flat(part)
        else:
            yield str(part)


class _Bridged(BaseTool):
    """Only ``invoke`` and ``ainvoke`` see the id of the tool call, so they are all there is of it."""

    _bridge: Bridge = PrivateAttr()

    def invoke(self, input: Any, *_: Any, **__: Any) -> ToolMessage:
        request = self._request(input)
        if isinstance(request, ToolMessage):
            return request
        return self._message(input, self._bridge.call(request, input["args"], input["id"]))

    async def ainvoke(self, input: Any, *_: Any, **__: Any) -> ToolMessage:
        request = self._request(input)
        if isinstance(request, ToolMessage):
            return request
        result = await self._bridge.acall(request, input["args"], input["id"])
        return self._message(input, result)

    def _request(self, call: Any) -> Any:
        if not isinstance(call, dict) or "args" not in call:
            raise TypeError(f"{self.name} is called with a whole tool call, as a ToolNode does")
        try:
            return self._bridge.request(call["args"])
        except ValueError as error:  # the model asks again; that is a recorded call too
            return self._message(call, f"invalid arguments: {error}", status="error")

    def _message(self, call: Any, content: str, **options: Any) -> ToolMessage:
        return ToolMessage(content, tool_call_id=call["id"] or "", name=self.name, **options)

    def _run(self, *_: Any, **__: Any) -> Any:
        raise TypeError(f"{self.name} is called with a whole tool call, as a ToolNode does")


def _name(tool: Any) -> str:
    if isinstance(tool, dict):
        return str(
            tool.get("name")
            or tool.get("function", {}).get("name")
            or tool.get("title")
            or tool.get("type")
        )
    return str(getattr(tool, "name", None) or getattr(tool, "__name__", tool))


def _is_declared(tool: Any) -> bool:
    made_of = getattr(tool, "func", None) or getattr(tool, "coroutine", None) or tool
    return is_declared(getattr(tool, "metadata", None)) or is_pure(made_of)
