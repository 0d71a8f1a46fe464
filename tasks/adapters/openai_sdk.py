"""The ``openai`` SDK inside a step: its own client, whose calls are recorded.

    client = openai_client(ctx)
    client.responses.create(model="gpt-5", input="...")

Everything else stays the SDK's: streams, ``parse``, embeddings. Retries are Onward's, so the SDK's are off.
"""

from typing import Any

from openai import AsyncOpenAI, OpenAI

from tasks.adapters.loops import NO_KEEPALIVE
from tasks.context import Context

KEY = "{{secret:OPENAI_API_KEY}}"  #: resolved when a request leaves, so a replay needs no key


def openai_client(ctx: Context, **options: Any) -> OpenAI:
    """``OpenAI`` over the recorder of this step. Options are the SDK's; ``api_key`` may name a secret."""
    return OpenAI(
        **{"api_key": KEY, **options, "max_retries": 0, "http_client": ctx.httpx_client()}
    )


def async_openai_client(ctx: Context, **options: Any) -> AsyncOpenAI:
    """``openai_client`` for ``async def`` steps."""
    client = ctx.async_httpx_client(limits=NO_KEEPALIVE)
    return AsyncOpenAI(**{"api_key": KEY, **options, "max_retries": 0, "http_client": client})
