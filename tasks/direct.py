"""``ctx.call`` in a test of a step: the tool itself, or what the test answers in its place. No service, no journal."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from tasks.ordering import Order
from tasks.tool_base import Read, Tool
from tasks.tool_registry import require_recoverable

#: Answers a call in a tool's place.
Answer = Callable[[Tool[Any, Any], Any], Any]


class DirectCalls:
    """Keys, order and types as in a run: what a run would refuse, the test sees refused."""

    def __init__(self, run_id: str, step_key: str, *, answer: Answer | None = None) -> None:
        self._order = Order(run_id, step_key)
        self._answer = answer

    def call(self, tool: Tool[Any, Any], request: Any, *, name: str | None) -> Any:
        return self._perform(tool, request, self._key(tool, name))

    async def acall(self, tool: Tool[Any, Any], request: Any, *, name: str | None) -> Any:
        return await asyncio.to_thread(self._perform, tool, request, self._key(tool, name))

    def read(
        self, tool: Tool[Any, Any], request: Any, *, name: str | None, **_: object
    ) -> Read[Any]:
        return Read(self.call(tool, request, name=name), False, 0.0, False)

    async def aread(
        self, tool: Tool[Any, Any], request: Any, *, name: str | None, **_: object
    ) -> Read[Any]:
        return Read(await self.acall(tool, request, name=name), False, 0.0, False)

    def enter_task(self) -> None:
        self._order.enter()

    def _key(self, tool: Tool[Any, Any], name: str | None) -> str:
        require_recoverable(tool)
        return self._order.key(tool.name, name)

    def _perform(self, tool: Tool[Any, Any], request: Any, key: str) -> Any:
        asked = tool.asked(request).value
        value = self._answer(tool, asked) if self._answer else tool.execute(asked, key=key)
        return tool.result_type.round_trip(_to_its_end(value))[1]


class DirectHttp:
    """``ctx.httpx_client()`` in a test of a step: requests are sent, or answered by a transport of the test."""

    def __init__(self, *, transport: Any = None) -> None:
        self._given = transport

    def client(self, options: dict[str, Any]) -> Any:
        return import_module("httpx2").Client(**self._plain(options))

    def async_client(self, options: dict[str, Any]) -> Any:
        return import_module("httpx2").AsyncClient(**self._plain(options))

    def transport(self, *, async_: bool, library: str) -> Any:
        if self._given is not None:
            return self._given
        name = "AsyncHTTPTransport" if async_ else "HTTPTransport"
        return getattr(import_module(library), name)()

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:  # noqa: ARG002 - nothing is numbered here
        yield

    def enter_task(self) -> None:
        """Nothing is numbered here."""

    async def settle(self, error: BaseException | None) -> None:
        """Nothing is stopped here."""

    def close(self) -> None:
        """Nothing is waited for here."""

    def _plain(self, options: dict[str, Any]) -> dict[str, Any]:
        plain = {key: given for key, given in options.items() if key not in _RECORDERS_OWN}
        return plain if self._given is None else {"transport": self._given, **plain}


#: Options of clients that only mean something where answers are recorded.
_RECORDERS_OWN = frozenset({"freshness", "max_age", "max_asks", "accept_length", "pin"})


def _to_its_end(value: Any) -> Any:
    """What a coroutine comes to, on a thread of its own since the caller's may run a loop already."""
    if not asyncio.iscoroutine(value):
        return value
    came: list[Any] = []
    thread = threading.Thread(target=lambda: came.append(_settled(value)))
    thread.start()
    thread.join()
    result, error = came[0]
    if error is not None:
        raise error
    return result


def _settled(value: Any) -> tuple[Any, BaseException | None]:
    try:
        return asyncio.run(value), None
    except BaseException as error:
        return None, error
