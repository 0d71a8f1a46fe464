"""Agents of the OpenAI Agents SDK inside a step.

    Runner.run_sync(agent, "...", run_config=run_config(ctx, pure={"look_up"}))

The agents stay as they are: the run's configuration resolves the names of their models to clients whose calls
are recorded. Tools are refused before the first request unless they are declared pure or are Onward tools:
``Agent(tools=[as_function_tool(ctx, FileReport())])``.

The SDK's traces would leave for OpenAI beside the recorder, so they are off unless ``tracing_disabled=False``.
"""

import json
from collections.abc import AsyncIterator, Collection
from typing import Any

from agents import FunctionTool, Model, ModelProvider, OpenAIProvider, RunConfig, UserError
from agents.run_config import CallModelData, ModelInputData
from openai import AsyncOpenAI

from tasks.adapters.bridge import Bridge
from tasks.adapters.guard import Guard
from tasks.adapters.loops import number_tasks
from tasks.adapters.openai_sdk import async_openai_client, moved
from tasks.context import Context

_OTHER_PROVIDERS = frozenset({"litellm", "any-llm"})  #: prefixes of names; clients of their own
_NOT_RECORDED = (
    "{whose} brings a model of its own ({model}), whose calls would not be recorded; none was sent. Name the model, "
    "and give the client to run_config(client=...)."
)
_SAY_PURE = "run_config(ctx, pure={{{name!r}}})"


def run_config(
    ctx: Context, *, pure: Collection[str] = (), client: AsyncOpenAI | None = None,
    use_responses: bool | None = None, **options: Any,
) -> RunConfig:  # fmt: skip
    """The configuration of one ``Runner.run``. ``pure``: tools that change nothing outside, by name.

    ``client``: another one than for OpenAI, for its address and key; options are ``RunConfig``'s. What the SDK
    would make up anew for each run, and send, is derived from the step.
    """
    number_tasks()
    guard = Guard(pure, say_pure=_SAY_PURE)
    if isinstance(options.get("model"), Model):
        raise UserError(_NOT_RECORDED.format(whose="run_config(model=...)", model=options["model"]))
    ours = {
        "model_provider": _Provider(_models(ctx, client, use_responses), guard),
        "call_model_input_filter": _only_named_models(options.pop("call_model_input_filter", None)),
    }
    steady = {"tracing_disabled": True, "group_id": f"{ctx.run_id}:{ctx.step_key}"}
    return RunConfig(**{**steady, **options, **ours})


def _models(ctx: Context, client: AsyncOpenAI | None, use_responses: bool | None) -> ModelProvider:
    """The SDK's own, by HTTP whatever its default is: what goes over a websocket is not recorded."""
    ours = async_openai_client(ctx) if client is None else moved(ctx, client)
    return OpenAIProvider(
        openai_client=ours, use_responses=use_responses, use_responses_websocket=False
    )


def as_function_tool(ctx: Context, tool: Any) -> FunctionTool:
    """An Onward tool as the agent calls it: through the ledger, named by the id of the tool call.

    A ``@pure`` function (``tasks.llm``) is one too: what it answers is recorded.
    """
    bridge = Bridge(ctx, tool)
    return FunctionTool(
        name=bridge.name,
        description=bridge.description,
        params_json_schema=bridge.schema,
        on_invoke_tool=_Invoke(bridge),
        strict_json_schema=False,
    )


class _Invoke:
    """What such a tool does; by its type it is known to be one."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge

    async def __call__(self, run: Any, arguments: str) -> str:
        try:
            given = json.loads(arguments or "{}")
            request = self._bridge.request(given)
        except (ValueError, TypeError) as error:
            return f"invalid arguments: {error}"  # the model asks again: a recorded call too
        return await self._bridge.acall(request, given, run.tool_call_id)


class _Provider(ModelProvider):
    def __init__(self, provider: ModelProvider, guard: Guard) -> None:
        self._provider, self._guard = provider, guard

    def get_model(self, model_name: str | None) -> Model:
        prefix, slash, rest = (model_name or "").partition("/")
        if slash and prefix in _OTHER_PROVIDERS:
            raise UserError(_NOT_RECORDED.format(whose=f"The name {model_name!r}", model=prefix))
        name = rest if slash and prefix == "openai" else model_name
        return _Guarded(self._provider.get_model(name), self._guard)


class _Guarded(Model):
    """Sends nothing for an agent with a tool of which nobody has said what it does."""

    def __init__(self, model: Model, guard: Guard) -> None:
        self._model, self._guard = model, guard

    async def get_response(
        self, system_instructions: Any, input: Any, model_settings: Any, tools: list[Any],
        *rest: Any, **options: Any,
    ) -> Any:  # fmt: skip
        self._check(tools)
        return await self._model.get_response(
            system_instructions, input, model_settings, tools, *rest, **options
        )

    async def stream_response(
        self, system_instructions: Any, input: Any, model_settings: Any, tools: list[Any],
        *rest: Any, **options: Any,
    ) -> AsyncIterator[Any]:  # fmt: skip
        self._check(tools)
        events = self._model.stream_response(
            system_instructions, input, model_settings, tools, *rest, **options
        )
        async for event in events:
            yield event

    def _check(self, tools: list[Any]) -> None:
        ours = [isinstance(getattr(tool, "on_invoke_tool", None), _Invoke) for tool in tools]
        self._guard.check(
            tool.name for tool, is_ours in zip(tools, ours, strict=True) if not is_ours
        )


def _only_named_models(then: Any) -> Any:
    """An agent with a model object of its own would send past the provider, and so past the recorder."""

    async def check(data: CallModelData[Any]) -> ModelInputData:
        model = data.agent.model
        if isinstance(model, Model) and not isinstance(model, _Guarded):
            raise UserError(
                _NOT_RECORDED.format(whose=f"Agent {data.agent.name!r}", model=type(model).__name__)
            )
        if then is None:
            return data.model_data
        filtered = then(data)
        return await filtered if hasattr(filtered, "__await__") else filtered

    return check
