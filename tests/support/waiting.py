"""Waiting for something to become true, with a deadline and a name for what is waited for."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PERIOD = 0.02  #: seconds between two looks


def wait_until(
    predicate: Callable[[], T | None],
    *,
    timeout: float = 10.0,
    what: str,
    details: Callable[[], str] = lambda: "",
) -> T:
    """Look until the predicate gives something true, and return that.

    ``details`` is asked for more only when the deadline passes.
    """
    deadline = time.monotonic() + timeout
    while not (found := predicate()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {what}\n{details()}".rstrip())
        time.sleep(PERIOD)
    return found
