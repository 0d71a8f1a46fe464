"""The holder's verbs about effects: write the intent down, then what came of it.

    intend   intent durable, the key bound to the request        (1 commit)  -> send
    settle | refuse | doubt   what the answer said, or that none came        (1 commit)

Nothing is sent before ``intend`` said ``Granted``. It locks the step's live row, so an expiry that runs
beside it either comes first, and the intent finds its lease gone, or waits, and then sees the intent: no
sweep can decide that nothing left the building while something is about to. What is written afterwards
is guarded on the effect's own token: a displaced owner settles nothing, its answer is kept as evidence.
"""

from collections.abc import Sequence
from typing import LiteralString, NamedTuple

from models import database
from models.artifacts.payloads import load, seal
from models.digests import digest_text
from models.failpoints import FailPoint, arm_effect_commit, failpoint
from models.ids import undo_key
from models.journal import effect_sql
from models.journal.effect_values import (
    Conflict,
    Declined,
    Exhausted,
    GivenUp,
    Granted,
    Holder,
    InDoubt,
    Intent,
    Recorded,
    Sender,
    Standing,
    Withheld,
)
from models.journal.errors import CommitUnknown, LeaseLost, RolledBack
from models.settings import settings
from models.states import EffectState

KEPT = effect_sql.KEPT

_TRIES = (
    3  #: a key that is new to a statement may just have been made by another call of this claim
)


def intend(
    intent: Intent, claimed: Holder, sender: Sender, *, statement: LiteralString = effect_sql.INTEND
) -> Standing:
    """Write down what is about to be asked, and say whether it may be.

    Raises ``LeaseLost`` when the step is not ours any more. An unanswered COMMIT is asked again, and its
    own intent is known by its nonce: nothing is sent while it is undecided, nothing is counted twice. The
    same holds for a caller that calls again with the same ``Intent`` after ``JournalUnavailable``.
    """
    params = _intent_params(intent, claimed, sender)
    for _ in range(_TRIES):
        try:
            row = database.fetch_one(statement, params)
        except CommitUnknown:
            row = database.fetch_one(statement, params)
        if row is None:
            raise LeaseLost(
                f"Attempt {claimed.attempt} of step {claimed.step_key!r} in run {claimed.run_id} no longer "
                f"owns the step: {intent.tool} was not called."
            )
        settled, met = row[:5], _Met(*row[5:])
        if settled[0] is not None:
            return _of_settlement(*settled, asked=intent.request_digest)
        standing = _standing(met)
        if standing is not None:
            return standing
    raise RolledBack(f"The intent {intent.key} met others of the same key; it may be tried again.")


def settle(key: str, claimed: Holder, *, result: str) -> None:
    """Record an answer. Raises ``LeaseLost`` when others have taken the effect up: then it is evidence."""
    failpoint(FailPoint.E4, claimed.step_name, key)
    arm_effect_commit(claimed.step_name, key)
    params = _sent(key, claimed) | {"result": seal(result), "result_digest": digest_text(result)}
    if database.fetch_one(effect_sql.SETTLE, params) is None and not _settled_by_us(params):
        keep_evidence(key, claimed, result=result)
        raise LeaseLost(
            f"The answer to {key} came after the effect had been taken up by others; it is kept as evidence."
        )
    failpoint(FailPoint.E6, claimed.step_name, key)


def refuse(key: str, claimed: Holder, *, error: str) -> bool:
    """Record that this send definitely did nothing.

    True: it did not happen, and the body may ask for it again. False: it stays in doubt, since an
    earlier send of it may have happened, or others have taken it up.
    """
    params = _sent(key, claimed) | {"error": error}
    row = database.fetch_one(effect_sql.REFUSE, params) or database.fetch_one(
        "SELECT state FROM effect WHERE key = %(key)s AND token = %(token)s", params
    )
    return row is not None and row[0] == EffectState.REFUSED


def go_past(keys: Sequence[str], claimed: Holder) -> None:
    """Make refusals that the body caught its answers for good, before it asks for anything else.

    A later attempt is told the same and goes the same way: sent again, the first choice might succeed
    beside the second. Raises ``LeaseLost`` when the step is not ours any more.
    """
    params = {
        "run_id": claimed.run_id, "branch": claimed.branch, "step_key": claimed.step_key,
        "token": claimed.token, "owner": claimed.owner, "keys": list(keys),
    }  # fmt: skip
    if database.fetch_one(effect_sql.PASS, params) is None:
        raise LeaseLost(
            f"Attempt {claimed.attempt} of step {claimed.step_key!r} in run {claimed.run_id} no longer owns "
            f"the step: nothing more is sent for it here."
        )


def doubt(key: str, claimed: Holder, *, error: str, call_over: bool) -> bool:
    """Record that it may have happened. ``call_over``: the call has ended, whatever it did.

    False: it is written already, or others have taken it up.
    """
    params = _sent(key, claimed) | {"error": error, "call_over": call_over}
    return database.fetch_one(effect_sql.DOUBT, params) is not None


def end_call(key: str, claimed: Holder, *, error: str) -> None:
    """Record that a call in doubt has ended after all: whoever looks need not wait for it any more.

    Said by the thread that was left behind with it, or by an owner that was displaced meanwhile.
    """
    database.fetch(effect_sql.END_CALL, _sent(key, claimed) | {"error": error})


def keep_evidence(key: str, claimed: Holder, *, result: str) -> None:
    """File a displaced owner's late answer. It changes no step; whoever looks reads it first."""
    database.fetch(
        effect_sql.KEEP_EVIDENCE,
        _sent(key, claimed)
        | {
            "result": seal(result), "result_digest": digest_text(result), "worker": claimed.owner,
            "run_id": claimed.run_id, "step_key": claimed.step_key,
        },
    )  # fmt: skip


def record_pure(intent: Intent, claimed: Holder, sender: Sender, *, result: str) -> None:
    """Record the answer of a call that changes nothing outside, so that it is not asked again."""
    params = _intent_params(intent, claimed, sender)
    database.fetch(
        effect_sql.RECORD_PURE,
        params | {"result": seal(result), "result_digest": digest_text(result)},
    )


def recall(key: str, digest: str) -> Recorded | GivenUp | Conflict | None:
    """What is settled under a key: for this request, for another one, or nothing."""
    row = database.fetch_one(effect_sql.RECALL, {"key": key, "undo_key": undo_key(key)})
    return _of_settlement(*row[:5], asked=digest, age=row[5]) if row else None


def note_unasked(claimed: Holder, asked: set[str]) -> list[str]:
    """Report effects that an earlier attempt settled and the finished body did not ask for again.

    They happened, and the result that will be recorded does not know of them. Returns their keys, each
    of them once; a displaced owner reports nothing.
    """
    rows = database.fetch(
        effect_sql.UNASKED,
        {
            "run_id": claimed.run_id, "branch": claimed.branch, "step_key": claimed.step_key,
            "token": claimed.token, "owner": claimed.owner, "asked": sorted(asked),
        },
    )  # fmt: skip
    return [row[0] for row in rows]


class _Met(NamedTuple):
    """What an intent met: the run's hold, an open effect and its verdict, and what was written."""

    withheld: str | None
    verdict: str | None
    state: str
    sends: int
    person: str | None
    error: str | None
    made: str | None
    sent: int | None


def _standing(met: _Met) -> Standing | None:
    """None: others were at it at the same moment, and another look will tell."""
    if met.made == EffectState.UNKNOWN or met.verdict == "rewound":
        return InDoubt("the journal went back in time, and it may have been sent in what was lost")
    if met.sent is not None:
        return Granted(met.sent)
    if met.withheld is not None:
        return Withheld(met.withheld)
    return _of_open(met) if met.verdict is not None else None


def _of_settlement(
    outcome: str, result: str, digest: str | None, token: int, reason: str | None, *, asked: str,
    age: float = 0.0,
) -> Recorded | GivenUp | Conflict:  # fmt: skip
    if digest not in (None, asked):
        return Conflict(EffectState(outcome))
    if outcome == EffectState.SETTLED:
        return Recorded(load(result), token, age)
    return GivenUp(reason or "")


def _of_open(met: _Met) -> Standing:
    if met.verdict == "conflict":
        return Conflict(EffectState(met.state))
    if met.verdict == "declined":
        return Declined(met.error or "")
    if met.verdict == "exhausted":
        return Exhausted(met.sends)
    return InDoubt(met.person or "an earlier attempt may have sent it")


def _settled_by_us(params: dict[str, object]) -> bool:
    """Whether the same write went through before its answer was lost and it was repeated."""
    row = database.fetch_one(
        "SELECT 1 FROM effect_settlement WHERE key = %(key)s AND token = %(token)s AND source = 'answer'"
        " AND result_digest = %(result_digest)s",
        params,
    )
    return row is not None


def _sent(key: str, claimed: Holder) -> dict[str, object]:
    return {"key": key, "token": claimed.token}


def _intent_params(intent: Intent, claimed: Holder, sender: Sender) -> dict[str, object]:
    promise = intent.promise
    return {
        "run_id": claimed.run_id, "branch": claimed.branch, "step_key": claimed.step_key,
        "token": claimed.token, "owner": claimed.owner, "attempt": claimed.attempt, "key": intent.key,
        "undo_key": undo_key(intent.key), "nonce": intent.nonce, "tool": intent.tool,
        "tool_version": intent.tool_version, "undoes": intent.undoes, "request": seal(intent.request),
        "request_digest": intent.request_digest, "send_within": intent.send_within,
        "effect_class": str(promise.effect_class), "absent_after": promise.absent_after,
        "key_retention": promise.key_retention, "resend_limit": settings().resend_limit,
        "start_id": sender.start_id, "worker": sender.worker, "pid": sender.pid,
        "pid_started": sender.pid_started, "pid_space": sender.pid_space,
    }  # fmt: skip
