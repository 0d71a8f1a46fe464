"""The rows of a gateway's ledger: one per key, and every change of one a single guarded statement.

A row is changed by who holds its ``fence``, the number that each taking-over raises. Whoever held a lower one
changes nothing any more; what he learnt is kept beside, as evidence.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeAlias

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Engine,
    Interval,
    MetaData,
    Table,
    Text,
    cast,
    extract,
    func,
    select,
)
from sqlalchemy.dialects import postgresql

Source: TypeAlias = Literal["act", "lookup", "late_answer", "person"]

_NOW = func.clock_timestamp()


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to write this row, until another fence is given out."""

    key: str
    fence: int
    evidence: str | None = None  #: what an earlier owner answered too late
    landing: float | None = (
        None  #: None: nothing was asked yet; seconds for which it may still land
    )


@dataclass(frozen=True, slots=True)
class Done:
    """It was done, and this was the answer."""

    answer: str


@dataclass(frozen=True, slots=True)
class Other:
    """The key belongs to another request."""


@dataclass(frozen=True, slots=True)
class Busy:
    """Somebody holds it, for so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Doubtful:
    """Only a person, or a look-up, can say."""

    reason: str


Standing: TypeAlias = Claim | Done | Other | Busy | Doubtful


def table(name: str, schema: str | None, metadata: MetaData) -> Table:
    """The ledger's table, also for migrations of your own."""
    moment = DateTime(timezone=True)
    return Table(
        name, metadata,
        Column("key", Text, primary_key=True),
        Column("request_digest", Text, nullable=False),
        Column("state", Text, nullable=False),
        Column("fence", BigInteger, nullable=False),
        Column("owner", Text, nullable=False),
        Column("lease_until", moment, nullable=False),
        Column("doubted_at", moment, comment="when whoever may have acted was lost; null: acting"),
        Column("answer", Text), Column("source", Text),
        Column("evidence", Text, comment="what a displaced owner answered"),
        Column("decided_by", Text), Column("reason", Text),
        Column("made_at", moment, nullable=False, server_default=_NOW),
        Column("ended_at", moment),
        CheckConstraint("state IN ('in_progress', 'in_doubt', 'free', 'done')", f"{name}_state"),
        CheckConstraint("(state = 'done') = (answer IS NOT NULL)", f"{name}_answer"),
        schema=schema,
    )  # fmt: skip


class Rows:
    """The statements, each its own transaction."""

    def __init__(self, engine: Engine, ledger: Table, *, owner: str, lease: timedelta) -> None:
        self._engine, self._t, self._owner, self._lease = engine, ledger, owner, lease

    def make(self, key: str, digest: str) -> Claim | None:
        """Claim a key that nobody used before."""
        made = postgresql.insert(self._t).values(
            key=key, request_digest=digest, state="in_progress", fence=1, **self._ours()
        )
        row = self._one(made.on_conflict_do_nothing().returning(self._t.c.fence))
        return None if row is None else Claim(key, 1)

    def take(self, key: str, digest: str, *, lifetime: timedelta | None, looks: bool) -> Standing:
        """Claim what is free, or whose owner's lease is over; else say how it stands.

        Raises ``LookupError`` when the row changed in between: ask again.
        """
        t = self._t.c
        left = extract("epoch", t.lease_until - _NOW)
        row = self._one(select(self._t, left.label("left")).where(t.key == key))
        if row is None:
            raise LookupError(key)
        if row["request_digest"] != digest:
            return Other()
        match row["state"]:
            case "done":
                return Done(row["answer"])
            case "in_progress" if row["left"] > 0:
                return Busy(float(row["left"]))
            case "in_doubt" if not looks and row["evidence"] is None:
                return Doubtful(row["reason"] or "its owner is gone")
        return self._take_over(row, lifetime)

    def _take_over(self, row: Mapping[str, Any], lifetime: timedelta | None) -> Claim:
        t = self._t.c
        is_free = row["state"] == "free"
        lost_at = None if is_free else func.coalesce(t.doubted_at, t.lease_until)
        landing = extract("epoch", t.doubted_at + cast(lifetime or timedelta(0), Interval) - _NOW)
        taken = (
            self._t.update()
            .where(t.key == row["key"], t.fence == row["fence"], t.state == row["state"])
            .where((t.state != "in_progress") | (t.lease_until <= _NOW))
            .values(state="in_progress", fence=t.fence + 1, doubted_at=lost_at, **self._ours())
            .returning(t.fence, t.evidence, landing.label("landing"))
        )
        found = self._one(taken)
        if found is None:
            raise LookupError(row["key"])
        until = None if is_free else max(0.0, float(found["landing"]))
        return Claim(row["key"], found["fence"], found["evidence"], until)

    def act_again(self, claim: Claim) -> bool:
        """Nothing had happened: from here on, this owner may have acted."""
        return self._change(claim, doubted_at=None, **self._ours())

    def renew(self, claim: Claim) -> bool:
        return self._change(claim, **self._ours())

    def finish(self, claim: Claim, answer: str, source: Source) -> bool:
        """Record the answer; also true when this same write went through before."""
        done = {"state": "done", "answer": answer, "source": source, "ended_at": _NOW}
        if self._change(claim, **done):
            return True
        t = self._t.c
        row = self._one(select(t.state, t.fence, t.answer).where(t.key == claim.key))
        return row is not None and dict(row) == {
            "state": "done", "fence": claim.fence, "answer": answer,
        }  # fmt: skip

    def free(self, claim: Claim, reason: str) -> bool:
        """It definitely did not happen: the next caller acts."""
        return self._change(claim, state="free", doubted_at=None, lease_until=_NOW, reason=reason)

    def doubt(self, claim: Claim, reason: str) -> bool:
        """It may have happened: the next caller looks, or is told that a person has to."""
        lost_at = func.coalesce(self._t.c.doubted_at, _NOW)
        return self._change(claim, doubted_at=lost_at, lease_until=_NOW, reason=reason)

    def ask_person(self, claim: Claim, reason: str) -> bool:
        return self._change(claim, state="in_doubt", lease_until=_NOW, reason=reason)

    def keep_evidence(self, claim: Claim, answer: str) -> None:
        """File a displaced owner's answer. It changes nothing by itself."""
        t = self._t.c
        late = self._t.update().where(t.key == claim.key, t.fence > claim.fence)
        self._one(late.values(evidence=answer).returning(t.key))

    def decide(self, key: str, *, by: str, reason: str, answer: str | None) -> bool:
        """A person's decision about what is in doubt: done with this answer, or free when there is none."""
        t = self._t.c
        state = "free" if answer is None else "done"
        decided = (
            self._t.update()
            .where(t.key == key, t.lease_until <= _NOW)
            .where((t.state == "in_doubt") | (t.state == "in_progress"))
            .values(
                state=state,
                answer=answer,
                source="person",
                decided_by=by,
                reason=reason,
                fence=t.fence + 1,
                doubted_at=None,
                ended_at=None if answer is None else _NOW,
            )
            .returning(t.key)
        )
        return self._one(decided) is not None

    def doubtful(self) -> list[dict[str, Any]]:
        """Everything that waits for a person or a look-up, oldest first."""
        t = self._t.c
        query = (
            select(t.key, t.request_digest, t.owner, t.reason, t.evidence, t.made_at)
            .where(t.lease_until <= _NOW)
            .where((t.state == "in_doubt") | (t.state == "in_progress"))
            .order_by(t.made_at)
        )
        with self._engine.begin() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]

    def forget(self, age: timedelta) -> int:
        """Delete what was done longer ago than this."""
        t = self._t.c
        old = self._t.delete().where(t.state == "done", t.ended_at < _NOW - cast(age, Interval))
        with self._engine.begin() as connection:
            return connection.execute(old).rowcount

    def _ours(self) -> dict[str, Any]:
        return {"owner": self._owner, "lease_until": _NOW + cast(self._lease, Interval)}

    def _change(self, claim: Claim, **values: Any) -> bool:
        """Change a row that this claim still holds."""
        t = self._t.c
        held = (t.key == claim.key, t.fence == claim.fence, t.state == "in_progress")
        changed = self._t.update().where(*held).values(**values).returning(t.key)
        return self._one(changed) is not None

    def _one(self, statement: Any) -> Mapping[str, Any] | None:
        with self._engine.begin() as connection:
            row = connection.execute(statement).mappings().first()
            return None if row is None else dict(row)
