"""How often the outside world saw each effect of a run: pure, from what the recorder wrote down.

The run without faults is the measure: what it sent once is to be seen once. An IDEMPOTENT tool's requests
that carry the effect's key are one, since that is what its provider promises; those that do not carry it
are counted one by one, since the provider cannot keep a promise about a key that it never sees.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from models.states import EffectClass
from ops.testing.certify.records import Exchange

#: (method, host, path): what an effect consists of. A path of "" stands for any.
Part: TypeAlias = tuple[str, str, str]
Parts: TypeAlias = Mapping[Part, int]


@dataclass(frozen=True, slots=True)
class Subject:
    """What is counted: an effect of a tool, a step's own traffic, or what the user's counter names."""

    name: str
    step_key: str
    tool: str = ""  #: empty: traffic outside tools, or a name of the user's counter
    effect_class: str = ""
    declared: bool = True


@dataclass(frozen=True, slots=True)
class Seen:
    """What was applied of a subject, and what at most was: a request may have lost its process."""

    surely: Parts = field(default_factory=dict)
    perhaps: Parts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Times:
    """How often an effect was seen. ``least`` is lower than ``most`` when a part of it is missing."""

    least: int
    most: int


def subjects_of(
    exchanges: Iterable[Exchange], effects: Mapping[str, Subject], *, reads: Collection[str] = ()
) -> dict[Subject, Seen]:
    """What a run changed outside, part by part.

    ``effects``: those of tools, by their key without the run's id. ``reads``: beginnings of addresses
    that change nothing, whatever the method.
    """
    found: dict[Subject, list[Exchange]] = {subject: [] for subject in effects.values()}
    for exchange in exchanges:
        if exchange.via == "execute" and exchange.effect in effects:
            found[effects[exchange.effect]].append(exchange)
        elif is_undeclared(exchange, reads):
            found.setdefault(_traffic(exchange), []).append(exchange)
    return {subject: _seen(subject, sent) for subject, sent in found.items()}


def is_undeclared(exchange: Exchange, reads: Collection[str] = ()) -> bool:
    """Whether a step sent something that may change the world, and no tool had to do with it."""
    address = exchange.host + exchange.path
    is_read = any(address.startswith(beginning) for beginning in reads)
    return exchange.via == "step" and bool(exchange.step_key) and exchange.changes and not is_read


def times(seen: Seen, expected: Parts) -> Times:
    """How often an effect was seen, against what it consists of in the run without faults.

    Paths that hold ids of the outside world are others in each run: then hosts and methods are compared.
    """
    surely, perhaps = seen.surely, seen.perhaps
    if not set(perhaps) <= set(expected):
        surely, perhaps, expected = map(_without_paths, (surely, perhaps, expected))
    surplus = [count for part, count in surely.items() if part not in expected]
    ratios = [surely.get(part, 0) / count for part, count in expected.items()]
    least = min((perhaps.get(part, 0) / count for part, count in expected.items()), default=0)
    return Times(math.floor(least), max([math.ceil(max(ratios, default=0)), *surplus]))


def _traffic(exchange: Exchange) -> Subject:
    name = f"{exchange.method} {exchange.host}{exchange.path}"
    return Subject(name, exchange.step_key, declared=False)


def _seen(subject: Subject, exchanges: list[Exchange]) -> Seen:
    """A tool that only reads by its methods is counted by them: some services act on a GET."""
    changing = [exchange for exchange in exchanges if exchange.changes] or exchanges
    applied = [exchange for exchange in changing if exchange.applied]
    undecided = [exchange for exchange in changing if exchange.undecided]
    return Seen(_parts(subject, applied), _parts(subject, [*applied, *undecided]))


def _parts(subject: Subject, exchanges: list[Exchange]) -> Parts:
    seen: Counter[Part] = Counter()
    known: set[tuple[Part, str]] = set()
    for exchange in exchanges:
        part = (exchange.method, exchange.host, exchange.path)
        mark = (part, _honoured(subject, exchange))
        if not mark[1] or mark not in known:
            seen[part] += 1
        known.add(mark)
    return seen


def _honoured(subject: Subject, exchange: Exchange) -> str:
    """What makes two requests one for the provider; empty: nothing does."""
    if subject.declared:
        idempotent = subject.effect_class == EffectClass.IDEMPOTENT
        return "key" if idempotent and exchange.carries_effect_key else ""
    return f"{exchange.key} {exchange.digest}" if exchange.key else ""


def _without_paths(parts: Parts) -> Parts:
    folded: Counter[Part] = Counter()
    for (method, host, _), count in parts.items():
        folded[method, host, ""] += count
    return folded
