"""An Onward tool as the agent of a framework sees it."""

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import TypeAdapter

from tasks.context import Context
from tasks.errors import CallNameNeeded
from tasks.tools import FunctionTool, Tool

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
