"""Tools: what a step may ask of the outside world, and what each promises about being asked twice.

    class FileReport(Tool[Report, Filing]):
        name, version = "registry.file", "2"
        effect = Effect.QUERYABLE
        max_request_lifetime = timedelta(seconds=60)
        consistency_window = timedelta(seconds=20)
        def execute(self, request, *, key): ...
        def lookup(self, request, *, key): ...  # -> Found(result) | Absent() | Undecided(reason)
        def compensate(self, request, result, *, key): ...

A tool is called by ``ctx.call(FileReport(), report)``. Defining the class registers it under its name, since
a look-up after a crash is made by another process, which knows only the name: a class is made without
arguments there, a tool configured by its constructor registers the instance.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any, Generic, TypeAlias, TypeVar, get_args, get_origin

from models.journal.effect_values import Promise
from models.messages import safe_repr
from models.settings import settings
from models.states import EffectClass as Effect
from models.values import Typed
from tasks import tool_registry
from tasks.awaiting import to_its_end
from tasks.binding import annotations_of
from tasks.options import per_second
from tasks.recorder.options import Freshness
from tasks.tool_requests import Asked, ask, check_fields

Request = TypeVar("Request")
Result = TypeVar("Result")


class Refused(Exception):
    """Raised by a tool: a definite answer that it did not happen. The step's retry policy decides."""


class NotSent(Refused):
    """Raised by a tool: the request provably never left."""


def refusal(recorded: str) -> Refused:
    """A refusal as the journal has it, ``CardDeclined: no funds``, as the body caught it the first time.

    Its type is the tool's own, found by its name among those loaded, so that ``except CardDeclined`` takes it;
    beside its words it has nothing that a constructor would have given it.
    """
    name, _, words = recorded.partition(": ")
    kinds = [kind for kind in _kinds_of(Refused) if kind.__name__ == name]
    kind = kinds[0] if len(kinds) == 1 else Refused
    made = kind.__new__(kind)
    made.args = (words or recorded,)
    return made


def _kinds_of(kind: type[Refused]) -> Iterator[type[Refused]]:
    yield kind
    for narrower in kind.__subclasses__():
        yield from _kinds_of(narrower)


class Unanswered(Exception):
    """Raised by a tool: it may have happened. What any other exception of ``execute`` means as well."""


@dataclass(frozen=True, slots=True)
class Found(Generic[Result]):
    """A look-up's answer: it happened, and this is its result."""

    result: Result


@dataclass(frozen=True, slots=True)
class Absent:
    """A look-up's answer: nothing of it is there. Believed only when nothing can still arrive."""


@dataclass(frozen=True, slots=True)
class Undecided:
    """A look-up's answer: it cannot tell, and looking again would not help. A person decides.

    ``again_in`` seconds: it cannot tell *yet* (still provisioning): look again then.
    """

    reason: str
    again_in: float | None = None


@dataclass(frozen=True, slots=True)
class Read(Generic[Result]):
    """What ``ctx.read`` gives: the value, and which one it is."""

    value: Result
    replayed: bool  #: recorded by an earlier attempt
    age: float  #: seconds since it was recorded; 0 for a live one
    stale: bool  #: older than ``max_age``, and given all the same


Looked: TypeAlias = Found[Any] | Absent | Undecided


class Tool(Generic[Request, Result]):
    """Something outside that a step may change. Subclass it, or decorate a function with ``@tool``."""

    name: str
    version: str = "1"
    effect: Effect
    key_retention: timedelta | None = None  #: IDEMPOTENT: how long the provider honours a key
    max_request_lifetime: timedelta | None = None  #: how long after sending it can land; None: ever
    consistency_window: timedelta = timedelta(0)  #: how long a look-up may miss what exists
    timeout: timedelta | None = None  #: one call; None: ``ONWARD_TOOL_TIMEOUT``
    rate_limit: str | float | None = None  #: calls over the whole cluster, spelled as for steps
    freshness: Freshness = (
        Freshness.REPLAY
    )  #: PURE only: what a later attempt gets for what was read before
    max_age: timedelta = timedelta(
        0
    )  #: PURE only: how old that may be, unless ``freshness`` is REPLAY
    volatile: frozenset[str] = frozenset()  #: request fields that do not make it another request
    #: request fields neither recorded nor part of its identity; a look-up sees their defaults
    secret: frozenset[str] = frozenset()

    def __init_subclass__(cls, *, abstract: bool = False, **options: Any) -> None:
        """``abstract=True``: a base for other tools, not a tool itself."""
        super().__init_subclass__(**options)
        if not abstract:
            tool_registry.register(cls, looks_up=cls.lookup is not Tool.lookup)

    def execute(self, request: Request, *, key: str) -> Result:
        """Do it. Raise ``Refused`` or ``NotSent`` when it certainly did not happen.

        Runs on a thread of its own, which is left behind when it takes longer than ``timeout``. May be an
        ``async def``: it is run to its end there, on a loop of its own.
        """
        raise NotImplementedError

    def lookup(self, request: Request, *, key: str) -> Looked:
        """Whether it happened. Raising means that the check failed, and says nothing else."""
        raise NotImplementedError

    def compensate(self, request: Request, result: Result, *, key: str) -> Any:
        """Undo it. Called with a key of its own; raise ``Refused`` when it cannot be undone."""
        raise NotImplementedError

    def lookup_compensation(
        self,
        request: Request,
        result: Result,  # noqa: ARG002 - for those who override it
        *,
        key: str,
    ) -> Looked:
        """Whether it was undone: by default, whether ``lookup`` of the effect finds nothing any more.

        ``key`` is the effect's own. ``Found`` means undone. Tools whose undone things stay visible
        (a cancelled order) override this.
        """
        match to_its_end(self.lookup(request, key=key)):
            case Absent():
                return Found(None)
            case Found():
                return Absent()
            case Undecided() as undecided:
                return undecided
            case odd:
                raise TypeError(f"{self.name}.lookup returned {safe_repr(odd, limit=60)}")

    @property
    def can_look_up(self) -> bool:
        """Whether the world can be asked what became of a request."""
        return type(self).lookup is not Tool.lookup

    @property
    def can_look_up_undo(self) -> bool:
        """Whether the world can be asked if an effect was undone."""
        return self.can_look_up or type(self).lookup_compensation is not Tool.lookup_compensation

    @property
    def can_compensate(self) -> bool:
        """Whether what it did can be undone."""
        return type(self).compensate is not Tool.compensate

    @cached_property
    def promise(self) -> Promise:
        """What this tool declares, in seconds."""
        return Promise(
            effect_class=self.effect,
            timeout=_seconds(self.timeout) or settings().tool_timeout,
            key_retention=_seconds(self.key_retention),
            max_request_lifetime=_seconds(self.max_request_lifetime),
            consistency_window=_seconds(self.consistency_window) or 0.0,
        )

    @cached_property
    def per_second(self) -> float | None:
        """The rate limit in calls a second."""
        return per_second(self.rate_limit, owner=f"tool {self.name}")

    @cached_property
    def request_type(self) -> Typed:
        """The adapter of requests: from ``Tool[Request, Result]`` or ``execute``'s annotations."""
        annotation = self._annotation(0, "request")
        check_fields(annotation, self.volatile | self.secret, owner=f"tool {self.name}")
        return Typed(annotation, subject=f"the request of {self.name}")

    @cached_property
    def result_type(self) -> Typed:
        """The adapter of results."""
        return Typed(self._annotation(1, "return"), subject=f"the result of {self.name}")

    def asked(self, request: object) -> Asked:
        """A request as it is sent, recorded and bound to its key. Raises for what cannot be recorded."""
        return ask(self.request_type, request, volatile=self.volatile, secret=self.secret)

    def _annotation(self, place: int, parameter: str, /) -> Any:
        for base in _generic_bases(type(self)):
            given = get_args(base)[place]
            if not isinstance(given, TypeVar):
                return given
        hints = annotations_of(type(self).execute, owner=f"tool {self.name}")
        found = hints.get(parameter, Any)
        return Any if isinstance(found, TypeVar) else found

    def __repr__(self) -> str:
        return f"<tool {self.name}>"


def _generic_bases(kind: type) -> list[Any]:
    return [
        base
        for one in kind.__mro__
        for base in getattr(one, "__orig_bases__", ())
        if isinstance(get_origin(base), type)
        and issubclass(get_origin(base), Tool)
        and len(get_args(base)) == 2
    ]


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()
