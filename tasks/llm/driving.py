"""Carries out what the generators of ``asking`` and ``talking`` say: in place, or awaited."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from tasks.llm.asking import Action, Logic

T = TypeVar("T")


def drive(logic: Logic[T], perform: Callable[[Action], Any]) -> T:
    """Errors of an action are raised in the generator; a ``Stop`` ends everything."""
    step: Callable[[], Action] = partial(next, logic)
    while True:
        try:
            action = step()
        except StopIteration as ended:
            result: T = ended.value
            return result
        try:
            came = perform(action)
        except Exception as error:
            step = partial(logic.throw, error)
        else:
            step = partial(logic.send, came)


async def adrive(logic: Logic[T], perform: Callable[[Action], Awaitable[Any]]) -> T:
    """``drive``, awaited."""
    step: Callable[[], Action] = partial(next, logic)
    while True:
        try:
            action = step()
        except StopIteration as ended:
            result: T = ended.value
            return result
        try:
            came = await perform(action)
        except Exception as error:
            step = partial(logic.throw, error)
        else:
            step = partial(logic.send, came)
