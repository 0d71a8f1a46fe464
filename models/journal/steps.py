"""The holder's verbs: what a worker does to the step it owns.

Every outcome write is guarded on run, branch, step, token and owner (``sql.HELD``), not on the state:
after a lease expires the step may be running again elsewhere, and this worker's result is then evidence,
not the outcome. A verb that finds itself displaced writes nothing and raises ``LeaseLost``.
"""

from collections.abc import Sequence
from typing import Any, LiteralString

from models import database
from models.artifacts.payloads import seal
from models.failpoints import arm_commit
from models.journal import sql
from models.journal.errors import CommitUnknown, LeaseLost
from models.journal.values import Carrier, Claimed, Completed, Lease, Output, Planned, Wakeup
from models.plan import Successor
from models.settings import settings

#: Messages the completing worker sends itself when a group opens; `wake` sends the rest.
FORK_AT_ONCE = 64


def claim(
    run_id: str, branch: str, step_key: str, *, workflow: str | None, versions: Sequence[str],
    carrier: Carrier, nonce: str,
) -> Claimed | None:  # fmt: skip
    """Take a due, pending step: attempt + 1, token + 1, a lease. Counted before user code runs.

    Guarded on the step being pending, complete (no group member missing), due, of a version this
    worker runs (a built-in step has no ``workflow`` and fits any), and its run not being held.
    None: it is not ours to run (``reads.why_not`` says why).
    An unanswered COMMIT is read back by the nonce, which no other claim shares.
    """
    params = {
        "run_id": run_id, "branch": branch, "step_key": step_key, "workflow": workflow,
        "versions": list(versions), "ttl": settings().lease_ttl, **_owner(carrier, nonce),
    }  # fmt: skip
    try:
        row = database.fetch_one(sql.CLAIM, params)
    except CommitUnknown:
        row = database.fetch_one(sql.CLAIMED_BY, params) or database.fetch_one(sql.CLAIM, params)
    return claimed_from(row) if row else None


def complete(claimed: Claimed, output: Output, *, worker: str, successor: Successor) -> Completed:
    """Record a step's result, end its lease and release what follows: one statement, one commit.

    Raises ``LeaseLost`` when the step is no longer ours, ``CommitUnknown`` when the connection broke
    (``confirm`` says what became of it). The successor's publication grace starts here: whoever is
    not done publishing by then leaves it to the sweep.
    """
    params = _result(claimed, output, worker)
    if successor.next_key is None and claimed.joins is None:
        _held(claimed, sql.FINISH, params)
        return Completed(finished=True)
    if successor.next_key is None:
        return _report(claimed, params)
    assert claimed.after is not None  # noqa: S101 - the plan has every successor
    params |= _follows(claimed.after) | {"grace": _grace()}
    if successor.fork:
        return _fork(claimed, params, successor.fork)
    _held(claimed, sql.ADVANCE, params)
    return Completed((_wakeup(claimed, claimed.branch, successor.next_key),))


def complete_and_claim(
    claimed: Claimed, output: Output, *, carrier: Carrier, nonce: str
) -> Completed:
    """Complete a step and claim the next one of its branch in the same commit (sticky execution).

    The next step's intent is durable before its body starts, as with ``claim``. A run that is held
    gets the result recorded and the next step left pending.
    """
    following = claimed.after
    assert following is not None  # noqa: S101 - the engine asks only within a branch
    assert following.step_key == claimed.next_key  # noqa: S101 - and never at its end, before a join
    params = _result(claimed, output, carrier.worker) | _follows(following)
    params |= {
        "ttl": settings().lease_ttl, "new_owner": _owner_id(carrier, nonce),
        "after_key": following.next_key or following.joins,
    }  # fmt: skip
    owner, claimed_at, wallet_id, *after = _held(claimed, sql.ADVANCE_AND_CLAIM, params)
    if owner is None:
        return Completed()
    return Completed(
        claimed=claimed.followed_by(
            following, owner=owner, claimed_at=claimed_at, wallet_id=wallet_id,
            piped=params["output"], after=_planned(after),
        )
    )  # fmt: skip


def confirm(claimed: Claimed) -> bool:
    """Whether a completion whose COMMIT was not answered went through."""
    row = database.fetch_one(
        "SELECT token FROM step WHERE run_id = %(run_id)s AND step_key = %(step_key)s"
        " AND state = 'completed'",
        {"run_id": claimed.run_id, "step_key": claimed.step_key},
    )
    return row is not None and row[0] == claimed.token


def claimed_by(run_id: str, branch: str, *, carrier: Carrier, nonce: str) -> Claimed | None:
    """The step that this nonce claimed, if it did: the read-back of an unanswered commit."""
    params = {"run_id": run_id, "branch": branch, **_owner(carrier, nonce)}
    row = database.fetch_one(sql.CLAIMED_BY, params)
    return claimed_from(row) if row else None


def led_to(claimed: Claimed, *, carrier: Carrier, nonce: str) -> Completed | None:
    """What an unanswered completion led to, the next step it may have claimed for us included.

    None: it did not go through. Its messages are left to the sweep, since their grace may be over.
    """
    if not confirm(claimed):
        return None
    following = claimed_by(claimed.run_id, claimed.branch, carrier=carrier, nonce=nonce)
    return Completed(claimed=following)


def renew(leases: Sequence[Lease], *, ttl: float) -> set[tuple[str, str, int]]:
    """Extend exactly these leases; returns (run, branch, token) of those still ours."""
    rows = database.fetch(
        sql.RENEW,
        {
            "run_ids": [lease.run_id for lease in leases],
            "branches": [lease.branch for lease in leases],
            "tokens": [lease.token for lease in leases],
            "owners": [lease.owner for lease in leases],
            "ttl": ttl,
        },
    )
    return {(row[0], row[1], row[2]) for row in rows}


def report_progress(lease: Lease, done: float, *, total: float | None, note: str | None) -> None:
    """Show how far a step is. Guarded like an outcome: a displaced owner reports nothing."""
    database.fetch(
        f"UPDATE live l SET progress_done = %(done)s, progress_total = %(total)s,"
        f" progress_note = %(note)s, revision = l.revision + 1 WHERE {sql.HELD}",
        {**_guard(lease), "done": done, "total": total, "note": note},
    )


def gathered(claimed: Claimed) -> list[tuple[str, str]]:
    """The (state, output) of every member of the group this step joins, in input order."""
    rows = database.fetch(
        "SELECT state, output FROM step WHERE run_id = %(run_id)s AND joins = %(step_key)s"
        " ORDER BY join_index",
        {"run_id": claimed.run_id, "step_key": claimed.step_key},
    )
    return [(row[0], row[1]) for row in rows]


def take_slot(
    run_id: str, branch: str, step_key: str, *, throttle: str, per_second: float
) -> float:
    """Seconds until this step may be claimed under its rate limit; 0 when it may be now.

    The limit holds over the whole cluster: one row hands out evenly spaced places. A step that has
    to wait keeps its place and stays pending with a due time, holding no worker and no attempt.
    """
    row = database.fetch_one(
        """
        WITH waiting AS (
            SELECT l.run_id, l.branch, l.slot_at FROM live l JOIN run r ON r.run_id = l.run_id
            WHERE l.run_id = %(run_id)s AND l.branch = %(branch)s AND l.step_key = %(step_key)s
              AND l.state = 'pending' AND l.missing = 0 AND r.hold IS NULL FOR UPDATE OF l
        ), place AS (
            INSERT INTO throttle AS t (name, next_at)
            SELECT %(throttle)s, onward_now() + make_interval(secs => %(interval)s)
            FROM waiting WHERE slot_at IS NULL
            ON CONFLICT (name) DO UPDATE
            SET next_at = greatest(t.next_at, onward_now()) + make_interval(secs => %(interval)s)
            RETURNING next_at - make_interval(secs => %(interval)s) AS slot_at
        ), kept AS (
            UPDATE live l SET slot_at = place.slot_at, revision = l.revision + 1,
                due_at = greatest(l.due_at, place.slot_at), publish_at = place.slot_at, publications = 0
            FROM waiting, place
            WHERE l.run_id = waiting.run_id AND l.branch = waiting.branch
            RETURNING l.slot_at
        )
        SELECT extract(epoch FROM coalesce((SELECT slot_at FROM kept), slot_at) - onward_now())
        FROM waiting""",
        {
            "run_id": run_id, "branch": branch, "step_key": step_key,
            "throttle": throttle, "interval": 1.0 / per_second,
        },
    )  # fmt: skip
    return max(0.0, float(row[0])) if row else 0.0


def keep_evidence(claimed: Claimed, output: Output, *, worker: str) -> None:
    """File the late result of a displaced owner under its own attempt. It changes no step."""
    database.fetch(
        """
        INSERT INTO attempt (run_id, step_key, token, outcome, attempt, branch, owner, worker, output,
                             started_at)
        VALUES (%(run_id)s, %(step_key)s, %(token)s, 'superseded', %(attempt)s, %(branch)s, %(owner)s,
                %(worker)s, %(output)s, %(claimed_at)s)
        ON CONFLICT DO NOTHING""",
        _result(claimed, output, worker) | {"owner": claimed.owner},
    )


def _held(claimed: Claimed, statement: LiteralString, params: dict[str, object]) -> database.Row:
    arm_commit(claimed.step_name)
    row = database.fetch_one(statement, params)
    if row is None:
        raise LeaseLost(
            f"Attempt {claimed.attempt} of step {claimed.step_key!r} in run {claimed.run_id} no longer "
            f"owns the step: its lease (token {claimed.token}) ended. Its result is kept as evidence."
        )
    return row


def _report(claimed: Claimed, params: dict[str, object]) -> Completed:
    parent = claimed.branch.rpartition("/")[0]
    (missing,) = _held(claimed, sql.REPORT, params | {"parent": parent, "grace": _grace()})
    if missing != 0 or claimed.joins is None:
        return Completed()
    return Completed((_wakeup(claimed, parent, claimed.joins),))


def _fork(claimed: Claimed, params: dict[str, object], fork: Sequence[str]) -> Completed:
    more: dict[str, object] = {
        "fork": list(fork), "members": len(fork), "at_once": FORK_AT_ONCE, "grace": _grace(),
    }  # fmt: skip
    arm_commit(claimed.step_name)
    rows = database.fetch(sql.FORK, params | more)
    if not rows:
        raise LeaseLost(
            f"Step {claimed.step_key!r} of run {claimed.run_id} was taken by another attempt."
        )
    return Completed(
        tuple(
            Wakeup(claimed.run_id, branch, step_key, step_name, queue, attempt=1)
            for branch, step_key, step_name, queue in rows
        )
    )


def claimed_from(row: database.Row) -> Claimed:
    """From a row of ``sql.CLAIMED``, the input and ``sql.AFTER``."""
    width = len(row) - len(Planned._fields)
    return Claimed(*(*row[:width], _planned(row[width:])))


def _planned(columns: Sequence[Any]) -> Planned | None:
    return None if columns[0] is None else Planned._make(columns)


def _owner_id(carrier: Carrier, nonce: str) -> str:
    return f"{carrier.start_id}.{nonce}"


def _owner(carrier: Carrier, nonce: str) -> dict[str, object]:
    return {
        "new_owner": _owner_id(carrier, nonce), "worker": carrier.worker, "task_id": carrier.task_id,
        "pid": carrier.pid, "pid_started": carrier.pid_started,
    }  # fmt: skip


def _guard(lease: Lease) -> dict[str, object]:
    return {
        "run_id": lease.run_id, "branch": lease.branch, "step_key": lease.step_key,
        "token": lease.token, "owner": lease.owner,
    }  # fmt: skip


def _result(claimed: Claimed, output: Output, worker: str) -> dict[str, Any]:
    return {
        "run_id": claimed.run_id, "branch": claimed.branch, "step_key": claimed.step_key,
        "token": claimed.token, "owner": claimed.owner, "prev_key": claimed.prev_key,
        "attempt": claimed.attempt, "claimed_at": claimed.claimed_at, "worker": worker,
        "joins": claimed.joins, "join_index": claimed.join_index,
        "output": seal(output.text) if output.stored is None else output.stored,
        "output_digest": output.digest, "input_digest": output.input_digest,
    }  # fmt: skip


def _follows(following: Planned) -> dict[str, object]:
    return {
        "next_key": following.step_key, "next_queue": following.queue,
        "next_untracked": following.untracked,
    }  # fmt: skip


def _wakeup(claimed: Claimed, branch: str, step_key: str) -> Wakeup:
    assert claimed.after is not None  # noqa: S101 - the plan has every successor
    name, queue = claimed.after.step_name, claimed.after.queue
    return Wakeup(claimed.run_id, branch, step_key, name, queue, attempt=1)


def _grace() -> float:
    return settings().publish_grace
