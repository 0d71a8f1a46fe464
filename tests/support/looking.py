"""Look-ups by hand: an effect in doubt, a look at it, and everything that a look can lead to."""

from collections.abc import Callable
from typing import Any

from models.journal import effects, lookups
from models.journal.effect_values import OpenEffect, Promise
from models.journal.values import Claimed
from tests.support.intents import KEY, QUERYABLE, asking, at_work, send
from tests.support.journal import Journal, Worker

OTHER = "run:a:registry.file:2"
Verb = Callable[[OpenEffect], bool]

VERBS: dict[str, Verb] = {
    "found": lambda it: lookups.found(it, result='"filed"', source="lookup", said="there"),
    "believe absent": lambda it: lookups.believe_absent(it, said="not there"),
    "look again": lambda it: lookups.look_again(it, after=7.0, counts=True, said="not yet"),
    "check failed": lambda it: lookups.check_failed(it, after=7.0, said="no route"),
    "ask person": lambda it: lookups.ask_person(it, said="two of them"),
}


def in_doubt(
    journal: Journal, promise: Promise = QUERYABLE, *, keys: tuple[str, ...] = (KEY,),
    tool: str = "registry.file",
) -> Claimed:  # fmt: skip
    """A step that gave itself back since it does not know whether its effects happened."""
    journal.freeze()
    claimed = at_work()
    for key in keys:
        send(claimed, asking(key, promise, tool=tool))
        effects.doubt(key, claimed, error="no answer in 10 s", call_over=True)
    Worker().interrupt(claimed)
    return claimed


def begun(key: str = KEY, looker: str = "look-1") -> OpenEffect:
    """A look that must be granted."""
    found = lookups.begin(key, looker=looker)
    assert found is not None
    return found


def due(**options: Any) -> list[str]:
    """The keys that are handed out."""
    return [key for _, key, _ in lookups.take_due(limit=100, **options)]


def declare_rewind(journal: Journal) -> None:
    """The journal went back in time, as somebody has just noticed."""
    journal.look.execute(
        "INSERT INTO rewind (rewound_to, declared_at, actor) VALUES (onward_now(), onward_now(), 'ada')"
    )
