"""What ``recovery.verify`` holds against each other: one consistent look at everything kept of a run.

Digests are computed again by the database from the texts it holds, so that a run of thousands of steps
is verified without carrying its results over the wire. Reads only.
"""

from dataclasses import dataclass
from typing import LiteralString

from models import database
from models.journal.errors import UnknownRun


@dataclass(frozen=True, slots=True)
class PlanFact:
    """One planned step, as far as it says what may follow what."""

    step_key: str
    branch: str
    input: str
    next_key: str | None
    fork: list[str] | None
    joins: str | None
    join_index: int | None
    inserted_by: str | None


@dataclass(frozen=True, slots=True)
class StepFact:
    """A finished step: the digests it was recorded with, and those of the texts as they are now."""

    step_key: str
    branch: str
    state: str
    prev_key: str | None
    joins: str | None
    join_index: int | None
    attempt: int
    token: int
    has_output: bool
    output_digest: str | None
    output_now: str | None
    input_digest: str | None
    input_now: str | None


@dataclass(frozen=True, slots=True)
class AttemptFact:
    """A claim that ended without a result, or late evidence of one."""

    step_key: str
    branch: str
    token: int
    attempt: int
    outcome: str


@dataclass(frozen=True, slots=True)
class LiveFact:
    """A branch in motion."""

    branch: str
    step_key: str
    state: str
    attempt: int
    token: int
    missing: int


@dataclass(frozen=True, slots=True)
class EffectFact:
    """What a run did outside, or may have done: the digest of its result, and that of the text as it is now."""

    key: str
    step_key: str
    tool: str
    effect_class: str
    undoes: str | None
    state: str
    person: str | None
    step_completed: bool
    unasked: bool  #: the finished body did not ask for what an earlier attempt had done
    result_digest: str | None
    result_now: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything the journal holds about one run, at one instant."""

    run_id: str
    state: str
    result_key: str | None
    input_digest: str
    input_now: str
    step_count: int
    plan: list[PlanFact]
    steps: list[StepFact]
    attempts: list[AttemptFact]
    live: list[LiveFact]
    effects: list[EffectFact]


def _digest(text: LiteralString) -> LiteralString:
    """``models.digests.digest_text`` in SQL; recorded texts are ASCII."""
    return f"'sha256:' || encode(sha256(convert_to({text}, 'UTF8')), 'hex')"


_RUN: LiteralString = f"""
SELECT state, result_key, input_digest, {_digest("input")}, step_count FROM run WHERE run_id = %(run_id)s"""

_PLAN: LiteralString = """
SELECT step_key, branch, input, next_key, fork, joins, join_index, inserted_by FROM plan
WHERE run_id = %(run_id)s ORDER BY position"""

#: What ``tasks.inputs.digests`` makes: the bound arguments, then the predecessor's output, or, of a join,
#: the list of its members' outputs.
_INPUT: LiteralString = """p.arguments || chr(10) || coalesce(CASE p.input WHEN 'gather' THEN (
    SELECT '[' || string_agg(m.output, ',' ORDER BY m.join_index) || ']' FROM step m
    WHERE m.run_id = s.run_id AND m.joins = s.step_key) ELSE i.output END, '')"""

_STEPS: LiteralString = f"""
SELECT s.step_key, s.branch, s.state, s.prev_key, s.joins, s.join_index, s.attempt, s.token,
       s.output IS NOT NULL, s.output_digest, {_digest("s.output")}, s.input_digest, {_digest(_INPUT)}
FROM step s
LEFT JOIN plan p ON p.run_id = s.run_id AND p.step_key = s.step_key
LEFT JOIN step i ON i.run_id = s.run_id AND i.step_key = s.prev_key
WHERE s.run_id = %(run_id)s ORDER BY s.branch, s.token"""

_ATTEMPTS: LiteralString = """
SELECT step_key, branch, token, attempt, outcome FROM attempt
WHERE run_id = %(run_id)s ORDER BY branch, token, ended_at"""

_LIVE: LiteralString = """
SELECT branch, step_key, state, attempt, token, missing FROM live WHERE run_id = %(run_id)s ORDER BY branch"""

_EFFECTS: LiteralString = f"""
SELECT e.key, e.step_key, e.tool, e.effect_class, e.undoes, e.state, e.person, EXISTS (
           SELECT 1 FROM step s WHERE s.run_id = e.run_id AND s.step_key = e.step_key AND s.state = 'completed'),
       EXISTS (SELECT 1 FROM event v WHERE v.run_id = e.run_id AND v.kind = 'effect_not_asked_again'
               AND v.detail = e.key),
       t.result_digest, {_digest("t.result")}
FROM effects e LEFT JOIN effect_settlement t ON t.key = e.key
WHERE e.run_id = %(run_id)s ORDER BY e.position NULLS LAST, e.created_at, e.key"""

#: Events exist for trouble only, so the last of them reach back far; the bound keeps the look cheap
#: whatever the age of the journal. A run that needed longer is verified by hand.
_RECENT = 20_000

_RECOVERED: LiteralString = """
WITH lost AS (
    SELECT run_id, max(event_id) AS event_id FROM event
    WHERE event_id > (SELECT coalesce(max(event_id), 0) FROM event) - %(recent)s AND kind LIKE 'lease\\_%%'
    GROUP BY run_id
)
SELECT l.run_id FROM lost l JOIN run r ON r.run_id = l.run_id
WHERE r.state IN ('completed', 'failed', 'cancelled', 'compensated') AND NOT EXISTS (
    SELECT 1 FROM event e WHERE e.run_id = l.run_id AND e.event_id > l.event_id
    AND e.kind IN ('run_verified', 'verification_failed'))
ORDER BY l.event_id LIMIT %(limit)s"""


def of_run(run_id: str) -> Evidence:
    """Everything about a run as of one instant, also while it moves. Raises ``UnknownRun``."""
    params = {"run_id": run_id}
    with database.transaction() as link:
        link.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        run = link.execute(_RUN, params).fetchone()
        if run is None:
            raise UnknownRun(
                f"There is no run {run_id!r}; `onward runs list` shows those that exist."
            )
        state, result_key, input_digest, input_now, step_count = run
        return Evidence(
            run_id=run_id, state=state, result_key=result_key, input_digest=input_digest,
            input_now=input_now, step_count=step_count,
            plan=[PlanFact(*row) for row in link.execute(_PLAN, params)],
            steps=[StepFact(*row) for row in link.execute(_STEPS, params)],
            attempts=[AttemptFact(*row) for row in link.execute(_ATTEMPTS, params)],
            live=[LiveFact(*row) for row in link.execute(_LIVE, params)],
            effects=[EffectFact(*row) for row in link.execute(_EFFECTS, params)],
        )  # fmt: skip


def recovered_runs(*, limit: int) -> list[str]:
    """Finished runs that lost an owner on their way and were not verified since."""
    rows = database.fetch(_RECOVERED, {"recent": _RECENT, "limit": limit})
    return [row[0] for row in rows]
