"""Carrying out what an exchange orders: let time pass, send a request. On a thread, or in an asyncio task."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator
from typing import TypeAlias

from tasks.recorder import scopes
from tasks.recorder.values import Arrived, Incoming, Order, Send, Wait

#: One exchange. What goes wrong with an order is thrown into it, so that it is written down.
Steps: TypeAlias = Generator[Order, Arrived | None, Incoming]


def drive(steps: Steps, send: Callable[[Send], Arrived]) -> Incoming:
    """The exchange's answer; waits on this thread."""
    answer: Arrived | None = None
    try:
        while True:
            order = steps.send(answer)
            answer = None
            try:
                match order:
                    case Wait(seconds):
                        time.sleep(seconds)
                    case Send():
                        with scopes.sending():
                            answer = send(order)
            except BaseException as error:
                steps.throw(error)
                raise AssertionError("an exchange ends with what went wrong") from error
    except StopIteration as end:
        incoming: Incoming = end.value
        return incoming


async def adrive(steps: Steps, send: Callable[[Send], Awaitable[Arrived]]) -> Incoming:
    """The exchange's answer; the loop goes on meanwhile."""
    answer: Arrived | None = None
    try:
        while True:
            order = steps.send(answer)
            answer = None
            try:
                match order:
                    case Wait(seconds):
                        await asyncio.sleep(seconds)
                    case Send():
                        with scopes.sending():
                            answer = await send(order)
            except BaseException as error:
                steps.throw(error)
                raise AssertionError("an exchange ends with what went wrong") from error
    except StopIteration as end:
        incoming: Incoming = end.value
        return incoming
