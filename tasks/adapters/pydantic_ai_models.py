"""Models of pydantic-ai on the recording transport."""

import copy
from typing import Any

from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, infer_model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.providers import Provider, infer_provider_class

from tasks.adapters.loops import NO_KEEPALIVE
from tasks.context import Context


def on_our_transport(ctx: Context, model: Model | str) -> Model:
    """A model, or that of a name like ``openai:gpt-5``, which sends through the recorder."""
    if isinstance(model, str):
        return infer_model(model, provider_factory=lambda name: _provider(ctx, name))
    return _moved(ctx, model)


def _provider(ctx: Context, name: str) -> Provider[Any]:
    """The provider of a name like ``openai:gpt-5``, with an HTTP client of ours."""
    kind: Any = infer_provider_class(name)
    if name in ("openai", "openai-chat", "openai-responses"):
        from tasks.adapters.openai_sdk import async_openai_client  # noqa: PLC0415 - who names it has it

        return kind(openai_client=async_openai_client(ctx))
    if name == "anthropic":
        from tasks.adapters.anthropic_sdk import async_anthropic_client  # noqa: PLC0415 - likewise

        return kind(anthropic_client=async_anthropic_client(ctx))
    return kind(http_client=ctx.async_httpx_client(limits=NO_KEEPALIVE))


def _moved(ctx: Context, model: Model) -> Model:
    """A copy of the model whose client sends through the recorder; the agent's own is left as it is."""
    moved: Any = copy.copy(model)
    if isinstance(model, WrapperModel):
        moved.wrapped = _moved(ctx, model.wrapped)
    elif isinstance(model, FallbackModel):
        moved.models = [_moved(ctx, one) for one in model.models]
    elif (
        model.provider is not None
    ):  # those without send nothing: models made of functions, for tests
        moved._provider = _moved_provider(ctx, model.provider)
    return moved


def _moved_provider(ctx: Context, provider: Provider[Any]) -> Provider[Any]:
    client: Any = provider.client
    kind = type(client).__mro__
    names = {"AsyncOpenAI": "openai_client", "AsyncAnthropic": "anthropic_client"}
    option = next((names[one.__name__] for one in kind if one.__name__ in names), None)
    if option is None:
        raise UserError(
            f"A model of {provider.name} brings a client that cannot be put on another transport, so its calls would "
            f"not be recorded. Name the model instead, as in Agent('{provider.name}:...')."
        )
    ours = client.with_options(
        http_client=ctx.async_httpx_client(limits=NO_KEEPALIVE), max_retries=0
    )
    return type(provider)(**{option: ours})
