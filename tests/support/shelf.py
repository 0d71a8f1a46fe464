"""An outside world within the test's own process, whose things can be put there and taken away again."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import Any

from models.ids import idempotency_key
from models.journal import effects
from models.journal.effect_values import Granted, Intent
from models.journal.values import Claimed
from models.settings import settings
from tasks.tools import Absent, Effect, Found, Looked, NotSent, Refused, Tool, Undecided
from tests.support.intents import SENDER
from tests.support.toys import Worker, row_of, submit_run


@dataclass
class Shelf:
    """What is there, by the key it was put with, and every request to take something away, in order."""

    things: dict[str, str] = field(default_factory=dict)
    undos: list[tuple[str, str]] = field(default_factory=list)  #: (name, key of the undo)
    looks: list[str] = field(default_factory=list)
    #: What happens to the next requests to take this away: raised before it is gone, or called.
    before: dict[str, list[BaseException | Callable[[], object]]] = field(default_factory=dict)
    after: dict[str, list[BaseException | Callable[[], object]]] = field(default_factory=dict)
    look_up: Callable[[str], Looked] | None = None

    def clear(self) -> None:
        self.__init__()  # type: ignore[misc]

    def take_away(self, name: str, *, original: str, key: str) -> dict[str, bool]:
        self.undos.append((name, key))
        _happen(self.before, name)
        gone = self.things.pop(original, None) is not None
        _happen(self.after, name)
        return {"gone": gone}

    def find(self, key: str) -> Looked:
        self.looks.append(key)
        if self.look_up is not None:
            return self.look_up(key)
        return Found(self.things[key]) if key in self.things else Absent()

    @property
    def undone(self) -> list[str]:
        return [name for name, _ in self.undos]


def _happen(ordered: dict[str, list[BaseException | Callable[[], object]]], name: str) -> None:
    if not ordered.get(name):
        return
    what = ordered[name].pop(0)
    if isinstance(what, BaseException):
        raise what
    what()


SHELF = Shelf()


class _Put(Tool[str, str], abstract=True):
    """The request is a name, the result the key it was put with."""

    def execute(self, request: str, *, key: str) -> str:
        SHELF.things[key] = request
        return key

    def compensate(self, request: str, result: str, *, key: str) -> dict[str, bool]:
        return SHELF.take_away(request, original=result, key=key)


class PutAndSee(_Put):
    """Can be looked up."""

    name, effect = "shelf.see", Effect.QUERYABLE
    max_request_lifetime = timedelta(seconds=30)
    consistency_window = timedelta(seconds=10)
    timeout = timedelta(seconds=5)

    def lookup(self, request: str, *, key: str) -> Looked:
        return SHELF.find(key)


class PutByKey(_Put):
    """Cannot be looked up, and honours keys."""

    name, effect = "shelf.key", Effect.IDEMPOTENT
    key_retention = timedelta(hours=1)
    timeout = timedelta(seconds=5)


class PutBlindly(_Put):
    """Can neither be looked up nor asked twice."""

    name, effect = "shelf.blind", Effect.ONCE
    timeout = timedelta(seconds=5)


class Mail(Tool[str, str]):
    """Cannot be taken back."""

    name, effect = "shelf.mail", Effect.ONCE

    def execute(self, request: str, *, key: str) -> str:
        SHELF.things[key] = request
        return key


class Weigh(Tool[str, str]):
    """Changes nothing."""

    name, effect = "shelf.weigh", Effect.PURE

    def execute(self, request: str, *, key: str) -> str:
        return request


_numbers = count(1)


def ask(claimed: Claimed, tool: Tool[Any, Any], name: Any) -> str:
    """An intent of this step that was granted; its key."""
    key = idempotency_key(claimed.run_id, claimed.step_key, tool.name, next(_numbers))
    asked = tool.asked(name)
    intent = Intent(
        key=key, tool=tool.name, tool_version=tool.version, promise=tool.promise, request=asked.recorded,
        request_digest=asked.digest, send_within=settings().send_window,
    )  # fmt: skip
    assert isinstance(effects.intend(intent, claimed, SENDER), Granted)
    return key


def did(claimed: Claimed, tool: Tool[Any, Any], name: Any) -> str:
    """An effect of this step that happened and was settled; its key."""
    key = ask(claimed, tool, name)
    result = tool.execute(name, key=key)
    effects.settle(key, claimed, result=tool.result_type.dump(result))
    return key


def failed_run(*calls: tuple[Tool[Any, Any], Any], **options: Any) -> tuple[str, list[str]]:
    """A run of two steps whose first did this and whose second failed; its id, and the effects' keys."""
    run_id = submit_run(row_of("a", "b"), **options)
    worker = Worker()
    claimed = worker.take(run_id, "a")
    keys = [did(claimed, tool, name) for tool, name in calls]
    worker.complete(claimed)
    worker.fail(worker.take(run_id, "b"))
    return run_id, keys


__all__ = [
    "SHELF", "Mail", "NotSent", "PutAndSee", "PutBlindly", "PutByKey", "Refused", "Undecided", "Weigh", "ask",
    "did", "failed_run",
]  # fmt: skip
