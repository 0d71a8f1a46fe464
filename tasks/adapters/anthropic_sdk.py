"""The ``anthropic`` SDK inside a step: its own client, whose calls are recorded.

    client = anthropic_client(ctx)
    client.messages.create(model="claude-sonnet-5", max_tokens=1024, messages=[...])

Retries are Onward's, so the SDK's are off.
"""

from typing import Any

from anthropic import Anthropic, AsyncAnthropic

from tasks.adapters.loops import NO_KEEPALIVE
from tasks.context import Context

KEY = "{{secret:ANTHROPIC_API_KEY}}"  #: resolved when a request leaves, so a replay needs no key


def anthropic_client(ctx: Context, **options: Any) -> Anthropic:
    """``Anthropic`` over the recorder of this step. Options are the SDK's; ``api_key`` may name a secret."""
    client = ctx.httpx_client()
    return Anthropic(**{"api_key": KEY, **options, "max_retries": 0, "http_client": client})


def async_anthropic_client(ctx: Context, **options: Any) -> AsyncAnthropic:
    """``anthropic_client`` for ``async def`` steps."""
    client = ctx.async_httpx_client(limits=NO_KEEPALIVE)
    return AsyncAnthropic(**{"api_key": KEY, **options, "max_retries": 0, "http_client": client})
