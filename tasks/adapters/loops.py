"""The asyncio loops that frameworks run inside a step."""

import asyncio

from httpx2 import Limits

from tasks.recorder import scopes

#: For clients on a loop: one that ends before them must not leave connections behind.
NO_KEEPALIVE = Limits(max_keepalive_connections=0)


def number_tasks() -> None:
    """Number the asyncio tasks of a ``run_sync`` from its first one on, which sends before we would see it.

    Frameworks run it on the thread's default loop and leave that open, so numbers are put on that loop.
    """
    if not is_on_loop():
        scopes.number_tasks(_default_loop())


def is_on_loop() -> bool:
    """Whether whoever asks is a task of a loop, or a callback of one."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _default_loop() -> asyncio.AbstractEventLoop:
    policy = asyncio.get_event_loop_policy()
    try:
        loop = policy.get_event_loop()
    except RuntimeError:
        loop = policy.new_event_loop()
        policy.set_event_loop(loop)
    if loop.is_closed():
        loop = policy.new_event_loop()
        policy.set_event_loop(loop)
    return loop
