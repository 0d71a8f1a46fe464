"""Verbs side by side: each in a thread and on a connection of its own."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

from models import database

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")
DEADLINE = 30.0  #: seconds


def at_once(*acts: Callable[[], T]) -> list[T]:
    """Start all of them at the same moment; their answers in the order given."""
    barrier = threading.Barrier(len(acts))

    def one(act: Callable[[], T]) -> T:
        barrier.wait(DEADLINE)
        return _closing(act)

    with ThreadPoolExecutor(len(acts)) as pool:
        futures = [pool.submit(one, act) for act in acts]
        return [future.result(DEADLINE) for future in futures]


class Aside(Generic[T]):
    """Something under way in another thread."""

    def __init__(self, future: "Future[T]") -> None:
        self._future = future

    @property
    def done(self) -> bool:
        return self._future.done()

    def result(self) -> T:
        return self._future.result(DEADLINE)

    def error(self) -> BaseException | None:
        return self._future.exception(DEADLINE)


@contextmanager
def aside(act: Callable[[], T]) -> "Iterator[Aside[T]]":
    """Run something in a thread; its end is waited for when the block ends."""
    with ThreadPoolExecutor(1) as pool:
        yield Aside(pool.submit(_closing, act))


def _closing(act: Callable[[], T]) -> T:
    try:
        return act()
    finally:
        database.close()
