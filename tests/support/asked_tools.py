"""Tools whose look-ups do what a test tells them to, and one look-up by hand."""

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar

from celery import Celery

from models.journal.effect_values import Promise
from models.journal.values import Claimed
from recovery.reconcile import reconcile
from tasks.tools import Effect, Tool
from tests.support.intents import KEY, QUERYABLE
from tests.support.journal import Journal
from tests.support.looking import in_doubt

Answer = Callable[[], Any]


class Filed(Tool[dict[str, int], str]):
    """A tool whose look-ups do what a test tells them to."""

    name = "asked.file"
    effect = Effect.QUERYABLE
    answer: ClassVar[Answer]
    requests: ClassVar[list[tuple[object, str]]] = []

    def lookup(self, request: dict[str, int], *, key: str) -> Any:
        Filed.requests.append((request, key))
        return Filed.answer()


class Cancelled(Tool[dict[str, int], str]):
    """Its undone things stay visible."""

    name = "asked.cancelled"
    effect = Effect.ONCE
    answer: ClassVar[Answer]

    def lookup_compensation(self, request: object, result: object, *, key: str) -> Any:
        assert (request, result, key) == ({"servers": 1}, "filed", KEY)
        return Cancelled.answer()


class Posted(Tool[dict[str, int], str]):
    """Cannot be asked."""

    name = "asked.post"
    effect = Effect.ONCE


class Lagging(Filed):
    """Takes a while to show what exists."""

    name = "asked.lagging"
    consistency_window = timedelta(seconds=50)


class Unset(Filed):
    """Needs something of the environment that is not there."""

    name = "asked.unset"

    def __init__(self) -> None:
        self.address = os.environ["ASKED_UNSET_ADDRESS"]


def doubtful(journal: Journal, promise: Promise = QUERYABLE) -> Claimed:
    """A step whose one effect, of such a tool, is in doubt."""
    return in_doubt(journal, promise, tool=Filed.name)


def look(app: Celery, claimed: Claimed, answer: Answer, *, looker: str = "look-1") -> None:
    """Look up the effect under ``KEY``, which is answered like this."""
    Filed.answer = staticmethod(answer)
    reconcile(app, claimed.run_id, KEY, looker=looker)


def raising(error: BaseException) -> Answer:
    """A look-up that raises this."""

    def answer() -> None:
        raise error

    return answer
