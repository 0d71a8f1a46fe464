"""The requests of one attempt: numbered, answered from the record, and whatever is new recorded.

A transport hands a request in and drives the exchange: the exchange itself does no network I/O, so it is the
same for threads and for asyncio.
"""

from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from typing import Any, NoReturn

from models.failpoints import FailPoint, failpoint
from models.journal import calls
from models.journal.call_values import History, Place, RecordedCall, Reservation, Verdict
from models.journal.effect_values import Sender
from models.journal.errors import JournalError
from models.journal.values import Claimed
from models.redaction import redact as redact_secrets
from models.states import BlockReason
from tasks import patience
from tasks.effects import Ledger
from tasks.errors import AnswerIncomplete, AttemptLost, CallPostponed, EffectBlocked, Stop
from tasks.recorder import scopes
from tasks.recorder.air import Air
from tasks.recorder.driving import Steps, adrive, drive
from tasks.recorder.money import Purse
from tasks.recorder.options import CallOptions
from tasks.recorder.values import Arrived, Incoming, Outgoing, Send

_REFRESHED = "/refreshed:"  #: scope of what was read again in place of an older record


class Recorder:
    """What ``ctx.httpx_client`` and ``ctx.llm`` stand on."""

    def __init__(
        self,
        claimed: Claimed,
        sender: Sender,
        ledger: Ledger,
        *,
        require_trust: Callable[[], object],
        redact: Callable[[str], str] = redact_secrets,
        on_mismatch: str = "block",
    ) -> None:
        self.claimed, self.sender, self.ledger = claimed, sender, ledger
        self.require_trust, self.redact = require_trust, redact
        self.numbering = scopes.Numbering()
        self._lost = claimed.attempt > 1  #: what earlier attempts set aside is to be charged first
        #: Of answers that are being made, by their ids.
        self.backgrounds: dict[str, Reservation] = {}
        self.given_up: dict[tuple[str, str], AnswerIncomplete] = {}
        self._on_mismatch = on_mismatch
        self._history: History | None = None
        self._losses: dict[tuple[str, int], int] | None = None
        self.has_replayed = False  #: this attempt has gone on from a recorded answer
        ledger.before_effects(self.require_nothing_left)

    @cached_property
    def purse(self) -> Purse:
        return Purse(self.claimed)

    @cached_property
    def air(self) -> Air:
        return Air(self.ledger, self.require_trust)

    # -- what the context offers ------------------------------------------------------------------------

    def client(self, options: dict[str, Any]) -> Any:
        from tasks.recorder.transports import client  # noqa: PLC0415 - an HTTP library only where one is used

        return client(self, options)

    def async_client(self, options: dict[str, Any]) -> Any:
        from tasks.recorder.transports import async_client  # noqa: PLC0415

        return async_client(self, options)

    def transport(self, *, async_: bool, library: str) -> Any:
        from tasks.recorder.transports import transport  # noqa: PLC0415

        return transport(self, async_=async_, library=library)

    def scope(self, name: str) -> AbstractContextManager[None]:
        return scopes.named(self.numbering, name, what=self.what)

    def enter_task(self) -> None:
        scopes.enter_task()

    async def settle(self, error: BaseException | None) -> None:
        await self.air.settle(error)

    def close(self) -> None:
        self.air.close()

    def entered(self) -> AbstractContextManager[None]:
        """The body runs within."""
        return scopes.entered(self.numbering, self.what)

    @property
    def what(self) -> str:
        return f"step {self.claimed.step_key!r} of run {self.claimed.run_id}"

    # -- exchanges --------------------------------------------------------------------------------------

    def exchange(
        self, request: Outgoing, send: Callable[[Send], Arrived], *, options: CallOptions
    ) -> Incoming:
        """The answer to a request, from the record or by ``send``; waits on this thread."""
        return drive(self._steps(request, options), send)

    async def aexchange(
        self,
        request: Outgoing,
        send: Callable[[Send], Coroutine[Any, Any, Arrived]],
        *,
        options: CallOptions,
    ) -> Incoming:
        """``exchange`` in an asyncio task: the loop goes on while the answer is waited for."""
        return await adrive(self._steps(request, options), send, air=self.air)

    def _steps(self, request: Outgoing, options: CallOptions) -> Steps:
        from tasks.recorder.exchange import Exchange  # noqa: PLC0415 - it stands on this module

        return Exchange(self, request, options).steps()

    # -- the record -------------------------------------------------------------------------------------

    @property
    def history(self) -> History:
        """What the step has on record, read once; a first attempt has nothing."""
        if self._history is None:
            if self.claimed.attempt == 1:
                self._history = History(0, 0, {})
            else:
                self._history = self.written(lambda: calls.history(self.claimed))
        return self._history

    def next_on_record(
        self, path: str, position: int, *, digest: str
    ) -> tuple[int, RecordedCall | None]:
        """The place of a request that has come to a position of its scope, and what is on record there.

        A failure that was not written down has used up a position: whoever asks again finds his record after the
        gap. What a person has let go by trying anew is gone over as well.
        """
        record = self.history.calls.get((path, position))
        if record is not None and not self._is_let_go(record, digest):
            return position, record
        free = position
        for place in self._places(path, position):
            record = self.history.calls[path, place]
            if not self._is_let_go(record, digest):
                return (place, record) if digest == record.digest or place == free else (free, None)
            free += place == free
        return free, None

    def _places(self, path: str, position: int) -> list[int]:
        """The positions on record in a scope, from one on."""
        return sorted(
            place for scope, place in self.history.calls if scope == path and place >= position
        )

    def _is_let_go(self, record: RecordedCall, digest: str | None = None) -> bool:
        """Rejected or refused before a person let the step start anew: another request may stand in its place.

        The same request is given it again, but for a refusal that was the end: what came after one rests on it.
        """
        if self.counts(record) or not (record.verdict == "rejected" or record.is_refusal):
            return False
        if record.digest != digest:
            return True
        after = self._places(record.place.scope, record.place.position + 1)
        return record.is_refusal and (
            not after or self.history.calls[record.place.scope, after[0]].digest == digest
        )

    def refreshed(self, path: str, position: int) -> RecordedCall | None:
        """The newest record of something that was read again."""
        scope = f"{path}{_REFRESHED}{position}"
        found = [call for (where, _), call in self.history.calls.items() if where == scope]
        return max(found, key=lambda call: call.place.position, default=None)

    def refreshing(self, path: str, position: int) -> Place:
        """Where the next answer to something that is read again is recorded."""
        before = self.refreshed(path, position)
        number = before.place.position + 1 if before else 0
        return Place(self.history.generation, f"{path}{_REFRESHED}{position}", number)

    def counts(self, record: RecordedCall) -> bool:
        """Whether a rejected answer counts against the limit on asking."""
        return record.token > self.history.pardoned_token

    def lost_at(self, place: Place) -> int:
        """How often a place was asked for without an answer that anybody got, and may have been paid for."""
        if self.claimed.attempt == 1:
            return 0
        if self._losses is None:
            self._losses = self.written(lambda: calls.losses(self.claimed))
        return self._losses.get((place.scope, place.position), 0)

    def judge(self, place: Place, *, verdict: Verdict, reason: str | None = None) -> None:
        """What was made of an answer, durable on return; the same words in every attempt."""
        try:
            self.written(lambda: calls.judge(self.claimed, place, verdict=verdict, reason=reason))
        except JournalError as error:
            raise self.ledger.note(AttemptLost(str(error))) from error
        failpoint(FailPoint.L4, self.claimed.step_name, f"{place.scope}:{place.position}")

    def charge_lost(self) -> None:
        """Before anything new is set aside: what earlier attempts had set aside is charged."""
        if self._lost:
            self._lost = False
            self.purse.charge_lost()

    def postpone(self, delay: float, reason: str) -> NoReturn:
        """Send the step back for ``delay`` seconds: it holds no worker, and nothing is counted."""
        raise self.ledger.note(
            CallPostponed(f"Step {self.claimed.step_key!r} waits for {reason}.", delay=delay)
        )

    def written(self, write: Callable[[], Any]) -> Any:
        """A verb's answer; every verb may be repeated."""
        return patience.recorded(write, confirmed=lambda: None, stoppable=True)

    # -- when the record is of something else -----------------------------------------------------------

    def mismatch(self, why: str, *, ended: bool = False) -> None:
        """The body goes another way than on record. Returns when it may go on live, with nothing on record."""
        if self._on_mismatch != "branch" or self.written(lambda: calls.has_effects(self.claimed)):
            self.written(lambda: calls.note_mismatch(self.claimed, why))
            raise EffectBlocked(
                f"Step {self.claimed.step_key!r} of run {self.claimed.run_id} asks for something else than it has "
                f"on record: {why}. The recorded answer is not given for another question, and nothing was sent. "
                f"If the step's code or prompt was changed, start workers with the former one and `onward runs "
                f'resume {self.claimed.run_id}`; or let the step ask anew: @step(on_replay_mismatch="branch"), '
                f"which works while no effect of it has happened.",
                reason=BlockReason.REPLAY_MISMATCH,
            )
        generation = self.written(lambda: calls.open_branch(self.claimed, why))
        if self.has_replayed and not ended:
            raise CallPostponed(
                f"Step {self.claimed.step_key!r} asks for something else than it has on record: {why}. Its records "
                f"are set aside, and it starts anew.",
                delay=0.0,
            )
        self._history = replace(self.history, generation=generation, calls={})

    def require_nothing_left(self) -> None:
        """Before a new effect of the body: everything on record where it stands has been asked for again.

        Siblings may not have come to their requests yet, so theirs are looked at when the step ends.
        """
        path = scopes.current_path(self.numbering)
        mine = self.numbering.used_here() if path is None else {path}
        self._refuse_left([call for call in self._left() if call.place.scope in mine])

    def left_over(self) -> Stop | None:
        """What stops a step that is about to complete: answers on record that it did not ask for."""
        if self.claimed.attempt == 1:
            return None
        try:
            self._refuse_left(self._left(), ended=True)
        except Stop as stop:
            return self.ledger.note(stop)
        except JournalError as error:
            return self.ledger.note(AttemptLost(str(error)))
        return None

    def _left(self) -> list[RecordedCall]:
        return [
            call
            for (scope, position), call in self.history.calls.items()
            if _REFRESHED not in scope
            and position >= self.numbering.reached(scope)
            and not self._is_let_go(call)
        ]

    def _refuse_left(self, left: list[RecordedCall], *, ended: bool = False) -> None:
        if not left:
            return
        first = left[0].place
        self.mismatch(
            f"{len(left)} recorded answers were not asked for again, the first at position {first.position} of "
            f"scope {first.scope!r}",
            ended=ended,
        )
