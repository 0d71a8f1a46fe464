"""How a step ends without a result: a failure, an interruption by its own worker, a stop for a person.

Guarded like every outcome write. The attempt's row keeps what went wrong; the live row keeps the count.
"""

import json
from typing import LiteralString

from models import database
from models.artifacts.payloads import seal
from models.digests import digest_text
from models.journal import events, runs, sql
from models.journal.doubts import IN_DOUBT
from models.journal.errors import LeaseLost
from models.journal.values import Claimed
from models.redaction import redact
from models.states import BlockReason

_ENDED: LiteralString = """
    INSERT INTO attempt (run_id, step_key, token, outcome, attempt, branch, owner, worker, error_type,
                         error, started_at)
    SELECT %(run_id)s, %(step_key)s, %(token)s::bigint, %(outcome)s, %(attempt)s::bigint, %(branch)s,
           %(owner)s, %(worker)s, %(error_type)s, %(error)s, %(claimed_at)s::timestamptz
    FROM ended ON CONFLICT DO NOTHING"""

_RETRY: LiteralString = f"""
WITH ended AS (
    UPDATE live l SET {sql.NO_LEASE}, state = 'pending', failures = l.failures + 1,
        error_type = %(error_type)s, error = %(error)s, publications = 0,
        due_at = onward_now() + make_interval(secs => %(delay)s),
        publish_at = onward_now() + make_interval(secs => %(delay)s), revision = l.revision + 1
    WHERE {sql.HELD} RETURNING 1
), noted AS ({_ENDED})
SELECT 1 FROM ended"""

_FAIL: LiteralString = f"""
WITH ended AS (
    UPDATE live l SET {sql.NO_LEASE}, state = 'failed', failures = l.failures + 1,
        error_type = %(error_type)s, error = %(error)s, revision = l.revision + 1
    WHERE {sql.HELD} RETURNING 1
), noted AS ({_ENDED})
SELECT 1 FROM ended"""

_STOP: LiteralString = f"""
WITH ended AS (
    UPDATE live l SET {sql.NO_LEASE}, state = 'failed', block_reason = %(reason)s,
        error_type = %(error_type)s, error = %(error)s, revision = l.revision + 1
    WHERE {sql.HELD} RETURNING 1
), noted AS ({_ENDED})
SELECT 1 FROM ended"""

#: Its place in a queue was not kept: whoever comes back takes the next one that is free.
_POSTPONE: LiteralString = f"""
WITH ended AS (
    UPDATE live l SET {sql.NO_LEASE}, state = 'pending', error_type = %(error_type)s, error = %(error)s,
        publications = 0, due_at = onward_now() + make_interval(secs => %(delay)s),
        publish_at = onward_now() + make_interval(secs => %(delay)s), revision = l.revision + 1
    WHERE {sql.HELD} RETURNING 1
), noted AS ({_ENDED})
SELECT 1 FROM ended"""

_INTERRUPT: LiteralString = f"""
WITH ended AS (
    UPDATE live l SET {sql.NO_LEASE}, state = 'unknown', due_at = onward_now(),
        crashes = l.crashes + %(crashed)s, error_type = %(error_type)s, error = %(error)s, revision = l.revision + 1
    WHERE {sql.HELD} RETURNING 1
), noted AS ({_ENDED})
SELECT 1 FROM ended"""


def retry(claimed: Claimed, *, worker: str, error_type: str, error: str, delay: float) -> None:
    """Count a known failure and make the step due again after ``delay`` seconds. `wake` publishes it."""
    _end(
        claimed,
        _RETRY,
        worker=worker,
        outcome="failed",
        error_type=error_type,
        error=error,
        delay=delay,
    )


def interrupt(claimed: Claimed, *, worker: str, error_type: str, error: str, crashed: bool) -> None:
    """Give a step back because its process cannot go on. Decided like any unknown step.

    A shutdown counts nothing; a process that broke under the step (``crashed``) counts as a crash.
    """
    _end(
        claimed, _INTERRUPT, worker=worker, outcome="interrupted", error_type=error_type, error=error,
        crashed=int(crashed),
    )  # fmt: skip


def postpone(claimed: Claimed, *, worker: str, error_type: str, error: str, delay: float) -> None:
    """Give a step back that has to wait for something, without a failure; `wake` publishes it."""
    _end(
        claimed,
        _POSTPONE,
        worker=worker,
        outcome="interrupted",
        error_type=error_type,
        error=error,
        delay=delay,
    )


def stop(
    claimed: Claimed, *, worker: str, error_type: str, error: str, reason: BlockReason
) -> None:
    """Stop a step until a person has removed the cause; its run shows the reason. Not a failure."""
    with database.transaction():
        _end(
            claimed, _STOP, worker=worker, outcome="failed", error_type=error_type, error=error,
            reason=str(reason),
        )  # fmt: skip
        database.fetch(
            "UPDATE run SET state = 'blocked', reason = %(reason)s, detail = %(error)s,"
            " revision = revision + 1 WHERE run_id = %(run_id)s AND state IN ('pending', 'running', 'waiting')",
            {"run_id": claimed.run_id, "reason": str(reason), "error": error},
        )
        events.record(
            claimed.run_id, "run_blocked", step_key=claimed.step_key, token=claimed.token,
            detail=f"{reason}: {error}",
        )  # fmt: skip
    runs.settle(claimed.run_id)


def fail(claimed: Claimed, *, worker: str, error_type: str, error: str) -> None:
    """End a step for good.

    Inside a tolerant group the nearest such member ends here and its join receives the error. Otherwise
    the run is held: no step of it is claimed any more, running siblings may finish, and ``runs.settle``
    names every failed step once the last of them has.
    """
    with database.transaction():
        _end(claimed, _FAIL, worker=worker, outcome="failed", error_type=error_type, error=error)
        if not _tolerated(claimed, worker=worker, error_type=error_type, error=error):
            hold_failed(claimed.run_id)
    runs.settle(claimed.run_id)


def hold_failed(run_id: str) -> None:
    """Let nothing more of this run be claimed. A cancellation that came first stays."""
    database.fetch(
        "UPDATE run SET hold = 'failed', revision = revision + 1"
        " WHERE run_id = %(run_id)s AND hold IS NULL AND state IN ('pending', 'running', 'blocked')",
        {"run_id": run_id},
    )


def _end(claimed: Claimed, statement: LiteralString, *, worker: str, **facts: object) -> None:
    params: dict[str, object] = {
        "run_id": claimed.run_id, "branch": claimed.branch, "step_key": claimed.step_key,
        "token": claimed.token, "owner": claimed.owner, "attempt": claimed.attempt,
        "claimed_at": claimed.claimed_at, "worker": worker, **facts,
    }  # fmt: skip
    if database.fetch_one(statement, params) is None:
        raise LeaseLost(
            f"Attempt {claimed.attempt} of step {claimed.step_key!r} in run {claimed.run_id} no longer owns "
            f"the step; its failure ({facts['error_type']}) was not recorded as the outcome."
        )


def _tolerated(claimed: Claimed, *, worker: str, error_type: str, error: str) -> bool:
    """Hand a failure to the nearest tolerant join above, ending that member. False: there is none.

    A branch whose own join is gone belongs to a member that a sibling's failure has ended: its failure
    is nobody's any more. All joins above are read in one statement: seen one by one, the lower could be
    from before that end and the upper from after it, and a tolerated failure would end the run.
    """
    joins = _joins_above(claimed)
    member = claimed.branch
    failure = {"step_key": claimed.step_key, "error_type": error_type, "error": error}
    value = redact(json.dumps(failure))
    while "/" in member:
        parent = member.rpartition("/")[0]
        join_key, tolerant = joins.get(parent, (None, True))
        if tolerant:
            _end_member(claimed, member, join_key, worker=worker, output=value)
            return True
        member = parent
    return False


def _joins_above(claimed: Claimed) -> dict[str, tuple[str, bool]]:
    """By branch: the join that waits there, and whether it tolerates failures."""
    names = claimed.branch.split("/")
    rows = database.fetch(
        "SELECT l.branch, l.step_key, p.tolerant FROM live l"
        " JOIN plan p ON p.run_id = l.run_id AND p.step_key = l.step_key"
        " WHERE l.run_id = %(run_id)s AND l.branch = ANY(%(above)s)",
        {
            "run_id": claimed.run_id,
            "above": ["/".join(names[:depth]) for depth in range(1, len(names))],
        },
    )
    return {branch: (step_key, tolerant) for branch, step_key, tolerant in rows}


def _end_member(
    claimed: Claimed, member: str, join_key: str | None, *, worker: str, output: str
) -> None:
    # Whoever deletes the member's own row reports to the join: a second failing branch below it finds
    # the row gone and reports nothing. Branches still running below end in a join that is no longer there.
    params: dict[str, object] = {
        "run_id": claimed.run_id, "member": member, "below": member + "/",
        "parent": member.rpartition("/")[0], "step_key": claimed.step_key, "branch": claimed.branch,
        "prev_key": claimed.prev_key, "join_key": join_key,
        "join_index": int(member.rpartition(".")[2]), "attempt": claimed.attempt, "token": claimed.token,
        "worker": worker, "claimed_at": claimed.claimed_at, "output": seal(output),
        "digest": digest_text(output),
    }  # fmt: skip
    (reported,) = database.fetch(_END_MEMBER, params)[0]
    events.record(
        claimed.run_id, "failure_tolerated", step_key=claimed.step_key, token=claimed.token,
        detail=f"handed to {reported}" if reported else "its group member had ended already",
    )  # fmt: skip


#: A step below that lost its owner, or has an effect in doubt, stays until that is decided; then it ends too.
_END_MEMBER: LiteralString = f"""
WITH below AS (
    DELETE FROM live l WHERE l.run_id = %(run_id)s AND l.state IN ('pending', 'failed', 'waiting')
      AND (starts_with(l.branch, %(below)s) AND NOT {IN_DOUBT} OR l.branch = %(branch)s)
      AND l.branch <> %(member)s
    RETURNING l.*
), gone AS (
    DELETE FROM live l USING (SELECT count(*) FROM below) children_first
    WHERE l.run_id = %(run_id)s AND l.branch = %(member)s RETURNING %(join_key)s AS join_key
), parent AS (
    UPDATE live l SET missing = l.missing - 1, due_at = onward_now(), publish_at = onward_now(),
        publications = 0, revision = l.revision + 1
    FROM gone
    WHERE l.run_id = %(run_id)s AND l.branch = %(parent)s AND l.step_key = gone.join_key
), cancelled AS (
    INSERT INTO step (run_id, step_key, branch, state, prev_key, attempt, token, worker, started_at)
    SELECT run_id, step_key, branch, 'cancelled', prev_key, attempt, token, worker, claimed_at
    FROM below WHERE missing = 0 AND branch <> %(branch)s
)
INSERT INTO step (run_id, step_key, branch, state, prev_key, output, output_digest, joins,
                  join_index, attempt, token, worker, started_at)
SELECT %(run_id)s, %(step_key)s, %(branch)s, 'failed', %(prev_key)s, %(output)s, %(digest)s,
       gone.join_key, CASE WHEN gone.join_key IS NOT NULL THEN %(join_index)s::bigint END,
       %(attempt)s::bigint, %(token)s::bigint, %(worker)s, %(claimed_at)s::timestamptz
FROM (VALUES (1)) one LEFT JOIN gone ON true
RETURNING joins"""
