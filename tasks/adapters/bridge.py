"""An Onward tool as the agent of a framework sees it."""

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

from tasks.context import Context
from tasks.errors import CallNameNeeded
from tasks.llm.tooling import Bench, as_tool, bench, call_name, told
from tasks.llm.values import Offer, ToolCall
from tasks.tools import Tool

_MADE_UP = "pyd_ai_"  #: what pydantic-ai puts before an id of its own, another one in each attempt
_CALLS = "calls"  #: where adapters name their calls, apart from those of ``ctx.llm``


@dataclass(frozen=True)
class Bridge:
    """An Onward tool, or a ``@pure`` function, for the model of somebody else's agent."""

    ctx: Context
    given: Any

    @cached_property
    def tool(self) -> Tool[Any, Any]:
        """What is called through the ledger. Refused: a function of which nobody has said what it does."""
        return as_tool(self.given)

    @property
    def name(self) -> str:
        """The tool's name as providers take it: ``registry.file`` is ``registry_file``."""
        return self._offer.name

    @cached_property
    def description(self) -> str:
        """What the model is told: the docstring of the tool, where its author wrote one."""
        tool = self.tool
        author = getattr(tool, "function", None) or type(tool)
        is_ours = author.__module__.partition(".")[0] == __name__.partition(".")[0]
        said = None if is_ours else inspect.getdoc(author)
        return said or f"{tool.name}: {self.schema.get('description', '')}"

    @property
    def schema(self) -> dict[str, Any]:
        """JSON schema of the arguments, less the secret ones. A request that is no object is ``request``."""
        return dict(self._offer.schema)

    def request(self, arguments: Mapping[str, Any]) -> Any:
        """The tool's request. Raises ``ValueError``, in words for the model, for arguments that do not fit."""
        return self._bench.requested(ToolCall("", self.name, _text(arguments)))[1]

    def call(self, request: Any, arguments: Mapping[str, Any], call_id: str | None) -> str:
        """``ctx.call``, named by what the model's recorded answer says; its result for the model."""
        name = self._call_name(arguments, call_id)
        return told(self.tool, self.ctx.call(self.tool, request, name=name))[0]

    async def acall(self, request: Any, arguments: Mapping[str, Any], call_id: str | None) -> str:
        """``call`` for a loop."""
        name = self._call_name(arguments, call_id)
        return told(self.tool, await self.ctx.acall(self.tool, request, name=name))[0]

    @cached_property
    def _bench(self) -> Bench:
        return bench([self.tool])

    @cached_property
    def _offer(self) -> Offer:
        return self._bench.offers[0]

    def _call_name(self, arguments: Mapping[str, Any], call_id: str | None) -> str:
        """The same in every attempt, whichever of several calls comes first: the answer is on record.

        The provider's id alone would not do, since some servers count them anew in each answer.
        """
        if not call_id or call_id.startswith(_MADE_UP):
            raise CallNameNeeded(
                f"The model asked for {self.name} without an id of the call, so after a crash the call could not "
                f"be told from another one, and nothing was sent. Use an endpoint that gives its tool calls ids."
            )
        asked = sha256(_text(arguments).encode("utf-8", "surrogatepass")).hexdigest()[:12]
        return f"{call_name(_CALLS, 0, ToolCall(call_id, self.name, ''))}.{asked}"


def _text(arguments: Mapping[str, Any]) -> str:
    return json.dumps(dict(arguments), sort_keys=True)
