"""What is asked of a model and what it says, whoever provides it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

#: A message as the provider takes it: ``{"role": "user", "content": "..."}``.
Message: TypeAlias = dict[str, Any]

#: What stands in a transcript for arguments that are no JSON object: no provider takes those back as they were.
UNREADABLE = "unreadable_arguments"

#: Gets the text of an answer while it comes. A suggestion: the answer may still be refused.
OnChunk: TypeAlias = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Form:
    """The shape that an answer is to have."""

    name: str
    schema: Mapping[str, Any]
    strict: bool  #: every property is required and no other is allowed: the provider can enforce it


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool as the model sees it."""

    name: str
    description: str
    schema: Mapping[str, Any]  #: of its arguments: an object


@dataclass(frozen=True, slots=True)
class ToolCall:
    """What the model wants done. ``arguments`` is JSON as the model wrote it, which may be none."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What came of it, in words for the model."""

    call: ToolCall
    text: str
    failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One request to a model: all of it decides whether a recorded answer belongs to it."""

    provider: str
    model: str
    messages: Sequence[Message]
    system: str | None = None
    form: Form | None = None
    response_format: str = "json_schema"
    tools: Sequence[Offer] = ()
    sampling: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)  #: no part of what is asked
    pin: str | None = (
        None  #: a pattern for the name of the model that answers; None: ``model`` itself
    )
    accept_length: bool = False
    on_chunk: OnChunk | None = None


class Taken(Protocol):
    """An answer as the recorder hands it out: its record, and the verdicts on it."""

    @property
    def place(self) -> Any: ...

    @property
    def replayed(self) -> bool: ...

    @property
    def verdict(self) -> str | None: ...

    @property
    def reason(self) -> str | None: ...

    @property
    def counts(self) -> bool: ...

    @property
    def state(self) -> str: ...

    @property
    def lost(self) -> int: ...

    def accept(self) -> None: ...

    def reject(self, reason: str, /) -> None: ...


class Unrecorded:
    """The same where nothing is recorded: in a test of a step."""

    place = None
    replayed = False
    verdict: str | None = None
    reason: str | None = None
    counts = True
    state = "complete"
    lost = 0

    def accept(self) -> None:
        """Nobody asks for it again."""

    def reject(self, reason: str, /) -> None:
        """Nobody asks for it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One complete answer: suggested until it is accepted."""

    text: str
    calls: tuple[ToolCall, ...] = ()
    message: Message  #: as it is said back to the model in the next turn
    model: str = ""
    response_id: str = ""
    status: str = ""  #: of a background response
    taken: Taken = field(default_factory=Unrecorded)
