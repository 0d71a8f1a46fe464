"""One request and what comes of it, as orders to whoever drives it: asked until an answer is whole.

    admitted -> numbered -> on record? its answer
                         -> a place at the endpoint -> money set aside -> send -> recorded and settled

An answer that is not whole is recorded, rejected, and asked for again at the next position, as often as allowed
over all attempts.
"""

import json
import time
from typing import Any

from models.failpoints import FailPoint, failpoint
from models.journal import calls
from models.journal.call_values import Charge, NewCall, Place, RecordedCall, Reservation
from tasks.errors import AnswerIncomplete
from tasks.recorder import dialects, digests, guard, money, scopes, waiting
from tasks.recorder.comparing import difference
from tasks.recorder.driving import Steps
from tasks.recorder.filling import filled
from tasks.recorder.options import CallOptions, Freshness
from tasks.recorder.reading import Reading
from tasks.recorder.recorder import Recorder
from tasks.recorder.values import Arrived, Incoming, NoAnswer, Outgoing, Send

#: Of an answer's headers: what belongs to the connection, and what identifies somebody.
_DROPPED = frozenset(
    {
        "connection", "content-encoding", "content-length", "keep-alive", "set-cookie", "set-cookie2",
        "transfer-encoding",
    }
)  # fmt: skip
_SHOWN = 2000  #: characters of an answer that was given up

#: A reader wants the same again after these: they say something about the moment, not about what was read.
_PASSING = frozenset({401, 403, 407, 408, 425, 429})


class Exchange:
    """One logical call of a step."""

    def __init__(self, recorder: Recorder, request: Outgoing, options: CallOptions) -> None:
        self._rec, self._request, self._options = recorder, request, options
        self._claimed = recorder.claimed
        self._admitted = guard.admit(
            request, untracked=self._claimed.untracked, step=self._claimed.step_key
        )
        redact = recorder.redact
        self._url = redact(digests.recordable_url(request.url))
        self._body = redact(digests.as_text(request.body))
        self._digest = digests.digest(
            method=request.method, url=self._url, dialect=self._admitted.name, body=self._body
        )

    def steps(self) -> Steps:
        """The exchange, to be driven."""
        what = f"request to {self._admitted.endpoint.url}"
        with self._rec.ledger.under_way(what):
            if self._admitted.kind == "untracked":
                return (yield from self._pass())
            with scopes.asking(self._rec.numbering, what=self._rec.what) as turn:
                if (given_up := self._rec.given_up.get((turn.path, self._digest))) is not None:
                    raise given_up  # an SDK that tries again by itself
                return (yield from self._ask(turn))

    def _pass(self) -> Steps:
        """A step that does untracked I/O: nothing is recorded, as little as of its other doings."""
        self._rec.require_trust()
        try:
            arrived = yield Send(filled(self._request), self._options.on_chunk)
        except NoAnswer as lost:
            raise lost.cause from lost.cause.__cause__
        assert arrived is not None
        if arrived.broken is not None:
            raise arrived.broken
        return Incoming(status=arrived.status, headers=arrived.headers, body=arrived.body)

    def _ask(self, turn: scopes.Turn) -> Steps:
        counted = 0
        while True:
            position = turn.take()
            record = self._met(turn.path, position)
            place = Place(self._rec.history.generation, turn.path, position)
            if record is not None:
                incoming = self._recalled(record, turn.path, position)
                if incoming is None:
                    incoming = yield from self._live(self._rec.refreshing(turn.path, position), turn)
            else:
                incoming = yield from self._live(place, turn)
            if self._is_taken(incoming):
                incoming.asks = counted + 1
                return incoming
            counted += incoming.counts
            incoming.reject(incoming.state)
            if counted >= self._options.max_asks or self._admitted.kind == "read":
                raise self._incomplete(incoming, turn.path, counted)

    # -- from the record --------------------------------------------------------------------------------

    def _met(self, path: str, position: int) -> RecordedCall | None:
        record = self._rec.record_at(path, position)
        if record is None or record.digest == self._digest:
            return record
        recorded = self._rec.written(lambda: calls.request(self._claimed, record.place))
        self._rec.mismatch(
            f"position {position} of scope {path!r} differs in {difference(recorded, self._body)}"
        )
        return None

    def _recalled(self, record: RecordedCall, path: str, position: int) -> Incoming | None:
        """The recorded answer; None when it is too old for its reader."""
        if self._admitted.kind == "model":
            return self._of_record(record)
        newest = self._rec.refreshed(path, position) or record
        incoming = self._of_record(newest)
        oldest = self._options.max_age.total_seconds() if self._options.max_age else 0.0
        is_old = newest.age > oldest
        if self._options.freshness is Freshness.REFETCH and is_old:
            return None
        incoming.stale = self._options.freshness is Freshness.MARK and is_old
        return incoming

    def _of_record(self, record: RecordedCall) -> Incoming:
        answer = self._rec.written(lambda: calls.answer(self._claimed, record.place))
        return Incoming(
            status=record.status, headers=tuple((k, v) for k, v in json.loads(record.headers)),
            body=digests.as_bytes(answer), place=record.place, replayed=True, age=record.age,
            state=record.state, verdict=record.verdict, reason=getattr(record, "reason", None),
            counts=self._rec.counts(record), model=record.model_answered, tokens_in=record.tokens_in,
            tokens_out=record.tokens_out, judged=self._judged,
        )  # fmt: skip

    def _judged(self, incoming: Incoming, verdict: Any, reason: str | None) -> None:
        if incoming.place is not None:
            self._rec.judge(incoming.place, verdict=verdict, reason=reason)

    def _is_taken(self, incoming: Incoming) -> bool:
        if incoming.place is None or incoming.state in ("complete", "pending"):
            return True
        if incoming.state != "length" or incoming.verdict == "rejected":
            return False
        if incoming.verdict is None and self._options.accept_length and not self._options.give_verdict:
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
        )  # fmt: skip
        if not self._options.give_verdict:
            self._rec.given_up[path, self._digest] = error
        return error

    # -- from the world ---------------------------------------------------------------------------------

    def _live(self, place: Place, turn: scopes.Turn) -> Steps:
        outgoing = filled(self._request)  # a missing secret stops it before anything is set aside
        if self._admitted.kind == "model":
            return (yield from self._live_model(place, outgoing))
        yield from waiting.for_place(self._rec, self._admitted.endpoint, tokens=0)
        self._rec.require_trust()
        started = time.monotonic()
        try:
            arrived = yield Send(outgoing, self._options.on_chunk)
        except NoAnswer as lost:
            raise lost.cause from lost.cause.__cause__
        assert arrived is not None
        if arrived.broken is not None:
            raise arrived.broken
        waiting.after_read(self._rec, self._admitted.endpoint, arrived)
        return self._read(place, turn, arrived, started=started)

    def _read(
        self, place: Place, turn: scopes.Turn, arrived: Arrived, *, started: float
    ) -> Incoming:
        """An answer to something that only reads, recorded when it says something that lasts."""
        reading = Reading("complete")
        if self._admitted.dialect is not None and arrived.status < 300:
            reading = dialects.read(self._admitted.dialect, arrived)
        passing = arrived.status in _PASSING or arrived.status >= 500
        if reading.state == "pending" or passing or (self._admitted.polls and arrived.status >= 400):
            if reading.state == "pending":
                turn.give_back()  # asked until it is there: how often is nobody's business
            return self._unrecorded(arrived, reading)
        reservation = self._rec.backgrounds.pop(reading.response_id or "", None)
        charge = money.charge(reading, reservation, started=started) if reservation else None
        return self._recorded(
            place, arrived, reading, reservation=reservation, charge=charge, started=started
        )

    def _live_model(self, place: Place, outgoing: Outgoing) -> Steps:
        rec, wanted = self._rec, dialects.wanted(self._dialect, self._request.body)
        worst = rec.purse.worst(wanted, self._admitted.endpoint)
        yield from waiting.for_place(rec, self._admitted.endpoint, tokens=worst.tokens)
        if rec.sends == 0 and self._claimed.attempt > 1:
            rec.purse.charge_lost()
        rec.sends += 1
        reservation = rec.purse.reserve(place, rec.sends, worst=worst, model=wanted.model)
        self._fail(FailPoint.L1, place)
        started = time.monotonic()
        arrived = yield from self._sent(outgoing, reservation, started=started)
        self._fail(FailPoint.L2, place)
        if not 200 <= arrived.status < 300:
            rec.purse.release(reservation)
            waiting.after_refusal(rec, self._admitted.endpoint, self._request, arrived)
            return self._unrecorded(arrived, Reading("failed"))
        reading = self._pinned(dialects.read(self._dialect, arrived))
        if reading.state == "pending" and reading.response_id:
            # Its price is known when it is there: what was set aside stays so until then.
            rec.backgrounds[reading.response_id] = reservation
            return self._recorded(place, arrived, reading, started=started)
        charge = money.charge(reading, reservation, started=started)
        incoming = self._recorded(
            place, arrived, reading, reservation=reservation, charge=charge, started=started
        )
        waiting.after_success(self._admitted.endpoint)
        return incoming

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
            if lost.has_left:
                rec.purse.charge_all(reservation, started=started)
            else:
                rec.purse.release(reservation)
            raise waiting.unreachable(rec, self._admitted.endpoint, lost) from lost.cause
        except BaseException:  # a time limit, a shutdown, a cancelled task
            rec.purse.charge_all(reservation, started=started)
            raise
        return arrived

    def _recorded(
        self,
        place: Place,
        arrived: Arrived,
        reading: Reading,
        *,
        started: float,
        reservation: Reservation | None = None,
        charge: Charge | None = None,
    ) -> Incoming:
        kept = tuple((key, value) for key, value in arrived.headers if key.lower() not in _DROPPED)
        headers = self._rec.redact(json.dumps(kept, ensure_ascii=True))
        answer = self._rec.redact(digests.as_text(arrived.body))
        asked = dialects.as_object(self._request.body).get("model")
        model = asked if isinstance(asked, str) else None
        call = NewCall(
            place=place, kind="model" if self._admitted.kind == "model" else "read", digest=self._digest,
            method=self._request.method.upper(), url=self._url, endpoint=self._admitted.endpoint.url,
            dialect=self._admitted.name, model=model, model_answered=reading.model, request=self._body,
            status=arrived.status, headers=headers, answer=answer, state=reading.state,
            response_id=reading.response_id, tokens_in=reading.tokens_in, tokens_out=reading.tokens_out,
            cost=money.cost(reading, model), started_at_ago=time.monotonic() - started,
        )  # fmt: skip
        self._rec.written(
            lambda: calls.record(
                self._claimed, call, worker=self._rec.sender.worker, reservation=reservation,
                charge=charge,
            )
        )  # fmt: skip
        self._fail(FailPoint.L3, place)
        return Incoming(
            status=arrived.status, headers=tuple((k, v) for k, v in json.loads(headers)),
            body=digests.as_bytes(answer), place=place, state=reading.state, model=reading.model,
            tokens_in=reading.tokens_in, tokens_out=reading.tokens_out, judged=self._judged,
        )  # fmt: skip

    def _unrecorded(self, arrived: Arrived, reading: Reading) -> Incoming:
        kept = tuple((key, value) for key, value in arrived.headers if key.lower() not in _DROPPED)
        return Incoming(
            status=arrived.status, headers=kept, body=arrived.body, state=reading.state,
            model=reading.model,
        )  # fmt: skip

    def _pinned(self, reading: Reading) -> Reading:
        pin = self._options.pin
        judged = reading.state not in ("cut", "malformed", "failed", "pending")
        if pin is None or not judged or dialects.fits(reading.model, pin):
            return reading
        return reading.as_state("other_model", f"{reading.model} answered in place of {pin}")

    @property
    def _dialect(self) -> dialects.Dialect:
        assert self._admitted.dialect is not None
        return self._admitted.dialect

    def _fail(self, point: FailPoint, place: Place) -> None:
        failpoint(point, self._claimed.step_name, f"{place.scope}:{place.position}")
