"""What the adapters have in common: an Onward tool as a framework sees it, and which tools an agent may have."""

import asyncio
import inspect
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from httpx2 import Limits
from pydantic import TypeAdapter

from tasks.context import Context
from tasks.errors import CallNameNeeded, UndeclaredEffect
from tasks.recorder import scopes
from tasks.tools import FunctionTool, Tool

#: For clients on a loop: one that ends before them must not leave connections behind.
NO_KEEPALIVE = Limits(max_keepalive_connections=0)

#: On a framework's tool, in its metadata: what it may do has been said. ``{MARK: PURE}`` changes nothing.
MARK = "onward"
PURE = "pure"

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")  #: providers take no others in a function's name
_MADE_UP = "pyd_ai_"  #: what pydantic-ai puts before an id of its own, another one in each attempt


@dataclass(frozen=True)
class Bridge:
    """An Onward tool for the model of somebody else's agent: its name, its schema, and its calls."""

    ctx: Context
    tool: Tool[Any, Any]

    @cached_property
    def name(self) -> str:
        """The tool's name as providers take it: ``registry.file`` is ``registry_file``."""
        return _NOT_IN_NAMES.sub("_", self.tool.name)

    @cached_property
    def description(self) -> str:
        """What the model is told: the docstring of the tool, where its author wrote one."""
        tool = self.tool
        told = tool.function if isinstance(tool, FunctionTool) else type(tool)
        is_ours = told.__module__.partition(".")[0] == __name__.partition(".")[0]
        return (
            not is_ours and inspect.getdoc(told)
        ) or f"{tool.name}: {self._own_schema.get('description', '')}"

    @cached_property
    def schema(self) -> dict[str, Any]:
        """JSON schema of the arguments. A request that is no object is the argument ``request``."""
        schema = dict(self._own_schema)
        if not self._is_wrapped:
            return schema
        definitions = schema.pop("$defs", None)
        wrapped: dict[str, Any] = {
            "type": "object",
            "properties": {"request": schema},
            "required": ["request"],
            "additionalProperties": False,
        }
        return wrapped | ({"$defs": definitions} if definitions else {})

    def request(self, arguments: Mapping[str, Any]) -> Any:
        """The tool's request. Raises ``ValueMismatch`` for arguments that the model got wrong."""
        structure = arguments.get("request") if self._is_wrapped else dict(arguments)
        return self.tool.request_type.validate(structure)

    def call(self, request: Any, call_id: str | None) -> str:
        """``ctx.call``, named by the provider's id of this tool call, which is recorded with the answer."""
        return self._told(self.ctx.call(self.tool, request, name=self._call_name(call_id)))

    async def acall(self, request: Any, call_id: str | None) -> str:
        """``call`` for a loop."""
        return self._told(await self.ctx.acall(self.tool, request, name=self._call_name(call_id)))

    @cached_property
    def _own_schema(self) -> dict[str, Any]:
        annotation: Any = self.tool.request_type.annotation
        return TypeAdapter(annotation).json_schema(by_alias=False)

    @property
    def _is_wrapped(self) -> bool:
        return "properties" not in self._own_schema

    def _call_name(self, call_id: str | None) -> str:
        if not call_id or call_id.startswith(_MADE_UP):
            raise CallNameNeeded(
                f"The model asked for {self.name} without an id of the call, so after a crash the call could not "
                f"be told from another one, and nothing was sent. Use an endpoint that gives its tool calls ids."
            )
        return call_id

    def _told(self, result: Any) -> str:
        """The result for the model: the same text in every attempt, since the next request holds it."""
        return result if isinstance(result, str) else self.tool.result_type.dump(result)


class Guard:
    """Refuses, before anything is sent, tools that are neither declared pure nor Onward tools.

    It goes on refusing: some frameworks tell the model of an error and would go on as if it were an answer.
    """

    def __init__(self, pure: Collection[str], *, say_pure: str) -> None:
        """``say_pure``: how a user of this framework declares a tool, with ``{name}`` in it."""
        self._pure, self._say_pure = frozenset(pure), say_pure
        self._refusal: str | None = None

    def check(self, unmarked: Iterable[str]) -> None:
        """Raise ``UndeclaredEffect`` for the first of these tools that is not declared pure."""
        for name in unmarked:
            if self._refusal is None and name not in self._pure:
                self._refusal = _refusal(name, self._say_pure.format(name=name))
        if self._refusal is not None:
            raise UndeclaredEffect(self._refusal)


def _refusal(name: str, say_pure: str) -> str:
    return (
        f"The agent has a tool {name!r} that is neither declared PURE nor an Onward Tool: after a crash nobody could "
        f"say whether it happened. No request was sent. If it changes nothing outside, declare it: {say_pure}. If it "
        f"does, write it as a tasks.Tool (docs/effects.md) and give the agent as_function_tool(ctx, YourTool()) in "
        f"its place."
    )


def number_tasks() -> None:
    """Number the asyncio tasks of a ``run_sync`` from its first one on, which sends before we would see it.

    Frameworks run it on the thread's default loop and leave that open, so numbers are put on that loop.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        scopes.number_tasks(_default_loop())


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
