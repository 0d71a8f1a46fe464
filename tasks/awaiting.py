"""Async functions of tools, run to their end at the edge: everything of ours is synchronous."""

import asyncio
import inspect
from typing import Any


def to_its_end(value: Any) -> Any:
    """What an ``async def execute`` comes to; anything else is what it is."""
    return asyncio.run(_awaited(value)) if inspect.isawaitable(value) else value


async def _awaited(value: Any) -> Any:
    return await value
