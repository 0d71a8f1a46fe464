"""One request as the journal holds it: how it is known again, and its answers on the way in and out."""

import json
import time
from typing import Any

from models.artifacts.errors import ArtifactUnavailable
from models.failpoints import FailPoint, failpoint
from models.journal import calls
from models.journal.call_values import Charge, NewCall, Place, RecordedCall, Reservation
from tasks import patience
from tasks.recorder import dialects, digests, money, scopes, spread
from tasks.recorder.comparing import difference
from tasks.recorder.guard import Admitted
from tasks.recorder.options import CallOptions, Freshness
from tasks.recorder.reading import Reading, name
from tasks.recorder.recorder import Recorder
from tasks.recorder.values import Arrived, Headers, Incoming, Outgoing

#: Of an answer's headers: what belongs to the connection, and what identifies somebody.
_DROPPED = frozenset(
    {
        "connection", "content-encoding", "content-length", "keep-alive", "set-cookie", "set-cookie2",
        "transfer-encoding",
    }
)  # fmt: skip


class Keeping:
    """What is on record of one request, and what comes to it."""

    def __init__(self, recorder: Recorder, admitted: Admitted, request: Outgoing) -> None:
        self._rec, self._admitted, self._request = recorder, admitted, request
        self._url = recorder.redact(digests.recordable_url(request.url))
        self._body = recorder.redact(digests.as_text(request.body))
        self.digest = digests.digest(
            method=request.method, url=self._url, dialect=admitted.name, body=self._body
        )

    def met(self, turn: scopes.Turn) -> tuple[int, RecordedCall | None]:
        """Its position, and what is on record there; another request stops the step, or sets its records aside."""
        position, record = self._rec.next_on_record(turn.path, turn.position, digest=self.digest)
        turn.skip_to(position)
        turn.take()
        if record is None:
            return position, None
        if record.digest == self.digest:
            self._rec.has_replayed = True
            return position, record
        recorded = self._rec.written(lambda: calls.request(self._rec.claimed, record.place))
        self._rec.mismatch(
            f"position {position} of scope {turn.path!r} differs in {difference(recorded, self._body)}"
        )
        return position, None

    def recalled(self, record: RecordedCall, options: CallOptions) -> Incoming | None:
        """The recorded answer; None when it is too old for its reader."""
        if self._admitted.kind == "model":
            if record.state == "pending" and record.response_id:
                self._rec.backgrounds[record.response_id] = self._set_aside(record)
            return self._handed_out(record)
        newest = self._rec.refreshed(record.place.scope, record.place.position) or record
        oldest = options.max_age.total_seconds() if options.max_age else 0.0
        is_old = newest.age > oldest
        if options.freshness is Freshness.REFETCH and is_old:
            return None
        incoming = self._handed_out(newest)
        incoming.stale = options.freshness is Freshness.MARK and is_old
        return incoming

    def _set_aside(self, record: RecordedCall) -> Reservation:
        """What an earlier attempt holds for an answer that is still being made."""
        wanted = dialects.wanted(dialects.RESPONSES, self._request.body)
        worst = self._rec.purse.worst(wanted, self._admitted.endpoint)
        return money.reservation(record.place, worst, model=wanted.model, token=record.token)

    def _handed_out(self, record: RecordedCall) -> Incoming:
        answer = self._rec.written(lambda: calls.answer(self._rec.claimed, record.place))
        return Incoming(
            status=record.status, headers=_headers(record.headers), body=digests.as_bytes(answer),
            place=record.place, replayed=True, age=record.age, state=record.state,
            verdict=record.verdict, reason=record.reason, counts=self._rec.counts(record),
            model=record.model_answered, tokens_in=record.tokens_in, tokens_out=record.tokens_out,
            judged=self._judged, losses=self._rec.lost_at,
        )  # fmt: skip

    def record(
        self,
        place: Place,
        arrived: Arrived,
        reading: Reading,
        *,
        started: float,
        reservation: Reservation | None = None,
        charge: Charge | None = None,
    ) -> Incoming:
        """Write an answer down, and settle what was set aside for it; the answer as it is given from now on."""
        headers = self._rec.redact(json.dumps(_kept(arrived, self._request), ensure_ascii=True))
        answer = spread.redact(digests.as_text(arrived.body))
        model = name(dialects.as_object(self._request.body).get("model"))
        call = NewCall(
            place=place, kind="model" if self._admitted.kind == "model" else "read", digest=self.digest,
            method=self._request.method.upper(), url=self._url, endpoint=self._admitted.endpoint.url,
            dialect=self._admitted.name, model=model, model_answered=reading.model, request=self._body,
            status=arrived.status, headers=headers, answer=answer, state=reading.state,
            response_id=reading.response_id, tokens_in=reading.tokens_in, tokens_out=reading.tokens_out,
            cost=money.cost(reading, model), started_at_ago=time.monotonic() - started,
        )  # fmt: skip
        claimed, worker = self._rec.claimed, self._rec.sender.worker
        patience.persistent(  # a large answer goes to the artifact store, which may be away as well
            lambda: self._rec.written(
                lambda: calls.record(
                    claimed, call, worker=worker, reservation=reservation, charge=charge
                )
            ),
            ArtifactUnavailable,
        )
        failpoint(FailPoint.L3, claimed.step_name, f"{place.scope}:{place.position}")
        return Incoming(
            status=arrived.status, headers=_headers(headers), body=digests.as_bytes(answer),
            place=place, state=reading.state, model=reading.model, tokens_in=reading.tokens_in,
            tokens_out=reading.tokens_out, judged=self._judged, losses=self._rec.lost_at,
        )  # fmt: skip

    def _judged(self, incoming: Incoming, verdict: Any, reason: str | None) -> None:
        if incoming.place is not None:
            self._rec.judge(incoming.place, verdict=verdict, reason=reason)


def unrecorded(arrived: Arrived, reading: Reading, request: Outgoing) -> Incoming:
    """An answer that a later attempt will ask for again."""
    return Incoming(
        status=arrived.status, headers=_kept(arrived, request), body=arrived.body, state=reading.state,
        model=reading.model,
    )  # fmt: skip


def _kept(arrived: Arrived, request: Outgoing) -> Headers:
    # How long something is, is what HEAD asks for; elsewhere a body without its encoding has another length.
    dropped = _DROPPED - {"content-length"} if request.method.upper() == "HEAD" else _DROPPED
    return tuple((field, value) for field, value in arrived.headers if field.lower() not in dropped)


def _headers(text: str) -> Headers:
    return tuple((str(field), str(value)) for field, value in json.loads(text))
