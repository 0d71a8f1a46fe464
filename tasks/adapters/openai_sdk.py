"""The ``openai`` SDK inside a step: its own client, whose calls are recorded.

    client = openai_client(ctx)
    client.responses.create(model="gpt-5", input="...")

Everything else stays the SDK's: streams, ``parse``, embeddings. Retries are Onward's, so the SDK's are off.
"""

from typing import Any

from openai import AsyncOpenAI, OpenAI

from tasks.adapters.keys import client_options
from tasks.adapters.loops import NO_KEEPALIVE
from tasks.context import Context

KEY = "OPENAI_API_KEY"  #: the secret that is the key, unless the caller names another one


def openai_client(ctx: Context, **options: Any) -> OpenAI:
    """``OpenAI`` over the recorder of this step. Options are the SDK's; ``api_key`` may name a secret."""
    return OpenAI(**client_options(options, secret=KEY, http_client=ctx.httpx_client()))


def async_openai_client(ctx: Context, **options: Any) -> AsyncOpenAI:
    """``openai_client`` for ``async def`` steps."""
    client = ctx.async_httpx_client(limits=NO_KEEPALIVE)
    return AsyncOpenAI(**client_options(options, secret=KEY, http_client=client))


def moved(ctx: Context, client: AsyncOpenAI) -> AsyncOpenAI:
    """A copy of somebody's client, with its address and key, over the recorder of this step."""
    ours = ctx.async_httpx_client(limits=NO_KEEPALIVE)
    return client.with_options(http_client=ours, max_retries=0)
