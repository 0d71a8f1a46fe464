"""What an answer says about itself, in the recorder's words."""

from dataclasses import dataclass, replace
from typing import Any

from models.messages import printable, shorten

_MOST = 10**9  #: tokens; no answer took more, whatever it says
_NAME = 200  #: characters of the name of a model, of the id of an answer

#: From whole to useless: of several alternatives the worst is the answer's.
_ORDER = ("complete", "length", "refused", "empty", "cut", "malformed")


@dataclass(frozen=True, slots=True)
class Reading:
    """The state of an answer, who gave it and what it took."""

    state: str
    model: str | None = None
    response_id: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    detail: str | None = None  #: what the service says went wrong

    def as_state(self, state: str, detail: str | None = None) -> "Reading":
        return replace(self, state=state, detail=detail or self.detail)

    @property
    def tokens(self) -> int | None:
        """What it took in all; None: it does not say."""
        if self.tokens_in is None and self.tokens_out is None:
            return None
        return (self.tokens_in or 0) + (self.tokens_out or 0)


def worst(states: list[str]) -> str:
    return max(states, key=_ORDER.index) if states else "empty"


def text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def name(value: Any) -> str | None:
    """A model or an answer as it is written down: services may call them what no column holds."""
    return shorten(printable(value), limit=_NAME) if isinstance(value, str) else None


def count(value: Any) -> int | None:
    """A number of tokens that can be one; an answer that says anything else says nothing."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and 0 <= value <= _MOST else None


def dicts(value: Any) -> list[dict[str, Any]]:
    """The objects in what should be a list of objects."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def fields(value: Any) -> dict[str, Any]:
    """What should be an object."""
    return value if isinstance(value, dict) else {}


def problem(value: Any) -> str | None:
    """The words of an error object."""
    if isinstance(value, dict):
        return text(value.get("message")) or text(value.get("type")) or text(value.get("code"))
    return text(value)
