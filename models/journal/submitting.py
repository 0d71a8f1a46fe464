"""Submitting runs: a run, its whole plan and its first branches come into being in one statement."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter

from models import database
from models.artifacts import payloads
from models.ids import check_identifier, new_run_id
from models.journal import budgets, wallets
from models.journal.call_values import Limits
from models.journal.errors import Refused, SubmissionConflict
from models.journal.runs import MAX_PROSE
from models.journal.steps import FORK_AT_ONCE
from models.journal.values import Wakeup
from models.messages import printable, shorten
from models.plan import ROOT_BRANCH, Plan, PlanNode
from models.settings import settings

_PLAN_COLUMNS = (
    "step_key text, position bigint, step_name text, queue text, kind text, branch text, input text,"
    " arguments text, next_key text, fork text[], joins text, join_index bigint, rate_limit float8,"
    " throttle text, tolerant boolean, untracked boolean, has_lookup boolean"
)
_PLAN_NAMES = ", ".join(column.split()[0] for column in _PLAN_COLUMNS.split(","))
#: What is null or false, which is most of a plan, is left out of the JSON: half of its length.
_PLAN_VALUES = ", ".join(
    f"coalesce(n.{name}, false)" if name in {"tolerant", "untracked", "has_lookup"} else f"n.{name}"
    for name in _PLAN_NAMES.split(", ")
)
_NODE_FIELDS = tuple(field.name for field in fields(PlanNode) if field.name != "successor")
_node_values = attrgetter(*_NODE_FIELDS)

INSERT_PLAN = f"""
    INSERT INTO plan (run_id, {_PLAN_NAMES}, inserted_by)
    SELECT %(run_id)s, {_PLAN_VALUES}, %(inserted_by)s FROM json_to_recordset(%(nodes)s::json) AS n({_PLAN_COLUMNS})"""

#: A queue's window: beyond that many unclaimed messages a new step waits for `wake` to publish it, and
#: so does every member of a first group but the first few.
_WINDOW_OPEN = """(b.missing = 0 AND b.place <= %(at_once)s AND (
        SELECT count(*) FROM (SELECT 1 FROM live w WHERE w.queue = b.queue AND w.publications > 0
        AND w.state = 'pending' LIMIT %(window)s) full_window) + b.place <= %(window)s)"""

_SUBMIT = f"""
WITH made AS (
    INSERT INTO run (run_id, batch_id, submission_key, input, input_digest, workflow, version,
                     interface_digest, code_digest, config_digest, priority, step_count, on_failure,
                     wallet_id)
    VALUES (%(run_id)s, %(batch_id)s, %(submission_key)s, %(input)s, %(input_digest)s, %(workflow)s,
            %(version)s, %(interface_digest)s, %(code_digest)s, %(config_digest)s, %(priority)s,
            %(step_count)s, %(on_failure)s, {budgets.WALLET})
    ON CONFLICT DO NOTHING RETURNING run_id, wallet_id
), paying AS ({budgets.OPENED}
), planned AS (
    INSERT INTO plan (run_id, {_PLAN_NAMES})
    SELECT made.run_id, {_PLAN_VALUES} FROM made, json_to_recordset(%(nodes)s::json) AS n({_PLAN_COLUMNS})
), started AS (
    INSERT INTO live (run_id, branch, step_key, queue, untracked, missing, priority, batch_id,
                      publish_at, publications)
    SELECT made.run_id, b.branch, b.step_key, b.queue, b.untracked, b.missing, %(priority)s, %(batch_id)s,
           CASE WHEN b.missing > 0 THEN 'infinity'
                WHEN b.published THEN onward_now() + make_interval(secs => %(grace)s)
                ELSE onward_now() END,
           CASE WHEN b.published THEN 1 ELSE 0 END
    FROM made, (
        SELECT b.*, {_WINDOW_OPEN} AS published FROM json_to_recordset(%(branches)s::json)
        AS b(branch text, step_key text, queue text, untracked boolean, missing bigint, place bigint)
        OFFSET 0 -- keeps the look at the window in one place: it is evaluated once a branch
    ) b
    RETURNING branch, step_key, queue, publications
)
SELECT s.branch, s.step_key, s.queue, s.publications FROM made LEFT JOIN started s ON true"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A run to be made: its definition, its input as recorded, its plan."""

    workflow: str
    version: str
    interface_digest: str
    code_digest: str
    config_digest: str
    input: str
    input_digest: str
    plan: Plan
    run_id: str | None = None
    submission_key: str | None = None
    batch_id: str | None = None
    priority: int = 0
    on_failure: str | None = None  #: ``compensate``: what the run did is undone when it fails
    budget: Limits | None = None  #: what the run may spend
    same_budget: bool = (
        False  #: the caller named it: an earlier submission must have named the same
    )
    within: str | None = None  #: a run that pays for this one as well


@dataclass(frozen=True, slots=True)
class Submitted:
    """The run that now exists, and whether this submission made it."""

    run_id: str
    created: bool
    wakeups: tuple[Wakeup, ...] = ()


def node_record(node: PlanNode, position: int) -> dict[str, object]:
    """A plan node as ``json_to_recordset`` reads it."""
    record: dict[str, object] = {"position": position}
    for name, value in zip(_NODE_FIELDS, _node_values(node), strict=True):
        if value is not None and value is not False:
            record[name] = value
    follows = node.successor
    if follows.next_key is not None:
        record["next_key"] = follows.next_key
    if follows.fork:
        record["fork"] = follows.fork
    return record


def create_batch(batch_id: str, label: str, *, budget: Limits | None = None) -> None:
    """Name runs that belong together, with what they may spend. Creating it again is fine.

    With another budget than it has this raises ``SubmissionConflict``.
    """
    check_identifier("batch_id", batch_id)
    label = shorten(printable(label), limit=MAX_PROSE)
    params = {"batch_id": batch_id, "label": label, **budgets.params(budget)}
    made = database.fetch(budgets.BATCH, params)
    if budget is not None and not made:
        budgets.require(batch_id, budget, group="batch")


def submit(submission: Submission) -> Submitted:
    """Record a run, its whole plan and its first branches in one statement.

    Idempotent by run id or submission key: used again with the same workflow and input it returns
    the run it made first; with another input, or another budget, it raises ``SubmissionConflict`` and
    writes nothing.
    """
    for field in ("run_id", "submission_key", "batch_id"):
        value = getattr(submission, field)
        if value is not None:
            check_identifier(field, value)
    run_id = submission.run_id or new_run_id()
    paid_from = None if submission.within is None else wallets.ensure(submission.within)
    params = _submission_params(submission, run_id) | {"paid_from": paid_from}
    rows = database.fetch(_SUBMIT, params)
    if not rows:
        return _earlier(submission, run_id)
    names = {node.step_key: node.step_name for node in submission.plan.nodes}
    wakeups = tuple(
        Wakeup(run_id, branch, step_key, names[step_key], queue, attempt=1)
        for branch, step_key, queue, publications in rows
        if publications
    )
    return Submitted(run_id, created=True, wakeups=wakeups)


def _submission_params(submission: Submission, run_id: str) -> dict[str, object]:
    nodes = [
        node_record(_kept(node, run_id), place) for place, node in enumerate(submission.plan.nodes)
    ]
    return {
        "run_id": run_id, "batch_id": submission.batch_id, "submission_key": submission.submission_key,
        "input": payloads.offload(
            submission.input, run_id=run_id, step_key="", name="input", role="input"
        ),
        "input_digest": submission.input_digest,
        "workflow": submission.workflow, "version": submission.version,
        "interface_digest": submission.interface_digest, "code_digest": submission.code_digest,
        "config_digest": submission.config_digest, "priority": submission.priority,
        "on_failure": submission.on_failure,
        "step_count": len(nodes), "nodes": json.dumps(nodes), "window": settings().publish_window,
        "branches": json.dumps(_first_branches(submission.plan)), "grace": settings().publish_grace,
        "at_once": FORK_AT_ONCE, **budgets.params(submission.budget),
    }  # fmt: skip


def _kept(node: PlanNode, run_id: str) -> PlanNode:
    """A node whose arguments are what is recorded of them."""
    recorded = payloads.offload(
        node.arguments, run_id=run_id, step_key=node.step_key, name="arguments", role="input"
    )
    return node if recorded is node.arguments else replace(node, arguments=recorded)


def _first_branches(plan: Plan) -> list[dict[str, object]]:
    by_key = {node.step_key: node for node in plan.nodes}
    entry = plan.entry
    heads: Sequence[str] = entry.fork
    assert entry.next_key is not None  # noqa: S101 - the compiler gives every plan a step
    start = [(ROOT_BRANCH, by_key[entry.next_key], len(heads))]
    start += [(by_key[head].branch, by_key[head], 0) for head in heads]
    return [
        {
            "branch": branch, "step_key": node.step_key, "queue": node.queue,
            "untracked": node.untracked, "missing": missing, "place": max(place, 1),
        }
        for place, (branch, node, missing) in enumerate(start)
    ]  # fmt: skip


def _earlier(submission: Submission, run_id: str) -> Submitted:
    row = database.fetch_one(
        "SELECT run_id, workflow, input_digest FROM run"
        " WHERE submission_key = %(key)s OR run_id = %(run_id)s ORDER BY submission_key = %(key)s LIMIT 1",
        {"key": submission.submission_key, "run_id": run_id},
    )
    if row is None:
        raise Refused(
            "The submission met another one of the same key that was taken back: submit again."
        )
    if (row[1], row[2]) != (submission.workflow, submission.input_digest):
        used = submission.submission_key or run_id
        raise SubmissionConflict(
            f"The key {used!r} belongs to run {row[0]} of {row[1]!r}, which has another input. Nothing was "
            f"submitted: use another key for another input."
        )
    if submission.budget is not None and submission.same_budget:
        budgets.require(row[0], submission.budget, group="run")
    return Submitted(row[0], created=False)
