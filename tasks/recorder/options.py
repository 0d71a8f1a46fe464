"""What the maker of a request asks for beside the request, and what it is told beside the answer."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from tasks.within import Within

if TYPE_CHECKING:
    from tasks.recorder.values import Incoming

EXTENSION = "onward"  #: of a request: its ``CallOptions``; of a response: its ``Incoming``


class Freshness(StrEnum):
    """What a later attempt gets for something it has read before."""

    REPLAY = "replay"  #: the recorded answer, however old
    MARK = "mark"  #: the recorded answer; it says that it is stale once older than ``max_age``
    REFETCH = "refetch"  #: the recorded answer while younger than ``max_age``, else a new one


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions:
    """How one request is to be treated. The defaults are those of a client that knows nothing of Onward."""

    max_asks: int = 3  #: answers that may be asked for until one is whole, over all attempts
    accept_length: bool = False  #: take an answer that ended at its length limit
    pin: str | None = None  #: the model that must have answered; ``gpt-x-*`` for any release of it
    on_chunk: Callable[[bytes], object] | None = None  #: sees a live answer as it comes
    freshness: Freshness = Freshness.REPLAY
    max_age: timedelta | None = None
    give_verdict: bool = False  #: the caller judges what is whole; else it stays a suggestion


@dataclass(slots=True)
class Told:
    """What became of the requests made within ``asking``."""

    incoming: "Incoming | None" = field(default=None)  #: of the last one


_asked: ContextVar[tuple[CallOptions, Told] | None] = ContextVar("onward_asking", default=None)


@contextmanager
def asking(options: CallOptions) -> Iterator[Told]:
    """Options for requests made within by an SDK that has no way to pass them on."""
    told = Told()
    with Within(_asked, (options, told)):
        yield told


def current() -> tuple[CallOptions, Told] | None:
    """What ``asking`` says here, if anything."""
    return _asked.get()
