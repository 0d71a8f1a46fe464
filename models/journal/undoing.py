"""Undoing what a run did: the verbs of whoever does it.

    begin -> to_undo -> intend -> effects.settle | refuse | doubt -> ... -> finish | block | defer

One at a time: ``doer`` is a lease, and each write but an undo's own outcome is guarded on it. An undo is an
effect like any other, with its own key, intent and settlement; a doer that is gone leaves its last one
``intended``, and the next to begin puts it in doubt: it is looked up like a step's, and sent again only when it
is known not to have happened. Steps are not touched: their rows stay completed.
"""

from dataclasses import dataclass

from models import database
from models.artifacts.payloads import load, seal
from models.digests import digest_text
from models.ids import new_nonce, undo_key
from models.journal import effects, undo_sql
from models.journal.effect_values import Intent, Sender, Standing
from models.settings import settings

_LOST = "whoever was undoing it is gone"


@dataclass(frozen=True, slots=True)
class Doing:
    """A compensation that is ours to go on with."""

    run_id: str
    owner: str
    token: int  #: rises with each who begins; what it sends is guarded on it
    goes: int  #: how many began
    streak: int  #: of these in a row without progress, ours included
    queue: str


@dataclass(frozen=True, slots=True)
class Standstill:
    """What has to come to rest before anything is undone."""

    moving: bool  #: a step of the run is in the air
    in_doubt: int  #: effects that are being looked up
    for_person: int  #: effects about which a person has to decide


@dataclass(frozen=True, slots=True)
class Target:
    """One effect to be undone, and how far its undoing came. Last settled first."""

    key: str
    step_key: str
    branch: str
    tool: str
    queue: str
    state: str | None  #: of the undo; None: never begun
    sends: int
    person: str | None


@dataclass(frozen=True, slots=True)
class Done:
    """What was done: the request, its result, and how long its settlement is known."""

    request: str
    request_digest: str
    result: str
    age: float


@dataclass(frozen=True, slots=True)
class Undo:
    """The holder of one undo, as the verbs about effects want it."""

    run_id: str
    branch: str
    step_key: str
    step_name: str
    token: int
    owner: str
    attempt: int
    key: str
    undoes: str


def begin(run_id: str, *, start_id: str) -> Doing | None:
    """Take a compensation in hand, counted before any tool's code runs. None: not due, or another's."""
    row = database.fetch_one(
        undo_sql.BEGIN,
        {
            "run_id": run_id, "owner": f"{start_id}.{new_nonce()}", "ttl": settings().lease_ttl,
            "lost": _LOST,
        },
    )  # fmt: skip
    return Doing(*row) if row else None


def standstill(doing: Doing) -> Standstill | None:
    """What still has to come to rest; None: it is another's by now."""
    row = database.fetch_one(undo_sql.STANDSTILL, _of(doing))
    return Standstill(*row) if row else None


def to_undo(doing: Doing) -> list[Target]:
    """What is not undone yet, last settled first. Empty as well when it is another's by now."""
    return [Target(*row) for row in database.fetch(undo_sql.TO_UNDO, _of(doing))]


def read(key: str) -> Done:
    """A settled effect, to be undone."""
    (row,) = database.fetch(
        "SELECT request, coalesce(request_digest, ''), result,"
        " extract(epoch FROM onward_now() - settled_at)::float8 FROM effect_settlement WHERE key = %(key)s",
        {"key": key},
    )
    request, digest, result, age = row
    return Done(load(request), digest, load(result), age)


def undo_of(target: Target, doing: Doing) -> Undo:
    """Who undoes this effect: what the verbs about effects are guarded on."""
    return Undo(
        doing.run_id, target.branch, target.step_key, f"undo.{target.tool}", doing.token, doing.owner,
        doing.goes, undo_key(target.key), target.key,
    )  # fmt: skip


def intend(intent: Intent, undo: Undo, sender: Sender) -> Standing:
    """Write down that this is about to be undone, and say whether it may be. See ``effects.intend``.

    Raises ``LeaseLost`` when the compensation is another's by now, or was taken back.
    """
    return effects.intend(intent, undo, sender, statement=undo_sql.INTEND)


def found_undone(undo: Undo, *, tool_version: str, result: str, reason: str, worker: str) -> None:
    """Record that it is undone already: by hand, or by something that Onward does not know of."""
    database.fetch(
        undo_sql.FOUND,
        _holding(undo)
        | {
            "tool_version": tool_version, "result": seal(result), "result_digest": digest_text(result),
            "reason": reason, "worker": worker,
        },
    )  # fmt: skip


def give_up(undo: Undo, *, reason: str, worker: str) -> None:
    """Leave this undo to a person. What may have been sent is not given up but looked up."""
    database.fetch(undo_sql.GIVE_UP, _holding(undo) | {"reason": reason, "worker": worker})


def note_undone(doing: Doing) -> None:
    """Tell of every effect that is undone now, whoever settled its undo, once each."""
    database.fetch(undo_sql.NOTE_UNDONE, _of(doing))


def renew(doing: Doing, *, progress: bool = False) -> bool:
    """Hold on to it. ``progress``: something came of it, so that its failures count anew."""
    params = _of(doing) | {"ttl": settings().lease_ttl, "progress": progress}
    return database.fetch_one(undo_sql.RENEW, params) is not None


def defer(
    doing: Doing, *, after: float, why: str, counts: bool = False, queue: str | None = None
) -> None:
    """Let go of it for ``after`` seconds. ``counts``: it was in vain."""
    params = {"after": after, "why": why, "counts": counts, "queue": queue or doing.queue}
    database.fetch(undo_sql.DEFER, _of(doing) | params)


def block(doing: Doing) -> str | None:
    """Stop until people have resolved what needs one; returns what does. None: nothing, or another's."""
    row = database.fetch_one(undo_sql.BLOCK, _of(doing))
    return row[0] if row else None


def finish(doing: Doing) -> bool:
    """End it: everything is undone or given up, and nothing of it is in doubt or in motion."""
    return database.fetch_one(undo_sql.FINISH, _of(doing)) is not None


def _of(doing: Doing) -> dict[str, object]:
    return {"run_id": doing.run_id, "owner": doing.owner}


def _holding(undo: Undo) -> dict[str, object]:
    return {
        "run_id": undo.run_id, "owner": undo.owner, "key": undo.key, "undoes": undo.undoes,
        "token": undo.token, "attempt": undo.attempt, "step_key": undo.step_key, "key_retention": None,
    }  # fmt: skip
