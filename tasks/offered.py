"""What a context stands on: the ledger, the recorder and the rest in a run, plain stand-ins in a test."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from models.states import EffectClass
from tasks.budgets import RunBudget
from tasks.errors import CallRefused
from tasks.tool_base import Read, Tool

if TYPE_CHECKING:
    from tasks.context import Context

ReportProgress: TypeAlias = Callable[[float, float | None, str | None], None]


class Calls(Protocol):
    """Who carries out ``ctx.call``: the ledger in a run, ``DirectCalls`` in a test."""

    def call(self, tool: Tool[Any, Any], request: Any, *, name: str | None) -> Any: ...

    async def acall(self, tool: Tool[Any, Any], request: Any, *, name: str | None) -> Any: ...

    def read(
        self, tool: Tool[Any, Any], request: Any, *, name: str | None, wanted: dict[str, Any]
    ) -> Read[Any]: ...

    async def aread(
        self, tool: Tool[Any, Any], request: Any, *, name: str | None, wanted: dict[str, Any]
    ) -> Read[Any]: ...

    def enter_task(self) -> None: ...


class Http(Protocol):
    """Who carries requests and numbers them: the recorder in a run, ``DirectHttp`` in a test."""

    def client(self, options: dict[str, Any]) -> Any: ...

    def async_client(self, options: dict[str, Any]) -> Any: ...

    def transport(self, *, async_: bool, library: str) -> Any: ...

    def scope(self, name: str) -> AbstractContextManager[None]: ...

    def enter_task(self) -> None: ...

    async def settle(self, error: BaseException | None) -> None: ...

    def close(self) -> None: ...


class Facilities(Protocol):
    """What a run offers beside calls and requests, made when first used."""

    def artifact(self, ctx: "Context") -> Any: ...

    def budget(self, ctx: "Context") -> RunBudget: ...


def require_pure(tool: Tool[Any, Any]) -> None:
    """Raise ``CallRefused`` for a tool that changes something: it is called, not read."""
    if tool.effect is not EffectClass.PURE:
        raise CallRefused(
            f"ctx.read takes tools that change nothing (effect = Effect.PURE); {tool.name} is {tool.effect}: use "
            f"ctx.call. Nothing was sent."
        )
