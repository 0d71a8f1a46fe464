"""One request and what comes of it, as orders to whoever drives it: asked until an answer is whole.

    admitted -> numbered -> on record? its answer
                         -> a place at the endpoint -> money set aside -> send -> recorded and settled

An answer that is not whole is recorded, rejected, and asked for again at the next position, as often as allowed
over all attempts.
"""

import time
from typing import Any

from models.failpoints import FailPoint, failpoint
from models.journal.call_values import Place, Reservation
from tasks.errors import AnswerIncomplete
from tasks.recorder import dialects, digests, guard, money, scopes, waiting
from tasks.recorder.driving import Steps
from tasks.recorder.filling import filled
from tasks.recorder.keeping import Keeping, unrecorded
from tasks.recorder.options import CallOptions
from tasks.recorder.reading import Reading
from tasks.recorder.recorder import Recorder
from tasks.recorder.values import Arrived, Incoming, NoAnswer, Outgoing, Send

_SHOWN = 2000  #: characters of an answer that was given up

#: The service broke, or a gateway lost it, over the request: it may have worked on it, and bill it. One that turns
#: requests away (429, 503, 529) has not, nor has one that finds fault with them.
_PERHAPS_BILLED = frozenset({408, 500, 502, 504, *range(520, 525)})

#: That an answer made in the background is not there is an answer too.
_FORGOTTEN = frozenset({404, 410})

#: A reader wants the same again after these: they say something about the moment, not about what was read.
_PASSING = frozenset({401, 403, 407, 408, 425, 429})

#: Faults found with the moment rather than with a request to a model: asked again, it may be taken.
_UNSETTLED = frozenset({402, 407, 409, 423, 425})

#: In which the SDKs of OpenAI and Anthropic count the tries of one call, from 0.
_TRIES = "x-stainless-retry-count"


class Exchange:
    """One logical call of a step."""

    def __init__(self, recorder: Recorder, request: Outgoing, options: CallOptions) -> None:
        self._rec, self._request, self._options = recorder, request, options
        self._claimed = recorder.claimed
        self._admitted = guard.admit(
            request, untracked=self._claimed.untracked, step=self._claimed.step_key
        )
        self._kept = Keeping(recorder, self._admitted, request)

    def steps(self) -> Steps:
        """The exchange, to be driven."""
        what = f"request to {self._admitted.endpoint.url}"
        with self._rec.ledger.under_way(what):
            if self._admitted.kind == "untracked":
                return (yield from self._pass())
            with scopes.asking(self._rec.numbering, what=self._rec.what) as turn:
                key = turn.path, self._kept.digest
                if not self._is_repeat:
                    self._rec.given_up.pop(key, None)
                elif key in self._rec.given_up:
                    raise self._rec.given_up[key]
                return (yield from self._ask(turn))

    @property
    def _is_repeat(self) -> bool:
        """The client makes the request again by itself; whoever called it knows nothing of that."""
        tries = (value for name, value in self._request.headers if name.lower() == _TRIES)
        return next(tries, "0") != "0"

    def _pass(self) -> Steps:
        """A step that does untracked I/O: nothing is recorded, as little as of its other doings."""
        self._rec.require_trust()
        try:
            arrived = yield Send(filled(self._request), self._options.on_chunk)
        except NoAnswer as lost:
            raise lost.cause from lost.cause.__cause__
        arrived = _whole(arrived)
        return Incoming(status=arrived.status, headers=arrived.headers, body=arrived.body)

    def _ask(self, turn: scopes.Turn) -> Steps:
        counted = 0
        while True:
            position, record = self._kept.met(turn)
            incoming = self._kept.recalled(record, self._options) if record else None
            if incoming is None:
                generation = self._rec.history.generation
                place = Place(generation, turn.path, position)
                if record is not None:  # too old for its reader
                    place = self._rec.refreshing(turn.path, position)
                with self._rec.air.seat() as self._seat:
                    incoming = yield from self._live(place, turn)
            if self._is_taken(incoming):
                incoming.asks = counted + 1
                return incoming
            counted += incoming.counts + (incoming.lost if counted else 0)
            incoming.reject(incoming.state)
            if counted >= self._options.max_asks or self._admitted.kind == "read":
                raise self._incomplete(incoming, turn.path, counted)

    def _is_taken(self, incoming: Incoming) -> bool:
        if incoming.place is None or incoming.state in ("complete", "pending"):
            return True
        if incoming.status >= 400:  # what the service says about the request, for its maker to hear
            return True
        if incoming.state != "length" or incoming.verdict == "rejected":
            return False
        if (
            incoming.verdict is None
            and self._options.accept_length
            and not self._options.give_verdict
        ):
            incoming.accept()
        return self._options.accept_length or incoming.verdict == "accepted"

    def _incomplete(self, incoming: Incoming, path: str, asks: int) -> AnswerIncomplete:
        times = "once" if asks == 1 else f"{asks} times"
        error = AnswerIncomplete(
            f"{self._admitted.endpoint.url} was asked {times} by step {self._claimed.step_key!r} of run "
            f"{self._claimed.run_id}, and no answer was whole: the last one is {incoming.state!r}"
            f"{' (' + incoming.model + ')' if incoming.model else ''}. All are on record with what they cost, none "
            f"is accepted. Change the prompt or its limits, then `onward runs retry` asks anew.",
            state=incoming.state, text=digests.as_text(incoming.body)[:_SHOWN], counts=incoming.counts,
            lost=incoming.lost,
        )  # fmt: skip
        if not self._options.give_verdict:
            self._rec.given_up[path, self._kept.digest] = error
        return error

    # -- from the world ---------------------------------------------------------------------------------

    def _live(self, place: Place, turn: scopes.Turn) -> Steps:
        outgoing = filled(self._request)  # a missing secret stops it before anything is set aside
        if self._admitted.kind == "model":
            return (yield from self._live_model(place, outgoing))
        troubled = yield from waiting.for_place(
            self._rec, self._admitted.endpoint, tokens=0, seat=self._seat
        )
        self._rec.require_trust()
        started = time.monotonic()
        try:
            arrived = yield Send(outgoing, self._options.on_chunk)
        except NoAnswer as lost:
            if self._admitted.polls and not lost.of_caller:  # what is being made there is paid for
                raise waiting.unreachable(self._rec, self._admitted.endpoint, lost) from lost.cause
            raise lost.cause from lost.cause.__cause__
        arrived = _whole(arrived)
        if self._admitted.polls and arrived.status >= 400 and arrived.status not in _FORGOTTEN:
            waiting.after_refusal(self._rec, self._admitted.endpoint, self._request, arrived)
        waiting.after_read(self._rec, self._admitted.endpoint, arrived)
        incoming = self._read(place, turn, arrived, started=started)
        if troubled and arrived.status not in _PASSING and arrived.status < 500:
            waiting.after_success(self._rec, self._admitted.endpoint)
        return incoming

    def _read(
        self, place: Place, turn: scopes.Turn, arrived: Arrived, *, started: float
    ) -> Incoming:
        """An answer to something that only reads, recorded when it says something that lasts."""
        reading = Reading("complete")
        if self._admitted.dialect is not None and arrived.status < 300:
            reading = self._pinned(dialects.read(self._admitted.dialect, arrived))
        if reading.state == "pending" or (self._admitted.polls and arrived.status >= 400):
            turn.give_back()  # asked until it is there: how often is nobody's business
            return unrecorded(arrived, reading, self._request)
        if arrived.status in _PASSING or arrived.status >= 500:
            return unrecorded(arrived, reading, self._request)
        reservation = self._rec.backgrounds.pop(reading.response_id or "", None)
        charge = money.charge(reading, reservation, started=started) if reservation else None
        return self._kept.record(
            place, arrived, reading, reservation=reservation, charge=charge, started=started
        )

    def _live_model(self, place: Place, outgoing: Outgoing) -> Steps:
        rec, endpoint = self._rec, self._admitted.endpoint
        wanted = dialects.wanted(self._dialect, self._request.body)
        worst = rec.purse.worst(wanted, endpoint)
        troubled = yield from waiting.for_place(rec, endpoint, tokens=worst.tokens, seat=self._seat)
        rec.charge_lost()
        reservation = money.reservation(place, worst, model=wanted.model)
        rec.purse.reserve(reservation)
        self._fail(FailPoint.L1, place)
        started = time.monotonic()
        arrived = yield from self._sent(outgoing, reservation, started=started)
        self._fail(FailPoint.L2, place)
        if not 200 <= arrived.status < 300:
            if arrived.status in _PERHAPS_BILLED:
                rec.purse.charge_all(reservation, started=started)
            waiting.after_refusal(rec, endpoint, self._request, arrived, held=reservation)
            if arrived.status in _UNSETTLED or arrived.status < 400 or arrived.broken is not None:
                return unrecorded(arrived, Reading("failed"), self._request)
            return self._kept.record(place, arrived, Reading("failed"), started=started)
        incoming = self._answered(place, arrived, reservation, started=started)
        if troubled:  # after the record: nothing comes between an answer and its being written down
            waiting.after_success(rec, endpoint)
        return incoming

    def _answered(
        self, place: Place, arrived: Arrived, reservation: Reservation, *, started: float
    ) -> Incoming:
        reading = self._pinned(dialects.read(self._dialect, arrived))
        if reading.state == "pending" and reading.response_id:
            # Its price is known when it is there: what was set aside stays so until then.
            self._rec.backgrounds[reading.response_id] = reservation
            return self._kept.record(place, arrived, reading, started=started)
        charge = money.charge(reading, reservation, started=started)
        return self._kept.record(
            place, arrived, reading, reservation=reservation, charge=charge, started=started
        )

    def _sent(self, outgoing: Outgoing, reservation: Reservation, *, started: float) -> Any:
        """What arrived. Whatever else comes of it, the money is settled by what may have been billed."""
        rec = self._rec
        try:
            rec.require_trust()
        except BaseException:
            rec.purse.release(reservation)
            raise
        try:
            arrived = yield Send(outgoing, self._options.on_chunk)
        except NoAnswer as lost:
            if lost.of_caller:
                rec.purse.release(reservation)
                raise lost.cause from lost.cause.__cause__
            if lost.has_left:
                rec.purse.charge_all(reservation, started=started)
            else:
                rec.purse.release(reservation)
            raise waiting.unreachable(rec, self._admitted.endpoint, lost) from lost.cause
        except BaseException:  # a time limit, a shutdown, a cancelled task
            rec.purse.charge_all(reservation, started=started)
            raise
        return arrived

    def _pinned(self, reading: Reading) -> Reading:
        pin = self._options.pin
        judged = reading.state not in ("cut", "malformed", "failed", "pending")
        if pin is None or not judged or dialects.fits(reading.model, pin):
            return reading
        return reading.as_state("other_model", f"{reading.model} answered in place of {pin}")

    @property
    def _dialect(self) -> dialects.Dialect:
        if self._admitted.dialect is None:
            raise AssertionError("a model call has a dialect")
        return self._admitted.dialect

    def _fail(self, point: FailPoint, place: Place) -> None:
        failpoint(point, self._claimed.step_name, f"{place.scope}:{place.position}")


def _whole(arrived: Arrived | None) -> Arrived:
    """What was read, to its end; otherwise the reader hears of it as of any broken connection."""
    if arrived is None:
        raise AssertionError("a request was driven as if it were a wait")
    if arrived.broken is not None:
        raise arrived.broken
    return arrived
