"""Which tools somebody else's agent may have."""

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Any

from tasks.errors import UndeclaredEffect

MARK = "onward"  #: in a framework tool's metadata: what it may do has been said, by a ``Declared``


class Declared(Enum):
    """What somebody has said of a tool. No text: a server's description of its tools ends up in metadata too."""

    PURE = "pure"  #: it changes nothing outside
    TOOL = "tool"  #: an Onward tool, which goes through the ledger


#: A tool's ``metadata`` in the frameworks that have it: it changes nothing outside.
PURE_TOOL: dict[str, Any] = {MARK: Declared.PURE}


def is_declared(metadata: Any) -> bool:
    """Whether a tool's metadata says what it may do."""
    return isinstance(metadata, Mapping) and isinstance(metadata.get(MARK), Declared)


class Guard:
    """Refuses, before anything is sent, tools that are neither declared pure nor Onward tools.

    It goes on refusing: some frameworks tell the model of an error and would go on as if it were an answer.
    """

    def __init__(self, pure: Collection[str], *, say_pure: str) -> None:
        """``say_pure``: how a user of this framework declares a tool, with ``{name}`` in it."""
        self._pure, self._say_pure = set(pure), say_pure
        self._refusal: str | None = None

    def allow(self, names: Iterable[str]) -> None:
        """These were declared where they were made; from now on their names are all there is to see of them."""
        self._pure.update(names)

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
