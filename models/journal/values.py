"""What the verbs take and give: frozen values, no rows."""

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from models.plan import InputKind, Successor


@dataclass(frozen=True, slots=True)
class Carrier:
    """Who claims: one process of one worker start, on behalf of one Celery message."""

    start_id: str
    worker: str
    task_id: str
    pid: int
    pid_started: int  #: clock ticks after boot; tells a pid from its reuse


@dataclass(frozen=True, slots=True)
class Lease:
    """The time-limited right to write a step's outcome. All five fields guard every such write."""

    run_id: str
    branch: str
    step_key: str
    token: int
    owner: str


class Planned(NamedTuple):
    """A step as the plan has it, in the order in which statements return it."""

    step_key: str
    step_name: str
    arguments: str
    input_kind: str
    next_key: str | None
    fork: list[str] | None
    joins: str | None
    join_index: int | None
    untracked: bool
    queue: str
    rate_limit: float | None


@dataclass(frozen=True, slots=True)
class Claimed:
    """A step that is ours to run, with everything it needs, as one statement returned it."""

    run_id: str
    branch: str
    step_key: str
    prev_key: str | None
    token: int
    owner: str
    attempt: int
    failures: int
    crashes: int
    pardoned_failures: int
    batch_id: str | None
    claimed_at: datetime
    step_name: str
    arguments: str
    input_kind: str
    next_key: str | None
    fork: list[str] | None
    joins: str | None
    join_index: int | None
    untracked: bool
    queue: str
    #: What the run is paid from, or its batch; None: neither has limits, and it has spent nothing.
    wallet_id: str | None
    piped: str | None  #: the predecessor's recorded output, when it has one
    after: Planned | None  #: the step that follows, or the join this branch reports to

    def followed_by(
        self, step: Planned, *, owner: str, claimed_at: datetime, wallet_id: str | None, piped: str,
        after: Planned | None,
    ) -> "Claimed":  # fmt: skip
        """The next step of the branch, claimed in the commit that completed this one: its first attempt.

        What it is paid from may have been opened since this one was claimed.
        """
        return Claimed(
            run_id=self.run_id, branch=self.branch, step_key=step.step_key, prev_key=self.step_key,
            token=self.token + 1, owner=owner, attempt=1, failures=0, crashes=0, pardoned_failures=0,
            batch_id=self.batch_id, claimed_at=claimed_at, step_name=step.step_name,
            arguments=step.arguments, input_kind=step.input_kind, next_key=step.next_key, fork=step.fork,
            joins=step.joins, join_index=step.join_index, untracked=step.untracked, queue=step.queue,
            wallet_id=wallet_id, piped=piped, after=after,
        )  # fmt: skip

    @property
    def lease(self) -> Lease:
        """What guards every write about this claim."""
        return Lease(self.run_id, self.branch, self.step_key, self.token, self.owner)

    @property
    def successor(self) -> Successor:
        """What follows on this branch, as planned."""
        return Successor(self.next_key, tuple(self.fork or ()))

    @property
    def gathers(self) -> bool:
        """Whether the input is the list of a group's results."""
        return self.input_kind == InputKind.GATHER


@dataclass(frozen=True, slots=True)
class Output:
    """A result as it is recorded."""

    text: str
    digest: str
    input_digest: str
    #: What stands in the journal, where that is not the text itself (``models.artifacts.payloads``).
    stored: str | None = None


@dataclass(frozen=True, slots=True)
class Wakeup:
    """A message to send: *go on with this run here*."""

    run_id: str
    branch: str
    step_key: str
    step_name: str
    queue: str
    attempt: int  #: the claim it hopes to become; part of the Celery task id


@dataclass(frozen=True, slots=True)
class Completed:
    """What a completion led to."""

    wakeups: tuple[Wakeup, ...] = ()  #: to publish now, after the commit
    claimed: Claimed | None = None  #: the next step, when it was claimed in the same commit
    finished: bool = False  #: the run is over


@dataclass(frozen=True, slots=True)
class StaleStep:
    """A step whose owner is gone, as ``recovery.decide`` judges it."""

    run_id: str
    branch: str
    step_key: str
    revision: int
    crashes: int  #: observed deaths, less what a person has pardoned
    lost: int  #: silent owners, likewise
    untracked: bool
    cancel_requested: bool
    cause: str  #: of the last loss: expired, died, interrupted
    reason: str  #: the same in words: the signal, the limit
    worker: str | None
    unsettled_effects: int = 0  #: to be looked up, and not just sent again under their keys
    sends: int = 0  #: of the effect that was sent most often
    has_lookup: bool = False  #: untracked, and says itself how to ask whether it was done


@dataclass(frozen=True, slots=True)
class HeldStep:
    """A step under a lease, and the process that runs it."""

    pid: int
    pid_started: int
    run_id: str
    step_key: str
    token: int


@dataclass(frozen=True, slots=True)
class BranchRef:
    """One branch at one revision: what everyone but the holder guards on."""

    run_id: str
    branch: str
    revision: int
