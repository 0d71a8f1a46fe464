"""The vocabulary of plans, ``step.s(...)``, ``a | b``, ``group(a, b)``: frozen values.

A canvas is a tree of three kinds of values. A ``Chain`` keeps its parts as they were joined and is
flattened only when read, without recursion: 20,000 steps joined by ``|`` are a left-deep tree, and
copying the links at every ``|`` would be quadratic.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from models.ids import check_identifier
from models.messages import safe_repr
from tasks.errors import DefinitionError, PlanCircle

if TYPE_CHECKING:
    from tasks.workflow import Step

KEY_LIMIT = 100  #: bytes of an explicit step key; keys stand in branch ids, which are indexed
_NO_KWARGS: Mapping[str, Any] = MappingProxyType({})


class _Joinable:
    """What ``|`` joins."""

    __slots__ = ()

    def __or__(self, other: object) -> "Chain":
        return Chain((as_canvas(self), as_canvas(other)))


@dataclass(frozen=True, slots=True)
class Signature(_Joinable):
    """A step with values bound to it, the result of the step before it still to come."""

    step: "Step[..., Any]"
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=lambda: _NO_KWARGS)
    immutable: bool = False  #: made by ``.si``: takes nothing from the step before it
    queue: str | None = None  #: label that replaces the step's own
    key: str | None = None  #: explicit step key

    def set(self, *, queue: str | None = None, key: str | None = None) -> "Signature":
        """The same signature on another queue or under a key of your choice.

        A key names one step of the run: used twice it is a circle, and refused.
        """
        if key is not None:
            check_key(key)
        return replace(self, queue=queue or self.queue, key=key or self.key)

    def __repr__(self) -> str:
        bound = [repr(value) for value in self.args]
        bound += [f"{name}={value!r}" for name, value in self.kwargs.items()]
        return f"{self.step.local_name}.{'si' if self.immutable else 's'}({', '.join(bound)})"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Chain(_Joinable):
    """One after another."""

    parts: "tuple[Canvas, ...]"

    def links(self) -> "Iterator[Signature | Group]":
        """The steps and groups in order, however the chain was put together."""
        open_ids = {id(self)}
        stack: list[tuple[Chain, Iterator[Canvas]]] = [(self, iter(self.parts))]
        while stack:
            chain_, parts = stack[-1]
            part = next(parts, None)
            if part is None:
                stack.pop()
                open_ids.discard(id(chain_))
            elif not isinstance(part, Chain):
                yield part
            elif id(part) in open_ids:
                raise PlanCircle(
                    "a chain contains itself; a loop is written by returning Then(value, next.s())"
                )
            else:
                open_ids.add(id(part))
                stack.append((part, iter(part.parts)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Chain):
            return NotImplemented
        return list(self.links()) == list(other.links())

    __hash__ = None  # type: ignore[assignment]  # its values need not be hashable

    def __repr__(self) -> str:
        return " | ".join(repr(link) for link in self.links())


@dataclass(frozen=True, slots=True, repr=False)
class Group(_Joinable):
    """Side by side; what follows receives the list of the members' results in this order."""

    members: "tuple[Canvas, ...]"
    tolerant: bool = False  #: a failed member arrives as an error value instead of ending the run

    def __repr__(self) -> str:
        tail = ", tolerant=True" if self.tolerant else ""
        return f"group({', '.join(repr(member) for member in self.members)}{tail})"


Canvas: TypeAlias = Signature | Chain | Group


def chain(*parts: Canvas | Iterable[Canvas]) -> Chain:
    """``chain(a, b, c)`` or ``chain([a, b, c])``: the same as ``a | b | c``."""
    members = _members(parts)
    if not members:
        raise DefinitionError("chain() needs at least one signature")
    return Chain(members)


def group(*members: Canvas | Iterable[Canvas], tolerant: bool = False) -> Group:
    """``group(a, b)``, ``group(step.s(x) for x in xs)``; with none, the next step gets ``[]``."""
    return Group(_members(members), tolerant)


def as_canvas(value: object) -> Canvas:
    """``value`` itself when it is a canvas, else an error that says what to write instead."""
    if isinstance(value, Signature | Chain | Group):
        return value
    name = getattr(value, "local_name", None)
    if isinstance(name, str):
        raise DefinitionError(f"`{name}` is a step, not a signature of one: write {name}.s(...)")
    raise DefinitionError(
        f"{safe_repr(value)} ({type(value).__name__}) cannot stand in a plan: "
        "use step.s(...), group(...) or a chain of them"
    )


def check_key(key: str) -> None:
    """Refuse an explicit step key that could not be told from a generated one, or not be stored."""
    check_identifier("step key", key, max_length=KEY_LIMIT)
    if any(char in "#/" or char.isspace() for char in key) or len(key.encode()) > KEY_LIMIT:
        raise DefinitionError(
            f"step key {safe_repr(key)}: a key has no '#', no '/', no space and at most "
            f"{KEY_LIMIT} bytes"
        )


def _members(values: tuple[Canvas | Iterable[Canvas], ...]) -> tuple[Canvas, ...]:
    if len(values) == 1 and isinstance(values[0], Iterable):
        return tuple(as_canvas(value) for value in values[0])
    return tuple(as_canvas(value) for value in values)
