"""Undoing one effect: the same life as a call's, with a key of its own.

    asked first: undone by somebody else?   -> settled without a request
    intent -> compensate -> settle | refuse | doubt

An undo that may have happened is looked up like any effect, by ``Tool.lookup_compensation``.
"""

from collections.abc import Callable
from typing import Any

from models.errors import OnwardError
from models.journal import effects, undoing
from models.journal.effect_values import Intent, Recorded, Sender, Standing
from models.journal.undoing import Done, Undo
from models.messages import describe, safe_repr
from models.redaction import redact
from models.settings import settings
from models.values import encode
from tasks.asking import Attempt
from tasks.calling import Answered, Call, Raised
from tasks.sending import Sending
from tasks.tool_base import Absent, Found, Looked, Tool, Undecided
from tasks.tool_requests import Asked

_NOTHING = "null"


class LookFailed(Exception):
    """Whether it is undone already could not be told: the tool raised, or took too long."""


class Undoing(Sending):
    """One undo, on the thread that does it. Raises what ended it otherwise, as a call in a body does."""

    def __init__(
        self, undo: Undo, done: Done, tool: Tool[Any, Any], *, sender: Sender,
        require_trust: Callable[[], object],
    ) -> None:  # fmt: skip
        """Raises ``OnwardError`` when this version of the tool cannot read what is to be undone."""
        asked = Asked(tool.request_type.load(done.request), done.request, done.request_digest)
        super().__init__(
            Attempt(undo, sender, require_trust, lambda stop: stop), tool, asked, key=undo.key
        )
        self._undo, self._done = undo, done
        self._result = tool.result_type.load(done.result)

    def look(self) -> Looked | None:
        """Whether it is undone already; None: nobody can be asked. Raises ``LookFailed``.

        Within the time that a look-up may miss what exists, not seeing it says nothing yet.
        """
        if not self._tool.can_look_up_undo:
            return None
        call = Call(self._ask, check=lambda: None, late=lambda _: None)
        match call.run(settings().lookup_time_limit):
            case None:
                raise LookFailed(f"no answer within {settings().lookup_time_limit:g} s")
            case Raised(NotImplementedError()):
                return None
            case Raised(error):
                raise LookFailed(describe(error)) from error
            case Answered(Found()) if (left := self._unseen_for()) > 0:
                return Undecided("it is not there, and a look-up may still miss it", again_in=left)
            case Answered(Found() | Absent() | Undecided() as found):
                return found
            case Answered(odd):
                raise LookFailed(f"it returned {safe_repr(odd)}, not Found, Absent or Undecided")

    def keep_found(self, found: Found[Any]) -> None:
        """Record that somebody else has undone it."""
        text, worker = _text(found.result), self._attempt.sender.worker
        self._write(
            lambda: undoing.found_undone(
                self._undo, tool_version=self._tool.version, result=text, worker=worker,
                reason="it was undone already, and nothing was sent",
            )
        )  # fmt: skip

    def _unseen_for(self) -> float:
        return self._tool.promise.consistency_window - self._done.age

    def _ask(self) -> Any:
        return self._tool.lookup_compensation(
            self._asked.value, self._result, key=self._undo.undoes
        )

    def _execute(self) -> Any:
        return self._tool.compensate(self._asked.value, self._result, key=self._key)

    def _intend(self, intent: Intent) -> Standing:
        return undoing.intend(intent, self._undo, self._attempt.sender)

    def _intent(self) -> Intent:
        tool = self._tool
        return Intent(
            key=self._key, tool=tool.name, tool_version=tool.version, promise=tool.promise,
            request=self._asked.recorded, request_digest=self._asked.digest,
            send_within=settings().send_window, undoes=self._undo.undoes,
        )  # fmt: skip

    def _settle(self, value: Any) -> None:
        text = _text(value)
        self._write(lambda: effects.settle(self._key, self._claimed, result=text))
        self.is_open = False

    def _load(self, recorded: Recorded) -> None:
        """Nobody builds on what an undo returned."""

    def _recorded(self, value: Any) -> str:
        return _text(value)


def _text(value: Any) -> str:
    """What an undo returned, where the journal can hold it: nobody builds on it, and it has happened."""
    try:
        return redact(encode(value, limit=settings().output_limit))
    except OnwardError:
        return _NOTHING
