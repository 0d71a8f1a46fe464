"""The tables of calls, wallets and artifacts, as SQLAlchemy sees them. Verbs do not go through these classes."""

from datetime import datetime
from decimal import Decimal

from sqlalchemy import CheckConstraint, Index, Numeric, text
from sqlalchemy.orm import Mapped, mapped_column

from models.rows import NOW, Base

_ZERO = text("0")
_FALSE = text("false")
_AMOUNTS = "tokens >= 0 AND (cost IS NULL OR cost >= 0 AND cost < 'Infinity')"


class RecordedCallRow(Base):
    """What was asked and what came back: one row per request that was answered. Insert-only."""

    __tablename__ = "recorded_call"

    run_id: Mapped[str] = mapped_column(primary_key=True)
    step_key: Mapped[str] = mapped_column(primary_key=True)
    generation: Mapped[int] = mapped_column(primary_key=True, server_default=_ZERO)
    """How many times the records of the step had been set aside by then."""
    scope: Mapped[str] = mapped_column(primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str]
    digest: Mapped[str]
    """Of the request: an attempt that asks for something else here does not get this answer."""
    method: Mapped[str]
    url: Mapped[str]
    endpoint: Mapped[str]
    dialect: Mapped[str]
    model: Mapped[str | None]
    """The pin: what the request named."""
    model_answered: Mapped[str | None]
    request: Mapped[str]
    status: Mapped[int]
    headers: Mapped[str]
    answer: Mapped[str]
    answer_digest: Mapped[str]
    state: Mapped[str]
    response_id: Mapped[str | None]
    tokens_in: Mapped[int | None]
    tokens_out: Mapped[int | None]
    cost: Mapped[Decimal | None] = mapped_column(Numeric)
    token: Mapped[int]
    attempt: Mapped[int]
    worker: Mapped[str]
    started_at: Mapped[datetime]
    answered_at: Mapped[datetime] = mapped_column(server_default=NOW)

    __table_args__ = (
        CheckConstraint("kind IN ('model', 'read')", "kind"),
        CheckConstraint(
            "state IN ('complete', 'length', 'cut', 'empty', 'refused', 'malformed', 'other_model',"
            " 'pending', 'failed')",
            "state",
        ),
    )


class CallVerdict(Base):
    """What the step made of an answer: until there is a row here it is only suggested. Insert-only."""

    __tablename__ = "call_verdict"

    run_id: Mapped[str] = mapped_column(primary_key=True)
    step_key: Mapped[str] = mapped_column(primary_key=True)
    generation: Mapped[int] = mapped_column(primary_key=True, server_default=_ZERO)
    scope: Mapped[str] = mapped_column(primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    verdict: Mapped[str]
    reason: Mapped[str | None]
    token: Mapped[int]
    at: Mapped[datetime] = mapped_column(server_default=NOW)

    __table_args__ = (
        CheckConstraint("verdict IN ('accepted', 'rejected')", "verdict"),
        CheckConstraint("(verdict = 'rejected') = (reason IS NOT NULL)", "reason"),
    )


class CallReset(Base):
    """What changes how a step's records are read in later attempts. Insert-only.

    ``branch``: they are set aside; the generation of a step is the number of these rows. ``pardon``: answers
    rejected under this token or an earlier one do not count against the limit on asking.
    """

    __tablename__ = "call_reset"

    run_id: Mapped[str] = mapped_column(primary_key=True)
    step_key: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(primary_key=True)
    token: Mapped[int] = mapped_column(primary_key=True)
    reason: Mapped[str]
    actor: Mapped[str] = mapped_column(server_default=text("'onward'"))
    at: Mapped[datetime] = mapped_column(server_default=NOW)

    __table_args__ = (CheckConstraint("kind IN ('branch', 'pardon')", "kind"),)


class Wallet(Base):
    """What a run, or a batch of runs, may spend, and what it has. A null limit is none."""

    __tablename__ = "wallet"

    wallet_id: Mapped[str] = mapped_column(primary_key=True)
    """The id of its run or batch."""
    kind: Mapped[str]
    parent_id: Mapped[str | None]
    """What is spent from this one is spent from that one as well. Never changes."""
    limit_tokens: Mapped[int | None]
    limit_cost: Mapped[Decimal | None] = mapped_column(Numeric)
    limit_calls: Mapped[int | None]
    limit_seconds: Mapped[float | None]
    limit_attempts: Mapped[int | None]
    spent_tokens: Mapped[int] = mapped_column(server_default=_ZERO)
    spent_cost: Mapped[Decimal] = mapped_column(Numeric, server_default=_ZERO)
    spent_calls: Mapped[int] = mapped_column(server_default=_ZERO)
    held_tokens: Mapped[int] = mapped_column(server_default=_ZERO)
    """The sum of the holds of this wallet and of those below it; likewise cost and calls."""
    held_cost: Mapped[Decimal] = mapped_column(Numeric, server_default=_ZERO)
    held_calls: Mapped[int] = mapped_column(server_default=_ZERO)
    recovery_tokens: Mapped[int] = mapped_column(server_default=_ZERO)
    """Part of what is spent: answers that were lost."""
    recovery_cost: Mapped[Decimal] = mapped_column(Numeric, server_default=_ZERO)
    revision: Mapped[int] = mapped_column(server_default=_ZERO)
    started_at: Mapped[datetime | None]
    """Of a batch: when the first of its runs was let in; a run's own start is its run's."""
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)

    __table_args__ = (
        CheckConstraint("kind IN ('run', 'batch')", "kind"),
        CheckConstraint(
            "spent_tokens >= 0 AND spent_cost >= 0 AND spent_calls >= 0"
            " AND held_tokens >= 0 AND held_cost >= 0 AND held_calls >= 0"
            " AND recovery_tokens >= 0 AND recovery_cost >= 0",
            "amounts",
        ),
        CheckConstraint(
            "coalesce(limit_tokens, 0) >= 0 AND coalesce(limit_calls, 0) >= 0 AND coalesce(limit_attempts, 0) >= 0"
            " AND coalesce(limit_cost, 0) >= 0 AND coalesce(limit_cost, 0) < 'Infinity'"
            " AND coalesce(limit_seconds, 0) >= 0 AND coalesce(limit_seconds, 0) < 'Infinity'",
            "limits",
        ),
    )


class HoldRow(Base):
    """What is set aside for a request that may be on its way. Deleted by what settles it."""

    __tablename__ = "hold"

    run_id: Mapped[str] = mapped_column(primary_key=True)
    step_key: Mapped[str] = mapped_column(primary_key=True)
    generation: Mapped[int] = mapped_column(primary_key=True, server_default=_ZERO)
    scope: Mapped[str] = mapped_column(primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    token: Mapped[int] = mapped_column(primary_key=True)
    """The claim that sends; once it is over, the answer is lost and the hold is charged."""
    send: Mapped[int] = mapped_column(primary_key=True)
    wallet_id: Mapped[str]
    model: Mapped[str | None]
    tokens: Mapped[int]
    cost: Mapped[Decimal | None] = mapped_column(Numeric)
    made_at: Mapped[datetime] = mapped_column(server_default=NOW)

    __table_args__ = (CheckConstraint(_AMOUNTS, "amounts"),)


class Spend(Base):
    """What was charged, and for what: once for each hold. Insert-only."""

    __tablename__ = "spend"

    run_id: Mapped[str] = mapped_column(primary_key=True)
    step_key: Mapped[str] = mapped_column(primary_key=True)
    generation: Mapped[int] = mapped_column(primary_key=True, server_default=_ZERO)
    scope: Mapped[str] = mapped_column(primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    token: Mapped[int] = mapped_column(primary_key=True)
    send: Mapped[int] = mapped_column(primary_key=True)
    wallet_id: Mapped[str]
    model: Mapped[str | None]
    tokens: Mapped[int]
    cost: Mapped[Decimal | None] = mapped_column(Numeric)
    """Null: no price is known."""
    recovery: Mapped[bool] = mapped_column(server_default=_FALSE)
    """Nobody had anything of it: its answer was lost."""
    seconds: Mapped[float | None]
    at: Mapped[datetime] = mapped_column(server_default=NOW)

    __table_args__ = (CheckConstraint(_AMOUNTS, "amounts"),)


class Endpoint(Base):
    """When an endpoint may be asked again, and how fast: shared by all workers."""

    __tablename__ = "endpoint"

    endpoint: Mapped[str] = mapped_column(primary_key=True)
    not_before: Mapped[datetime | None]
    spread: Mapped[float] = mapped_column(server_default=_ZERO)
    """Seconds over which those who waited come back, when they are many."""
    waiters: Mapped[int] = mapped_column(server_default=_ZERO)
    """How many were told to wait for the end of this pause: each comes back at an instant of its own."""
    reason: Mapped[str | None]
    strikes: Mapped[int] = mapped_column(server_default=_ZERO)
    """Failures in a row, those at once counted as one; the pause doubles with each."""
    since: Mapped[datetime | None]
    request_level: Mapped[float | None]
    """Requests that may leave at once; below 0: those ahead in the queue. Likewise tokens."""
    token_level: Mapped[float | None]
    level_at: Mapped[datetime | None]


class Artifact(Base):
    """Content kept outside the journal. The row is written after the file is whole."""

    __tablename__ = "artifact"

    digest: Mapped[str] = mapped_column(primary_key=True)
    size: Mapped[int]
    encoding: Mapped[str]
    stored_size: Mapped[int]
    encrypted: Mapped[bool] = mapped_column(server_default=_FALSE)
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)

    __table_args__ = (CheckConstraint("encoding IN ('identity', 'gzip')", "encoding"),)


class ArtifactUse(Base):
    """Which step made or took which artifact."""

    __tablename__ = "artifact_use"

    run_id: Mapped[str] = mapped_column(primary_key=True)
    step_key: Mapped[str] = mapped_column(primary_key=True)
    digest: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    role: Mapped[str] = mapped_column(primary_key=True)
    at: Mapped[datetime] = mapped_column(server_default=NOW)

    __table_args__ = (
        CheckConstraint("role IN ('made', 'taken', 'output', 'input')", "role"),
        Index("ix_artifact_use_digest", "digest"),
    )
