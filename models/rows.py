"""The journal's tables, as SQLAlchemy sees them: for reads, administration and the drift test.

What is finished is append-only (``plan, step, attempt, event``), and the database enforces that.
What moves is small (``run, live``): ``live`` has one row per branch in motion, keyed by
(run_id, branch) with the step in an unindexed column, so that every update of it is a HOT update.
Hot verbs do not go through these classes: a prebuilt statement costs a sixth of an ORM flush.
"""

from datetime import datetime
from typing import ClassVar

from sqlalchemy import (
    ARRAY,
    BigInteger,
    CheckConstraint,
    DateTime,
    Float,
    ForeignKey,
    Identity,
    Index,
    MetaData,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import DOMAIN
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from models.states import BlockReason, Hold, RunState, StepState

NOW = text("onward_now()")


def one_of(
    name: str, constraint: str, values: type[StepState | RunState | BlockReason | Hold], *only: str
) -> DOMAIN:
    """Text that is a member of an enum, checked where it is assigned.

    A CHECK of the table would be parsed and evaluated by every write of a row: 25 us a statement.
    """
    names = only or tuple(str(value) for value in values)
    listed = ", ".join(repr(member) for member in names)
    return DOMAIN(name, Text(), check=f"VALUE IN ({listed})", constraint_name=f"ck_{constraint}")


LIVE_STATE = one_of(
    "live_state", "live_state", StepState, "pending", "running", "waiting", "unknown", "failed"
)
STEP_STATE = one_of("step_state", "step_state", StepState, "completed", "failed", "cancelled")
RUN_STATE = one_of("run_state", "run_state", RunState)
RUN_HOLD = one_of("run_hold", "run_hold", Hold)
BLOCK_REASON = one_of("block_reason", "live_block_reason", BlockReason)
MISSING_COUNT = DOMAIN(
    "missing_count", BigInteger(), check="VALUE >= 0", constraint_name="ck_live_missing"
)


class Base(DeclarativeBase):
    """Text columns, time zones and one naming convention everywhere."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "pk": "pk_%(table_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "uq": "uq_%(table_name)s_%(column_0_name)s",
        }
    )
    type_annotation_map: ClassVar = {
        str: Text,
        datetime: DateTime(timezone=True),
        int: BigInteger,
        float: Float,
    }


class Batch(Base):
    """Runs submitted together."""

    __tablename__ = "batch"

    batch_id: Mapped[str] = mapped_column(primary_key=True)
    label: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)


class Run(Base):
    """One execution of a workflow for one business unit."""

    __tablename__ = "run"

    run_id: Mapped[str] = mapped_column(primary_key=True)
    batch_id: Mapped[str | None] = mapped_column(ForeignKey("batch.batch_id"), index=True)
    submission_key: Mapped[str | None] = mapped_column(unique=True)
    """The caller's own key: the same key with the same input is the same run."""
    input: Mapped[str]
    input_digest: Mapped[str]
    workflow: Mapped[str]
    version: Mapped[str]
    interface_digest: Mapped[str]
    code_digest: Mapped[str]
    model: Mapped[str | None]
    prompt_digest: Mapped[str | None]
    policy: Mapped[str | None]
    config_digest: Mapped[str | None]
    priority: Mapped[int] = mapped_column(server_default=text("0"))
    state: Mapped[str] = mapped_column(RUN_STATE, server_default=text("'pending'"))
    hold: Mapped[str | None] = mapped_column(RUN_HOLD)
    """Tested by every claim: while set, no branch of the run goes on."""
    reason: Mapped[str | None]
    detail: Mapped[str | None]
    result_key: Mapped[str | None]
    """The step whose output is the run's result."""
    step_count: Mapped[int]
    duplicates: Mapped[int] = mapped_column(server_default=text("0"))
    """Messages that arrived for work already claimed or done, and were dropped."""
    cancellation_id: Mapped[str | None]
    cancelled_by: Mapped[str | None]
    cancel_reason: Mapped[str | None]
    revision: Mapped[int] = mapped_column(server_default=text("0"))
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    on_failure: Mapped[str | None]
    """``compensate``: what the run did is undone when it fails."""
    wallet_id: Mapped[str | None]
    """What its calls are paid from: its own, or that of the run it came from; null: none was needed yet."""

    __table_args__ = (
        CheckConstraint("(state = 'completed') = (result_key IS NOT NULL)", "result"),
        Index("ix_run_created_at", "created_at"),
        Index("ix_run_held", "run_id", postgresql_where=text("hold IS NOT NULL")),
    )


class Plan(Base):
    """What a run will do: one row per step, insert-only; ``models.plan.PlanNode`` is its value."""

    __tablename__ = "plan"

    run_id: Mapped[str] = mapped_column(primary_key=True)
    step_key: Mapped[str] = mapped_column(primary_key=True)
    position: Mapped[int]
    step_name: Mapped[str]
    queue: Mapped[str]
    kind: Mapped[str]
    branch: Mapped[str]
    input: Mapped[str]
    arguments: Mapped[str]
    next_key: Mapped[str | None]
    fork: Mapped[list[str] | None] = mapped_column(ARRAY(Text))
    joins: Mapped[str | None]
    join_index: Mapped[int | None]
    tolerant: Mapped[bool] = mapped_column(server_default=text("false"))
    untracked: Mapped[bool] = mapped_column(server_default=text("false"))
    has_lookup: Mapped[bool] = mapped_column(server_default=text("false"))
    rate_limit: Mapped[float | None]
    throttle: Mapped[str | None]
    inserted_by: Mapped[str | None]
    """The step whose ``Then`` added this one; null for steps planned at submission."""


class Live(Base):
    """One branch in motion: where it stands, who holds it, when it is due. The only hot table."""

    __tablename__ = "live"

    run_id: Mapped[str] = mapped_column(primary_key=True)
    branch: Mapped[str] = mapped_column(primary_key=True)
    step_key: Mapped[str]
    prev_key: Mapped[str | None]
    """The step that led here on this branch; its output is this step's input."""
    state: Mapped[str] = mapped_column(LIVE_STATE, server_default=text("'pending'"))
    missing: Mapped[int] = mapped_column(MISSING_COUNT, server_default=text("0"))
    """Of a join: members that have not reported yet. Nothing claims it before 0."""
    queue: Mapped[str]
    priority: Mapped[int] = mapped_column(server_default=text("0"))
    batch_id: Mapped[str | None]
    untracked: Mapped[bool] = mapped_column(server_default=text("false"))
    attempt: Mapped[int] = mapped_column(server_default=text("0"))
    """Claims of this step so far; counted before user code runs."""
    failures: Mapped[int] = mapped_column(server_default=text("0"))
    crashes: Mapped[int] = mapped_column(server_default=text("0"))
    """Deaths of the process running this step that somebody saw."""
    lost: Mapped[int] = mapped_column(server_default=text("0"))
    """Owners that fell silent."""
    pardoned_failures: Mapped[int] = mapped_column(server_default=text("0"))
    """What a person has forgiven of each count; counters themselves never go down."""
    pardoned_crashes: Mapped[int] = mapped_column(server_default=text("0"))
    pardoned_lost: Mapped[int] = mapped_column(server_default=text("0"))
    token: Mapped[int] = mapped_column(server_default=text("0"))
    """The fencing number: raised by each claim, by nothing else, never reset."""
    owner: Mapped[str | None]
    worker: Mapped[str | None]
    carrier: Mapped[str | None]
    """The Celery task id that carries the step right now."""
    pid: Mapped[int | None]
    pid_started: Mapped[int | None]
    claimed_at: Mapped[datetime | None]
    lease_expires_at: Mapped[datetime | None]
    due_at: Mapped[datetime] = mapped_column(server_default=NOW)
    slot_at: Mapped[datetime | None]
    """The place this step was given under its rate limit."""
    publish_at: Mapped[datetime] = mapped_column(server_default=NOW)
    """From then on anyone may publish a message for this row."""
    publications: Mapped[int] = mapped_column(server_default=text("0"))
    block_reason: Mapped[str | None] = mapped_column(BLOCK_REASON)
    error_type: Mapped[str | None]
    error: Mapped[str | None]
    progress_done: Mapped[float | None]
    progress_total: Mapped[float | None]
    progress_note: Mapped[str | None]
    revision: Mapped[int] = mapped_column(server_default=text("0"))
    """Raised by every write; what everyone but the holder guards on."""

    __table_args__ = (
        CheckConstraint(
            "(state = 'running') = (owner IS NOT NULL AND lease_expires_at IS NOT NULL)", "lease"
        ),
    )


class Step(Base):
    """A step that is over: its result and how it came about. Insert-only."""

    __tablename__ = "step"

    run_id: Mapped[str] = mapped_column(primary_key=True)
    step_key: Mapped[str] = mapped_column(primary_key=True)
    branch: Mapped[str]
    state: Mapped[str] = mapped_column(STEP_STATE)
    prev_key: Mapped[str | None]
    input_digest: Mapped[str | None]
    output: Mapped[str | None]
    output_digest: Mapped[str | None]
    joins: Mapped[str | None]
    """Set when this step ended a group member: the join it reported to."""
    join_index: Mapped[int | None]
    attempt: Mapped[int]
    token: Mapped[int]
    worker: Mapped[str | None]
    tokens: Mapped[int | None]
    cost: Mapped[float | None]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime] = mapped_column(server_default=NOW)

    __table_args__ = (
        CheckConstraint(
            "(state = 'cancelled') = (output IS NULL) AND (output IS NULL) = (output_digest IS NULL)",
            "output",
        ),
    )


class Attempt(Base):
    """A claim that did not end in a result, and late evidence. Insert-only."""

    __tablename__ = "attempt"

    run_id: Mapped[str] = mapped_column(primary_key=True)
    step_key: Mapped[str] = mapped_column(primary_key=True)
    token: Mapped[int] = mapped_column(primary_key=True)
    outcome: Mapped[str] = mapped_column(primary_key=True)
    attempt: Mapped[int]
    branch: Mapped[str]
    owner: Mapped[str | None]
    worker: Mapped[str | None]
    error_type: Mapped[str | None]
    error: Mapped[str | None]
    output: Mapped[str | None]
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime] = mapped_column(server_default=NOW)

    __table_args__ = (
        CheckConstraint(
            "outcome IN ('expired', 'died', 'interrupted', 'failed', 'superseded')", "outcome"
        ),
    )


class Event(Base):
    """What happened to a run apart from its steps' own rows, in the order it happened. Insert-only."""

    __tablename__ = "event"

    event_id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    run_id: Mapped[str] = mapped_column(index=True)
    step_key: Mapped[str | None]
    token: Mapped[int | None]
    kind: Mapped[str]
    detail: Mapped[str] = mapped_column(server_default=text("''"))
    actor: Mapped[str] = mapped_column(server_default=text("'onward'"))
    at: Mapped[datetime] = mapped_column(server_default=NOW)
