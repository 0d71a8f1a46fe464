"""Carrying out what an exchange orders: let time pass, send a request. On a thread, or in an asyncio task."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeAlias

from tasks.errors import Stop
from tasks.recorder import scopes
from tasks.recorder.air import Air, Sent
from tasks.recorder.values import Arrived, Incoming, Order, Send, Wait

_log = logging.getLogger("onward.engine")

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


async def adrive(
    steps: Steps, send: Callable[[Send], Coroutine[Any, Any, Arrived]], *, air: Air
) -> Incoming:
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
                        answer = await _Flight(steps).fly(send(order), air)
            except _LeftAlone:
                raise
            except BaseException as error:
                steps.throw(error)
                raise AssertionError("an exchange ends with what went wrong") from error
    except _LeftAlone:  # plain again: time-outs of asyncio look at the type itself
        raise asyncio.CancelledError from None
    except StopIteration as end:
        incoming: Incoming = end.value
        return incoming


class _LeftAlone(asyncio.CancelledError):
    """Whoever waited for the exchange is cancelled, and the exchange goes on without it."""


class _Flight:
    """One request in the air, in a task of its own: who waits for it may be cancelled before it lands."""

    def __init__(self, steps: Steps) -> None:
        self._steps, self._is_left = steps, False

    async def fly(self, sending: Coroutine[Any, Any, Arrived], air: Air) -> Arrived:
        with scopes.sending():
            sent = air.launch(self._carry(sending))
        try:
            return await asyncio.shield(sent)
        except (SystemExit, KeyboardInterrupt) as error:  # its own task has told the loop
            raise asyncio.CancelledError from error
        except asyncio.CancelledError:
            if not sent.cancelled() and air.keeps():
                self._leave(sent)
                raise _LeftAlone from None
            if sent.cancel():
                await asyncio.wait({sent})
            raise

    async def _carry(self, sending: Coroutine[Any, Any, Arrived]) -> Arrived:
        try:
            arrived = await sending
        except BaseException as error:
            if self._is_left:
                self._finish(error)
            raise
        if self._is_left:
            self._finish(arrived)
        return arrived

    def _leave(self, sent: Sent) -> None:
        self._is_left = True
        if not sent.done():
            sent.cancel()  # as soon as there is no sense in waiting for it
        elif (error := sent.exception()) is not None:
            self._finish(error)
        else:
            self._finish(sent.result())

    def _finish(self, outcome: Arrived | BaseException) -> None:
        """Let the exchange write down what came. It asks for nothing more: its attempt is stopped."""
        try:
            if isinstance(outcome, Arrived):
                self._steps.send(outcome)
                self._steps.throw(asyncio.CancelledError())
            else:
                self._steps.throw(outcome)
        except StopIteration:
            return
        except (Exception, Stop, asyncio.CancelledError) as error:
            _log.info("A request went on after its step was stopped, and ended so: %s", error)
