"""The holder's verbs about model calls and recorded reads: what was answered, and what was made of it.

    wallets.reserve      the money set aside            (1 commit)  -> send
    record               the answer and its price       (1 commit)  suggested
    judge                accepted, or rejected and why  (1 commit)

An attempt reads its ``history`` once and is answered from it, so a call that is recorded is never made again.
What is written is guarded on the claim: a displaced owner's answer is not recorded, and its price is charged as
what recovery cost.
"""

from collections.abc import Callable

from models import database
from models.artifacts.payloads import load, offload
from models.digests import digest_text
from models.journal import call_sql, events, wallets
from models.journal.call_values import (
    CallView,
    Charge,
    History,
    NewCall,
    Place,
    RecordedCall,
    Reservation,
    Verdict,
)
from models.journal.effect_values import Holder
from models.journal.errors import CommitUnknown, JournalError, LeaseLost, Refused
from models.messages import printable, shorten

_TRIES = 3  #: an answer whose COMMIT is not answered may be met while it commits
_MAX_REASON = 2000


def history(claimed: Holder) -> History:
    """What a step has on record as its attempt begins: what counts now, without what was set aside."""
    rows = database.fetch(call_sql.HISTORY, _step(claimed))
    (generation, pardoned), *_ = ((row[0], row[1]) for row in rows)
    found = (_recorded(row[2:]) for row in rows if row[3] is not None)
    return History(
        generation, pardoned, {(one.place.scope, one.place.position): one for one in found}
    )


def losses(claimed: Holder) -> dict[tuple[str, int], int]:
    """How many requests of earlier claims may have been answered to nobody, by scope and position."""
    rows = database.fetch(call_sql.LOSSES, _step(claimed) | {"token": claimed.token})
    return {(str(row[0]), int(row[1])): int(row[2]) for row in rows}


def answer(claimed: Holder, place: Place) -> str:
    """The text of a recorded answer."""
    return _text(
        claimed, place, database.fetch_one(call_sql.ANSWER, _step(claimed) | _place(place))
    )


def request(claimed: Holder, place: Place) -> str:
    """The text of what was asked, as it was recorded."""
    return _text(
        claimed, place, database.fetch_one(call_sql.REQUEST, _step(claimed) | _place(place))
    )


def record(
    claimed: Holder, call: NewCall, *, worker: str, reservation: Reservation | None,
    charge: Charge | None,
) -> None:  # fmt: skip
    """Record an answer and settle what was set aside for it, in one commit. It is suggested only.

    Raises ``LeaseLost`` when the step is not ours any more: the answer is dropped, since the next attempt may
    have asked for it already, what it cost is charged as recovery, and that it came is kept as evidence.
    Repeatable after an unanswered COMMIT. Texts over the limit go to the artifact store first; digests are of
    the true texts.
    """
    params = _held(claimed) | _call(call, claimed, worker)
    statement = call_sql.RECORD
    if reservation is not None:
        statement = call_sql.RECORD_AND_SETTLE
        params |= wallets.settlement(claimed, reservation, charge=charge)
    for _ in range(_TRIES):
        try:
            row = database.fetch_one(statement, params)
        except CommitUnknown:
            row = database.fetch_one(statement, params)
        if row is None:
            _settle_late(claimed, reservation, charge)
            raise _late(claimed, f"the answer of {call.endpoint} was not recorded")
        made, same = row
        if made or same:
            return
        if same is False:
            break
    raise JournalError(
        f"Step {claimed.step_key!r} of run {claimed.run_id} already has another answer on record at position "
        f"{call.place.position} of scope {call.place.scope!r}: two calls went by the same place."
    )


def put_off(claimed: Holder, reservation: Reservation, pause: Callable[[], float]) -> float:
    """Give back what was set aside for a request that was sent away, and have its endpoint left alone: one commit.

    Whoever is killed in between would otherwise ask before the time, or pay for what cost nothing.
    """
    with database.transaction():
        wallets.release(claimed, reservation)
        return pause()


def judge(claimed: Holder, place: Place, *, verdict: Verdict, reason: str | None = None) -> None:
    """Say what was made of an answer; what was said first stays. Raises ``LeaseLost``."""
    told = shorten(printable(reason or ""), limit=_MAX_REASON) if verdict == "rejected" else None
    params = _held(claimed) | _place(place) | {"verdict": verdict, "reason": told}
    if database.fetch_one(call_sql.JUDGE, params) is None:
        raise _late(claimed, "its verdict was not recorded")


def has_effects(claimed: Holder) -> bool:
    """Whether an effect of this step happened, or may have: then its answers cannot be set aside."""
    row = database.fetch_one(call_sql.EFFECTS, _step(claimed))
    return bool(row and row[0])


def open_branch(claimed: Holder, reason: str) -> int:
    """Set what the step has on record aside, and return the new generation; once for each claim.

    Raises ``LeaseLost``, and ``Refused`` when an effect of the step happened or may have.
    """
    row = database.fetch_one(
        call_sql.BRANCH,
        _held(claimed) | {"reason": shorten(printable(reason), limit=_MAX_REASON)},
    )
    if row is None:
        raise _displaced(claimed, "its records were not set aside")
    effects, generation = row
    if effects:
        raise Refused(
            f"Step {claimed.step_key!r} of run {claimed.run_id} has effects that may have happened: what was "
            f"answered before them is not set aside."
        )
    return int(generation)


def note_mismatch(claimed: Holder, detail: str) -> None:
    """Write down that an attempt asked for something else than what is on record."""
    events.record(
        claimed.run_id,
        "replay_mismatch",
        step_key=claimed.step_key,
        token=claimed.token,
        detail=detail,
    )


def pardon(run_id: str, step_key: str, *, actor: str, reason: str) -> None:
    """Let a step ask anew: what was rejected so far does not count against its limit any more."""
    database.fetch(
        call_sql.PARDON,
        {"run_id": run_id, "step_key": step_key, "actor": actor, "reason": reason},
    )


def of_run(run_id: str) -> list[CallView]:
    """Every recorded call of a run, in the order of their answers."""
    return [
        CallView(
            step_key=row[0], place=Place(*row[1:4]), kind=row[4], method=row[5], url=row[6],
            endpoint=row[7], dialect=row[8], model=row[9], model_answered=row[10], status=row[11],
            state=row[12], verdict=row[13], reason=row[14], tokens_in=row[15], tokens_out=row[16],
            cost=row[17], token=row[18], attempt=row[19], worker=row[20], started_at=row[21],
            answered_at=row[22], current=row[23],
        )
        for row in database.fetch(call_sql.OF_RUN, {"run_id": run_id})
    ]  # fmt: skip


def texts(run_id: str, step_key: str, place: Place) -> tuple[str, str]:
    """What was asked at a place of a run, and what came back, as recorded: for people."""
    row = database.fetch_one(
        call_sql.TEXTS, {"run_id": run_id, "step_key": step_key, **_place(place)}
    )
    return (str(row[0]), str(row[1])) if row else ("", "")


def changed(run_id: str) -> list[tuple[str, Place, str]]:
    """Answers of a run whose text is not the one that was recorded: step, place and digest as recorded."""
    rows = database.fetch(call_sql.CHANGED, {"run_id": run_id})
    return [(row[0], Place(*row[1:4]), row[4]) for row in rows]


def _settle_late(claimed: Holder, reservation: Reservation | None, charge: Charge | None) -> None:
    if reservation is None:
        return
    if charge is None:
        wallets.release(claimed, reservation)
    else:
        wallets.charge(claimed, reservation, charge, recovery=True)


def _recorded(row: database.Row) -> RecordedCall:
    return RecordedCall(
        place=Place(*row[:3]), kind=row[3], digest=row[4], state=row[5], status=row[6], headers=row[7],
        model=row[8], model_answered=row[9], response_id=row[10], tokens_in=row[11], tokens_out=row[12],
        cost=row[13], token=row[14], verdict=row[15], reason=row[16], age=row[17],
    )  # fmt: skip


def _text(claimed: Holder, place: Place, row: database.Row | None) -> str:
    if row is None:
        raise JournalError(
            f"Step {claimed.step_key!r} of run {claimed.run_id} has nothing on record at position "
            f"{place.position} of scope {place.scope!r}."
        )
    return load(str(row[0]))


def _late(claimed: Holder, what: str) -> LeaseLost:
    """An owner that was alive and came too late: evidence under its own attempt, as a late result is."""
    error = _displaced(claimed, what)
    said = {"token": claimed.token, "owner": claimed.owner, "said": str(error)}
    database.fetch(call_sql.LATE, _step(claimed) | said)
    return error


def _displaced(claimed: Holder, what: str) -> LeaseLost:
    return LeaseLost(
        f"Attempt {claimed.attempt} of step {claimed.step_key!r} in run {claimed.run_id} no longer owns the step: "
        f"{what}."
    )


def _step(claimed: Holder) -> dict[str, object]:
    return {"run_id": claimed.run_id, "step_key": claimed.step_key}


def _held(claimed: Holder) -> dict[str, object]:
    return _step(claimed) | {
        "branch": claimed.branch, "token": claimed.token, "owner": claimed.owner,
    }  # fmt: skip


def _place(place: Place) -> dict[str, object]:
    return {"generation": place.generation, "scope": place.scope, "position": place.position}


def _call(call: NewCall, claimed: Holder, worker: str) -> dict[str, object]:
    return _place(call.place) | {
        "kind": call.kind, "digest": call.digest, "method": call.method, "url": call.url,
        "endpoint": call.endpoint, "dialect": call.dialect, "model": call.model,
        "model_answered": call.model_answered, "request": _kept(claimed, call.place, "request", call.request),
        "status": call.status, "headers": call.headers,
        "answer": _kept(claimed, call.place, "answer", call.answer), "answer_digest": digest_text(call.answer),
        "state": call.state, "response_id": call.response_id, "tokens_in": call.tokens_in,
        "tokens_out": call.tokens_out, "cost": call.cost, "attempt": claimed.attempt, "worker": worker,
        "ago": call.started_at_ago,
    }  # fmt: skip


def _kept(claimed: Holder, place: Place, what: str, text: str) -> str:
    name = f"{what}@{place.scope}/{place.position}"
    return offload(text, run_id=claimed.run_id, step_key=claimed.step_key, name=name)
