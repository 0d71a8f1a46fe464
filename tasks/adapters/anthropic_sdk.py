"""The ``anthropic`` SDK inside a step: its own client, whose calls are recorded.

    client = anthropic_client(ctx)
    client.messages.create(model="claude-sonnet-5", max_tokens=1024, messages=[...])

Retries are Onward's, so the SDK's are off.
"""

from typing import Any

from anthropic import Anthropic, AsyncAnthropic

from tasks.adapters.keys import client_options
from tasks.adapters.loops import NO_KEEPALIVE
from tasks.context import Context

KEY = "ANTHROPIC_API_KEY"  #: the secret that is the key, unless the caller names another one


def anthropic_client(ctx: Context, **options: Any) -> Anthropic:
    """``Anthropic`` over the recorder of this step. Options are the SDK's; ``api_key`` may name a secret."""
    return Anthropic(**client_options(options, secret=KEY, http_client=ctx.httpx_client()))


def async_anthropic_client(ctx: Context, **options: Any) -> AsyncAnthropic:
    """``anthropic_client`` for ``async def`` steps."""
    client = ctx.async_httpx_client(limits=NO_KEEPALIVE)
    return AsyncAnthropic(**client_options(options, secret=KEY, http_client=client))
