"""What journal and service say of runs that have come to rest. Reads only, in a few statements for all of them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, LiteralString

from models import database
from models.values import decode
from tests.reliability import markers
from tests.reliability.kills import Kill, Kind, Plan
from tests.support.world import World

_STEPS = {"a": "book", "b": "book#2"}  #: of transactional runs, by place
_PLACES = {"1": "a", "2": "b"}  #: by an effect's number within its step

_EFFECTS: LiteralString = """
SELECT run_id, key, state, source, sends, person, result, extract(epoch FROM settled_at)::float8
FROM effects WHERE run_id = ANY(%(ids)s)"""

_BOOKED: LiteralString = """
SELECT run_id, step_key, attempt, extract(epoch FROM finished_at)::float8 FROM step
WHERE run_id = ANY(%(ids)s) AND state = 'completed'"""

#: Every attempt at a step that ever began.
_CLAIMS: LiteralString = """
SELECT run_id, extract(epoch FROM claimed)::float8 FROM (
    SELECT run_id, started_at FROM attempt
    UNION ALL SELECT run_id, started_at FROM step
    UNION ALL SELECT run_id, claimed_at FROM live) AS began(run_id, claimed)
WHERE run_id = ANY(%(ids)s) AND claimed IS NOT NULL"""

_DEATHS: LiteralString = """
SELECT run_id, count(*) FILTER (WHERE outcome = 'died'), count(*) FILTER (WHERE outcome = 'expired')
FROM attempt WHERE run_id = ANY(%(ids)s) GROUP BY run_id"""

_ASKED: LiteralString = """
SELECT run_id, extract(epoch FROM at)::float8 FROM event
WHERE run_id = ANY(%(ids)s) AND kind = 'effect_needs_person'"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One effect as the journal has it. ``result``: what the step was given."""

    key: str
    state: str
    source: str | None
    sends: int
    person: str | None = None
    result: str | None = None
    settled_at: float | None = None


@dataclass(frozen=True, slots=True)
class Witnessed:
    """One intent as the service has it. ``made``: (id, when) of all that was ever made of it."""

    made: Sequence[tuple[str, float]] = ()
    asked: Sequence[float] = ()  #: when each request for it came
    keys: frozenset[str] = frozenset()


@dataclass(slots=True)
class Seen:
    """One run, from both sides."""

    plan: Plan
    state: str = "gone"
    recorded: dict[str, Recorded] = field(default_factory=dict)  #: by place
    witnessed: dict[str, Witnessed] = field(default_factory=dict)
    fired: dict[Kill, float] = field(default_factory=dict)
    claims: list[float] = field(default_factory=list)  #: when any step was claimed
    persons: list[float] = field(default_factory=list)  #: when a person was asked
    died: int = 0  #: attempts whose process was seen to die
    expired: int = 0  #: attempts whose lease had to decide


def look(world: World, plans: Iterable[Plan]) -> list[Seen]:
    """All of these runs, of one kind."""
    found = {plan.run_id: Seen(plan) for plan in plans}
    kind = next(iter(found.values())).plan.kind
    given = {"ids": list(found)}
    _read_runs(found, given)
    if kind is Kind.TRANSACTIONAL:
        _read_bookings(found, given)
    else:
        _read_effects(found, given)
    _witness(world, kind, found.values())
    return list(found.values())


def _read_runs(found: Mapping[str, Seen], given: Mapping[str, object]) -> None:
    for run_id, state in database.fetch(
        "SELECT run_id, state FROM run WHERE run_id = ANY(%(ids)s)", given
    ):
        found[run_id].state = state
    for run_id, at in database.fetch(_CLAIMS, given):
        found[run_id].claims.append(at)
    for run_id, at in database.fetch(_ASKED, given):
        found[run_id].persons.append(at)
    for run_id, died, expired in database.fetch(_DEATHS, given):
        found[run_id].died, found[run_id].expired = died, expired
    for run_id, seen in found.items():
        fired = {kill: markers.fired_at(run_id, kill) for kill in seen.plan.kills}
        seen.fired = {kill: at for kill, at in fired.items() if at is not None}


def _read_effects(found: Mapping[str, Seen], given: Mapping[str, object]) -> None:
    for run_id, key, state, source, sends, person, result, at in database.fetch(_EFFECTS, given):
        found[run_id].recorded[_PLACES[key.rpartition(":")[2]]] = Recorded(
            key=key, state=state, source=source, sends=sends, person=person, result=_id_in(result),
            settled_at=at,
        )  # fmt: skip


def _id_in(result: str | None) -> str | None:
    value: Any = decode(result) if result else None
    return value["resource_id"] if value else None


def _read_bookings(found: Mapping[str, Seen], given: Mapping[str, object]) -> None:
    """A completed step is what settles its rows; its result is the attempt that wrote them."""
    places = {step_key: place for place, step_key in _STEPS.items()}
    for run_id, step_key, attempt, at in database.fetch(_BOOKED, given):
        if step_key in places:
            found[run_id].recorded[places[step_key]] = Recorded(
                key=step_key, state="settled", source="answer", sends=attempt, result=str(attempt),
                settled_at=at,
            )  # fmt: skip


def _witness(world: World, kind: Kind, found: Iterable[Seen]) -> None:
    """What the service counted; the rows of transactional steps, of which the journal knows nothing."""
    made, asked, keys = _tables(), _tables(), _tables()
    for one in world.fx.resources(f"{kind}-"):
        made[one["intent"]].append((one["id"], one["made_at"]))
    for one in world.fx.requests(f"{kind}-"):
        if one["kind"] != "lookup":
            asked[one["name"]].append(one["at"])
            keys[one["name"]].append(one["key"])
    if kind is Kind.TRANSACTIONAL:
        made = _rows()
    for seen in found:
        for place, name in zip("ab", seen.plan.names, strict=True):
            own = frozenset(key for key in keys[name] if key)
            seen.witnessed[place] = Witnessed(made[name], asked[name], own)


def _rows() -> defaultdict[str, list[Any]]:
    made = _tables()
    for name, attempt, at in database.fetch(
        "SELECT name, attempt, extract(epoch FROM made_at)::float8 FROM booking", {}
    ):
        made[name].append((str(attempt), at))
    return made


def _tables() -> defaultdict[str, list[Any]]:
    return defaultdict(list)
