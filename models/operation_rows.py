"""The tables of operation, as SQLAlchemy sees them: workers, periodic jobs, rate limits."""

from datetime import datetime

from sqlalchemy import ARRAY, Text, text
from sqlalchemy.orm import Mapped, mapped_column

from models.rows import NOW, Base


class Worker(Base):
    """One start of a worker. A restart under the same name is another row."""

    __tablename__ = "worker"

    start_id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(index=True)
    host: Mapped[str]
    pid: Mapped[int]
    pid_started: Mapped[int]
    pid_space: Mapped[str]
    """Boot id and pid namespace: a pid means something only within it."""
    queues: Mapped[list[str]] = mapped_column(ARRAY(Text))
    concurrency: Mapped[int]
    started_at: Mapped[datetime] = mapped_column(server_default=NOW)
    seen_at: Mapped[datetime] = mapped_column(server_default=NOW)
    stopped_at: Mapped[datetime | None]


class Throttle(Base):
    """One cluster-wide rate limit: when the next claim may happen."""

    __tablename__ = "throttle"

    name: Mapped[str] = mapped_column(primary_key=True)
    next_at: Mapped[datetime]


class Pass(Base):
    """The last run of each periodic job; its age is the health check."""

    __tablename__ = "pass"

    name: Mapped[str] = mapped_column(primary_key=True)
    started_at: Mapped[datetime]
    completed_at: Mapped[datetime | None]
    seconds: Mapped[float | None]
    detail: Mapped[str] = mapped_column(server_default=text("''"))
