"""When an endpoint is not to be asked: its own word (Retry-After), its silence, and the limits set for it.

What takes longer than a moment gives the step back: it holds no worker, no lease and no money, uses no attempt,
and comes back at an instant of its own. Everybody in the cluster keeps away meanwhile.
"""

import time
from collections.abc import Generator
from datetime import datetime

from models.journal import calls, endpoints
from models.journal.call_values import EndpointStanding, Reservation
from models.messages import one_line, safe_repr
from models.states import BlockReason
from tasks import leaving
from tasks.asking import WAIT_IN_PLACE
from tasks.errors import CallPostponed, EffectBlocked, UndeclaredEffect
from tasks.recorder import money, refusals
from tasks.recorder.air import Seat
from tasks.recorder.declared import Endpoint
from tasks.recorder.dialects import as_object
from tasks.recorder.recorder import Recorder
from tasks.recorder.refusals import Denied, Elsewhere, Later, Withdrawn
from tasks.recorder.values import Arrived, NoAnswer, Order, Outgoing, Wait

_NAP = 0.5  #: seconds between two looks whether the worker is to leave
_LOOK = 2.0  #: seconds, at most, between two looks whether the line is shorter
_SPREAD = 60.0  #: seconds over which a crowd comes back
_SHARE = 0.25  #: of a long pause, likewise


def for_place(
    recorder: Recorder, endpoint: Endpoint, *, tokens: int, seat: Seat
) -> Generator[Order, Arrived | None, bool]:
    """Wait for a place under the endpoint's limits, or send the step back when that takes long.

    Whether the endpoint is known to have failed before. What has stopped the step meanwhile is raised.
    """
    troubled = _require_no_pause(recorder, endpoint)
    wait = yield from _in_line(recorder, endpoint, tokens=tokens, seat=seat)
    if wait > 0:
        turn = time.monotonic() + wait
        while (left := turn - time.monotonic()) > 0:
            if leaving.is_leaving():
                raise _postponed(recorder, endpoint, "its limit is reached", left)
            yield Wait(min(left, _NAP))
        troubled = _require_no_pause(recorder, endpoint)
    _require_going_on(recorder)
    return troubled


def _in_line(
    recorder: Recorder, endpoint: Endpoint, *, tokens: int, seat: Seat
) -> Generator[Order, Arrived | None, float]:
    """A place in the line: seconds until its turn.

    While others of the step have one, the worker is held anyway, and they would lose theirs: it stays.
    """
    while True:
        wait = money.place_in_line(endpoint, tokens=tokens, at_most=WAIT_IN_PLACE)
        if wait <= WAIT_IN_PLACE:
            seat.take()
            return wait
        if leaving.is_leaving() or not seat.has_siblings():
            raise _postponed(recorder, endpoint, "its limit is reached", wait - WAIT_IN_PLACE / 2)
        yield Wait(min(max(wait - WAIT_IN_PLACE, _NAP), _LOOK))
        _require_going_on(recorder)


def _require_going_on(recorder: Recorder) -> None:
    if (stop := recorder.ledger.stopped) is not None:
        raise stop


def _require_no_pause(recorder: Recorder, endpoint: Endpoint) -> bool:
    standing: EndpointStanding = recorder.written(lambda: endpoints.standing(endpoint.url))
    if standing.wait > 0:
        delay = recorder.written(lambda: endpoints.join(endpoint.url))
        since = f", since {standing.since:%Y-%m-%d %H:%M:%S}Z" if standing.since else ""
        raise _postponed(
            recorder, endpoint, f"{standing.reason or 'it asked to be left alone'}{since}",
            max(delay, standing.wait),
        )  # fmt: skip
    return standing.since is not None


def after_read(recorder: Recorder, endpoint: Endpoint, arrived: Arrived) -> None:
    """Raises what sends the step back when the one who was read from asks to be left alone."""
    if (later := refusals.of_read(arrived)) is not None:
        raise _paused(recorder, endpoint, later)


def after_success(recorder: Recorder, endpoint: Endpoint) -> None:
    """It answers: what was held against it is forgotten."""
    recorder.written(lambda: endpoints.clear(endpoint.url))


def after_refusal(
    recorder: Recorder,
    endpoint: Endpoint,
    request: Outgoing,
    arrived: Arrived,
    *,
    held: Reservation | None = None,
) -> None:
    """Raises what an answer without success means for the run; nothing when the body is to hear of it.

    It cost nothing: what is held for it is given back.
    """
    step = f"Step {recorder.claimed.step_key!r} of run {recorder.claimed.run_id}"
    meaning = refusals.of_model(arrived, request.url)
    if isinstance(meaning, Later):
        raise _paused(recorder, endpoint, meaning, held=held)
    if held is not None:
        recorder.purse.release(held)
    match meaning:
        case Withdrawn(reason):
            raise EffectBlocked(
                f"{step} asks {endpoint.url} for model {_model(request)}, which it does not serve ({reason}). No other "
                f"model is asked in its place. Name one that is served, or bring it back, then `onward runs resume`.",
                reason=BlockReason.LLM_UNAVAILABLE,
            )
        case Denied(reason):
            raise EffectBlocked(
                f"{step} asks {endpoint.url} for model {_model(request)}, and its credentials are not accepted "
                f"({reason}): {_secrets(recorder, request)}. Correct it where the workers find it, then `onward runs "
                f"resume`.",
                reason=BlockReason.LLM_UNAVAILABLE,
            )
        case Elsewhere(url):
            raise UndeclaredEffect(
                f"{step} asked {endpoint.url}, which sends its requests on to {url}: that host is not declared, and "
                f"the request holds credentials, so it was not followed. Declare it: "
                f"tasks.llm.declare_endpoint(...), and use it as the base URL."
            )
        case _:
            return


def unreachable(recorder: Recorder, endpoint: Endpoint, lost: NoAnswer) -> CallPostponed:
    """What sends the step back when no answer came."""
    said = one_line(f"{type(lost.cause).__name__}: {lost.cause}", limit=200)
    return _paused(recorder, endpoint, Later(None, f"unreachable: {said}"))


def _paused(
    recorder: Recorder, endpoint: Endpoint, later: Later, *, held: Reservation | None = None
) -> CallPostponed:
    def pause() -> float:
        if later.seconds is None:
            return endpoints.strike(endpoint.url, reason=later.reason)
        seconds = _seconds(later.seconds)
        spread = max(_SPREAD, _SHARE * seconds)
        return endpoints.pause(endpoint.url, seconds=seconds, spread=spread, reason=later.reason)

    claimed = recorder.claimed
    delay = recorder.written(lambda: calls.put_off(claimed, held, pause) if held else pause())
    return _postponed(recorder, endpoint, later.reason, float(delay))


def _seconds(asked: float | datetime) -> float:
    if isinstance(asked, datetime):
        return refusals.bounded(endpoints.time_until(asked))
    return asked


def _postponed(recorder: Recorder, endpoint: Endpoint, why: str, delay: float) -> CallPostponed:
    return CallPostponed(
        f"Step {recorder.claimed.step_key!r} waits for {endpoint.url} ({why}): it comes back in {delay:.1f} s, "
        f"without holding a worker and without using an attempt.",
        delay=delay,
    )


def _model(request: Outgoing) -> str:
    return safe_repr(as_object(request.body).get("model", "unknown"))


def _secrets(recorder: Recorder, request: Outgoing) -> str:
    redacted = tuple((name, recorder.redact(value)) for name, value in request.headers)
    names = refusals.names_of_secrets(redacted)
    return f"secret {', '.join(names)}" if names else "they are in no secret that Onward knows"
