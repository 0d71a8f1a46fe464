"""The recoverer's verbs about untracked steps that say how to ask whether they were done.

    ask -> begin -> found | requeue | again | failed | block

Each is guarded on the revision that the one before it left, which the message of a look-up carries: of two
looks at once, or a copy of a message, the later finds another revision and changes nothing. A look-up is
counted before the author's code runs, by an event of its own.
"""

from dataclasses import dataclass, replace
from typing import LiteralString

from models import database
from models.journal import events, sql, steps
from models.journal.branches import one
from models.journal.doubts import GIVEN_UP
from models.journal.lookups import SPARE
from models.journal.values import BranchRef, Claimed, Completed, Output, StaleStep
from models.settings import settings

BEGUN, LOOKED, FAILED = "step_look_begun", "step_looked", "step_look_failed"


@dataclass(frozen=True, slots=True)
class Ask:
    """A look-up to send: whoever finds the step at another revision drops it."""

    ref: BranchRef
    queue: str


@dataclass(frozen=True, slots=True)
class StepInDoubt:
    """An untracked step whose owner is gone, with what its look-up and whatever follows need."""

    claimed: Claimed  #: the attempt that was lost, as it was claimed
    stale: StaleStep
    failed_looks: int  #: in a row, before this one
    pid: int | None
    pid_started: int | None
    pid_space: str | None
    silent_for: float  #: seconds since it was lost

    @property
    def ref(self) -> BranchRef:
        """The step as this look-up began with it."""
        return BranchRef(self.stale.run_id, self.stale.branch, self.stale.revision)


#: The message may be lost: then the next sweep asks again, later and later.
_ASK: LiteralString = """
UPDATE live l SET publications = l.publications + 1, revision = l.revision + 1,
    error = 'it is asked whether it was done',
    due_at = onward_now() + make_interval(
        secs => least(%(grace)s * 2 ^ greatest(0, least(l.publications - 1, 20)), %(longest)s))
WHERE l.run_id = %(run_id)s AND l.branch = %(branch)s AND l.revision = %(revision)s AND l.state = 'unknown'
  AND l.block_reason IS NULL
RETURNING l.revision, l.queue"""

#: The lost process is known by the claim's row as long as its worker's is there.
_BEGIN: LiteralString = f"""
WITH c AS (
    UPDATE live l SET due_at = onward_now() + make_interval(secs => %(time)s), revision = l.revision + 1
    FROM run r
    WHERE l.run_id = %(run_id)s AND l.branch = %(branch)s AND l.revision = %(revision)s
      AND l.state = 'unknown' AND l.untracked AND l.block_reason IS NULL AND r.run_id = %(run_id)s
    RETURNING l.*, r.wallet_id
), told AS (
    INSERT INTO event (run_id, step_key, token, kind)
    SELECT run_id, step_key, token, '{BEGUN}' FROM c
)
SELECT {sql.CLAIMED}, i.output, {sql.AFTER}
FROM c {sql.PLANNED} {sql.INPUT}"""

_ABOUT: LiteralString = f"""
SELECT l.revision, l.crashes - l.pardoned_crashes, l.lost - l.pardoned_lost, {GIVEN_UP},
    coalesce(a.outcome, 'expired'), coalesce(a.error, l.error, ''), l.worker, (
        SELECT count(*) FROM event e WHERE e.run_id = l.run_id AND e.step_key = l.step_key
        AND e.token = l.token AND e.kind = '{BEGUN}' AND e.event_id > coalesce((
            SELECT max(s.event_id) FROM event s WHERE s.run_id = l.run_id AND s.step_key = l.step_key
            AND s.token = l.token AND s.kind = '{LOOKED}'), 0)) - 1,
    l.pid, l.pid_started, w.pid_space, extract(epoch FROM onward_now() - coalesce(a.ended_at, l.claimed_at))::float8
FROM live l JOIN run r ON r.run_id = l.run_id
LEFT JOIN LATERAL (
    SELECT * FROM attempt WHERE run_id = l.run_id AND step_key = l.step_key AND token = l.token
    AND outcome <> 'superseded' LIMIT 1) a ON true
LEFT JOIN worker w ON w.start_id = split_part(a.owner, '.', 1)
WHERE l.run_id = %(run_id)s AND l.branch = %(branch)s"""

#: A claim like any other, but straight to the result: nobody sees the step running in between.
_TAKE_OVER: LiteralString = """
UPDATE live l SET state = 'running', attempt = l.attempt + 1, token = l.token + 1, owner = %(owner)s,
    claimed_at = onward_now(), lease_expires_at = onward_now(), revision = l.revision + 1
WHERE l.run_id = %(run_id)s AND l.branch = %(branch)s AND l.revision = %(revision)s AND l.state = 'unknown'
RETURNING l.attempt, l.token, l.claimed_at"""

_AGAIN: LiteralString = """
WITH later AS (
    UPDATE live l SET due_at = onward_now() + make_interval(secs => %(after)s), error = %(said)s,
        revision = l.revision + 1
    WHERE l.run_id = %(run_id)s AND l.branch = %(branch)s AND l.revision = %(revision)s AND l.state = 'unknown'
    RETURNING l.run_id, l.step_key, l.token
), told AS (
    INSERT INTO event (run_id, step_key, token, kind, detail)
    SELECT run_id, step_key, token, %(kind)s, %(said)s FROM later
)
SELECT 1 FROM later"""


def ask(ref: BranchRef) -> Ask | None:
    """Have an unknown step looked up: its message may go out. None: it is no longer as it was seen."""
    row = database.fetch_one(
        _ASK,
        {
            **one(ref), "grace": settings().publish_grace, "longest": settings().publish_backoff_max,
        },
    )  # fmt: skip
    return Ask(BranchRef(ref.run_id, ref.branch, row[0]), row[1]) if row else None


def begin(ref: BranchRef, *, owner: str) -> StepInDoubt | None:
    """Start a look-up, counted now. ``owner`` names it. None: the message is late, or a copy."""
    with database.transaction():
        row = database.fetch_one(_BEGIN, {**one(ref), "time": settings().lookup_time_limit + SPARE})
        if row is None:
            return None
        claimed = replace(steps.claimed_from(row), owner=owner)
        about = database.fetch(_ABOUT, one(ref))[0]
    stale = StaleStep(
        run_id=ref.run_id, branch=ref.branch, step_key=claimed.step_key, revision=about[0],
        crashes=about[1], lost=about[2], untracked=False, cancel_requested=about[3], cause=about[4],
        reason=about[5], worker=about[6],
    )  # fmt: skip
    return StepInDoubt(claimed, stale, *about[7:])


def found(step: StepInDoubt, output: Output, *, worker: str, said: str) -> Completed | None:
    """It was done: complete it as its owner would have, straight from ``unknown``. None: it has moved on."""
    with database.transaction():
        taken = database.fetch_one(_TAKE_OVER, {**one(step.ref), "owner": step.claimed.owner})
        if taken is None:
            return None
        tell(step, said=said)
        attempt, token, claimed_at = taken
        claimed = replace(step.claimed, attempt=attempt, token=token, claimed_at=claimed_at)
        return steps.complete(claimed, output, worker=worker, successor=claimed.successor)


def again(step: StepInDoubt, *, after: float, said: str, failed: bool) -> bool:
    """Nothing is decided: look again in ``after`` seconds. ``failed``: the look-up gave no answer."""
    kind = FAILED if failed else LOOKED
    row = database.fetch_one(_AGAIN, {**one(step.ref), "after": after, "said": said, "kind": kind})
    return row is not None


def tell(step: StepInDoubt, *, said: str) -> None:
    """What the look-up found, for the history; what follows from it is written by ``rescue``."""
    events.record(
        step.stale.run_id, LOOKED, step_key=step.stale.step_key, token=step.claimed.token, detail=said
    )  # fmt: skip
