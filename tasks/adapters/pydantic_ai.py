"""A pydantic-ai agent inside a step.

    with durable(ctx, agent, pure={"look_up"}):
        agent.run_sync("...", toolsets=[toolset(ctx, FileReport())])

The agent stays as it is: its model is put on the recording transport for the time of the ``with``. Its tools are
refused before the first request unless they are declared pure or are Onward tools.

pydantic-ai's durable-operation backends record whole operations in a format of their own; the recorder works
at the request, where budgets, pauses of an endpoint and refusals are, so a model is wrapped here instead.
"""

import inspect
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from pydantic_ai import Agent, FunctionToolset, ModelRetry, RunContext
from pydantic_ai import Tool as AgentTool
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel

from tasks.adapters.bridge import Bridge
from tasks.adapters.guard import MARK, PURE_TOOL, Declared, Guard, is_declared
from tasks.adapters.loops import number_tasks
from tasks.adapters.pydantic_ai_models import on_our_transport
from tasks.context import Context

__all__ = ["PURE_TOOL", "as_function_tool", "durable", "onward_model", "toolset"]

_SAY_PURE = "durable(ctx, agent, pure={{{name!r}}}), or @agent.tool_plain(metadata=PURE_TOOL)"


@contextmanager
def durable(ctx: Context, agent: Agent[Any, Any], *, pure: Collection[str] = ()) -> Iterator[None]:
    """Record every model call of this agent, and refuse its undeclared tools. ``pure`` names some."""
    if agent.model is None:
        raise UserError("the agent has no model: give it one, or pass model=onward_model(ctx, ...)")
    number_tasks()
    guard = Guard(pure, say_pure=_SAY_PURE)
    guard.check(_output_functions(agent.output_type))  # what ends the run is done by a model too
    with agent.override(model=_Guarded(on_our_transport(ctx, agent.model), guard)):
        yield


def onward_model(ctx: Context, model: Model | str, *, pure: Collection[str] = ()) -> Model:
    """A model, or the name of one, on the recording transport: for ``agent.run(model=...)``."""
    number_tasks()
    return _Guarded(on_our_transport(ctx, model), Guard(pure, say_pure=_SAY_PURE))


def toolset(ctx: Context, *tools: Any) -> FunctionToolset[Any]:
    """Onward tools, and ``@pure`` functions, for ``agent.run(toolsets=[...])``."""
    return FunctionToolset([as_function_tool(ctx, tool) for tool in tools])


def as_function_tool(ctx: Context, tool: Any) -> AgentTool[Any]:
    """An Onward tool as the agent calls it: through the ledger, named by the id of the tool call.

    A ``@pure`` function (``tasks.llm``) is one too: what it answers is recorded.
    """
    bridge = Bridge(ctx, tool)

    async def invoke(run: RunContext[Any], **arguments: Any) -> str:
        try:
            request = bridge.request(arguments)
        except ValueError as error:
            raise ModelRetry(str(error)) from error
        return await bridge.acall(request, arguments, run.tool_call_id)

    made: AgentTool[Any] = AgentTool.from_schema(
        invoke, bridge.name, bridge.description, bridge.schema, takes_ctx=True
    )
    made.metadata = {MARK: Declared.TOOL}
    return made


def _output_functions(spec: Any) -> Iterator[str]:
    """The names of the functions in an agent's output type: called with what the model says, like tools."""
    for inner in ("output_function", "outputs", "output"):
        if not inspect.isroutine(spec) and not inspect.isclass(spec) and hasattr(spec, inner):
            yield from _output_functions(getattr(spec, inner))
            return
    if isinstance(spec, list | tuple):
        for one in spec:
            yield from _output_functions(one)
    elif inspect.isroutine(spec):
        yield spec.__name__


class _Guarded(WrapperModel):
    """Sends nothing for an agent with a tool of which nobody has said what it does."""

    def __init__(self, wrapped: Model, guard: Guard) -> None:
        super().__init__(wrapped)
        self._guard = guard

    async def request(
        self, messages: Any, model_settings: Any, model_request_parameters: ModelRequestParameters
    ) -> Any:
        self._check(model_request_parameters)
        return await super().request(messages, model_settings, model_request_parameters)

    @asynccontextmanager
    async def request_stream(
        self, messages: Any, model_settings: Any, model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncIterator[StreamedResponse]:  # fmt: skip
        self._check(model_request_parameters)
        async with super().request_stream(
            messages, model_settings, model_request_parameters, run_context
        ) as answer:
            yield answer

    def _check(self, offered: ModelRequestParameters) -> None:
        functions = [one.name for one in offered.function_tools if not is_declared(one.metadata)]
        self._guard.check(functions + [one.kind for one in offered.native_tools])
