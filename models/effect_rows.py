"""The tables of effects, as SQLAlchemy sees them. Verbs do not go through these classes (see ``rows``)."""

from datetime import datetime

from sqlalchemy import ARRAY, CheckConstraint, Identity, Index, Text, text
from sqlalchemy.orm import Mapped, mapped_column

from models.rows import NOW, Base

_ZERO = text("0")


class Effect(Base):
    """An intent whose outcome is not final. Settled ones are deleted as their settlement is recorded."""

    __tablename__ = "effect"

    key: Mapped[str] = mapped_column(primary_key=True)
    """The idempotency key: derived from run, step and tool, the same in every attempt."""
    run_id: Mapped[str] = mapped_column(index=True)
    step_key: Mapped[str]
    branch: Mapped[str]
    queue: Mapped[str]
    """Where workers with the tool's code listen: look-ups and undos go there."""
    tool: Mapped[str]
    tool_version: Mapped[str]
    effect_class: Mapped[str]
    undoes: Mapped[str | None]
    """The key of the effect that this one undoes."""
    request: Mapped[str]
    """What was asked, without its secret fields: look-ups are made from it."""
    request_digest: Mapped[str | None]
    """Binds the key to the request; null when a person has freed the key for another one."""
    state: Mapped[str]
    token: Mapped[int]
    """The claim that sent it last; only its holder may settle an intended effect."""
    attempt: Mapped[int]
    nonce: Mapped[str] = mapped_column(server_default=text("''"))
    """Marks the latest send, so that an intent whose COMMIT was not answered is known again."""
    sends: Mapped[int] = mapped_column(server_default=text("1"))
    """Times that the request may have left. Never goes down."""
    pardoned_sends: Mapped[int] = mapped_column(server_default=_ZERO)
    earlier_doubt: Mapped[bool] = mapped_column(server_default=text("false"))
    """A send before the latest may have happened: a refusal of the latest proves nothing."""
    start_id: Mapped[str]
    worker: Mapped[str]
    pid: Mapped[int]
    pid_started: Mapped[int]
    pid_space: Mapped[str]
    call_over: Mapped[bool] = mapped_column(server_default=text("false"))
    """The sender itself saw its call end: nothing of it is still on its way to the wire."""
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    first_sent_at: Mapped[datetime]
    sent_at: Mapped[datetime]
    send_by: Mapped[datetime]
    """After it the sender does not start to send."""
    resend_until: Mapped[datetime | None]
    """Until then the provider is known to honour the key; null: it never was."""
    absent_after: Mapped[datetime | None]
    """Before it, finding nothing proves nothing; null: it never does."""
    doubted_at: Mapped[datetime | None]
    due_at: Mapped[datetime] = mapped_column(server_default=NOW)
    """Of an unknown effect: when it is looked up next."""
    looks: Mapped[int] = mapped_column(server_default=_ZERO)
    """Consecutive looks that found nothing when nothing could still arrive."""
    checks: Mapped[int] = mapped_column(server_default=_ZERO)
    """Look-ups begun. Counted before the tool's code runs."""
    failed_checks: Mapped[int] = mapped_column(server_default=_ZERO)
    """Consecutive look-ups that gave no answer."""
    looker: Mapped[str | None]
    looker_until: Mapped[datetime | None]
    passed: Mapped[bool] = mapped_column(server_default=text("false"))
    """Of a refused one: its body caught the refusal and went on, so that is its answer for good."""
    person: Mapped[str | None]
    """Why a person has to decide; null: Onward goes on by itself."""
    error: Mapped[str | None]
    revision: Mapped[int] = mapped_column(server_default=_ZERO)

    __table_args__ = (
        CheckConstraint("state IN ('intended', 'unknown', 'refused', 'absent')", "state"),
    )


class EffectSettlement(Base):
    """What became of an effect, for good. Insert-only."""

    __tablename__ = "effect_settlement"

    key: Mapped[str] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(index=True)
    step_key: Mapped[str]
    branch: Mapped[str]
    queue: Mapped[str]
    tool: Mapped[str]
    tool_version: Mapped[str]
    effect_class: Mapped[str]
    undoes: Mapped[str | None]
    request: Mapped[str]
    request_digest: Mapped[str | None]
    outcome: Mapped[str]
    result: Mapped[str | None]
    result_digest: Mapped[str | None]
    source: Mapped[str]
    """Who says so: the answer itself, a look-up, a displaced owner's late answer, a person."""
    actor: Mapped[str] = mapped_column(server_default=text("'onward'"))
    reason: Mapped[str | None]
    token: Mapped[int]
    attempt: Mapped[int]
    sends: Mapped[int]
    worker: Mapped[str]
    position: Mapped[int] = mapped_column(Identity(always=True))
    """The order in which effects were settled; compensation goes through it backwards."""
    created_at: Mapped[datetime]
    first_sent_at: Mapped[datetime]
    settled_at: Mapped[datetime] = mapped_column(server_default=NOW)

    __table_args__ = (
        CheckConstraint("outcome IN ('settled', 'abandoned')", "outcome"),
        CheckConstraint("source IN ('answer', 'lookup', 'late_answer', 'person')", "source"),
        CheckConstraint("(outcome = 'settled') = (result IS NOT NULL)", "result"),
    )


class EffectEvidence(Base):
    """The late answer of a displaced owner: read first by whoever looks, and by itself no outcome."""

    __tablename__ = "effect_evidence"

    key: Mapped[str] = mapped_column(primary_key=True)
    token: Mapped[int] = mapped_column(primary_key=True)
    result: Mapped[str]
    result_digest: Mapped[str]
    worker: Mapped[str]
    at: Mapped[datetime] = mapped_column(server_default=NOW)


class Compensation(Base):
    """The undoing of a run's effects, asked for once. ``only_keys``: of these alone."""

    __tablename__ = "compensation"

    run_id: Mapped[str] = mapped_column(primary_key=True)
    state: Mapped[str]
    only_keys: Mapped[list[str] | None] = mapped_column(ARRAY(Text))
    requested_by: Mapped[str]
    reason: Mapped[str] = mapped_column(server_default=text("''"))
    queue: Mapped[str]
    """Where the next of them is undone: workers with the tool's code listen there."""
    run_state: Mapped[str]
    run_reason: Mapped[str | None]
    run_detail: Mapped[str | None]
    """What the run said of itself when it was asked for; it says so again in the end."""
    failures: Mapped[int] = mapped_column(server_default=_ZERO)
    """Goes at it, counted before a tool's code runs. Never goes down; progress pardons them."""
    pardoned_failures: Mapped[int] = mapped_column(server_default=_ZERO)
    doer: Mapped[str | None]
    doer_until: Mapped[datetime | None]
    due_at: Mapped[datetime] = mapped_column(server_default=NOW)
    error: Mapped[str | None]
    requested_at: Mapped[datetime] = mapped_column(server_default=NOW)
    finished_at: Mapped[datetime | None]
    revision: Mapped[int] = mapped_column(server_default=_ZERO)

    __table_args__ = (
        CheckConstraint("state IN ('undoing', 'blocked', 'done')", "state"),
        CheckConstraint(
            "(doer IS NULL) = (doer_until IS NULL) AND (doer IS NULL OR state = 'undoing')", "doer"
        ),
        Index("ix_compensation_open", "run_id", postgresql_where=text("state <> 'done'")),
    )


class Rewind(Base):
    """A moment to which the journal went back. Runs older than its declaration look before they send."""

    __tablename__ = "rewind"

    rewind_id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    rewound_to: Mapped[datetime]
    declared_at: Mapped[datetime] = mapped_column(server_default=NOW)
    actor: Mapped[str]
    reason: Mapped[str] = mapped_column(server_default=text("''"))


class Pulse(Base):
    """A count that journal and broker both keep: a journal behind the broker's has lost commits."""

    __tablename__ = "pulse"

    name: Mapped[str] = mapped_column(primary_key=True)
    beat: Mapped[int]
    system_id: Mapped[str]
    timeline: Mapped[int]
    at: Mapped[datetime] = mapped_column(server_default=NOW)
