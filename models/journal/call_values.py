"""What the verbs about calls, wallets and endpoints take and give: frozen values, no rows.

Durations are seconds, costs are US dollars.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Literal, TypeAlias

from models.journal.effect_values import Holder

Limit: TypeAlias = Literal["tokens", "cost", "calls", "seconds", "attempts"]
Amount: TypeAlias = int | float | Decimal
Verdict: TypeAlias = Literal["accepted", "rejected"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a call stands in its step: the same in every attempt that goes the same way."""

    generation: int  #: how many times the records of the step have been set aside
    scope: str
    position: int  #: in its scope, from 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCall:
    """A request that was answered, as it is recorded."""

    place: Place
    kind: Literal["model", "read"]
    digest: str
    method: str
    url: str
    endpoint: str
    dialect: str
    model: str | None
    model_answered: str | None
    request: str
    status: int
    headers: str  #: JSON
    answer: str
    state: str
    response_id: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost: Decimal | None = None
    started_at_ago: float = 0.0  #: when it was sent, in seconds before it is recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """A recorded call without its texts, which ``calls.answer`` and ``calls.request`` read."""

    place: Place
    kind: str
    digest: str
    state: str
    status: int
    headers: str
    model: str | None
    model_answered: str | None
    response_id: str | None
    tokens_in: int | None
    tokens_out: int | None
    cost: Decimal | None
    token: int  #: of the claim that recorded it
    verdict: Verdict | None  #: None: suggested only
    reason: str | None  #: why it was rejected
    age: float

    @property
    def is_refusal(self) -> bool:
        """A service found fault with the request: an error of its SDK, and no answer."""
        return self.state == "failed" and self.status >= 400


@dataclass(frozen=True, slots=True)
class History:
    """What a step has on record when an attempt of it begins."""

    generation: int
    pardoned_token: int  #: rejected answers of this claim and earlier ones do not count; 0: all do
    calls: Mapping[tuple[str, int], RecordedCall]  #: of this generation, by scope and position


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """What one request may cost at most. ``send`` tells apart requests for one place under one claim."""

    place: Place
    send: int
    tokens: int
    cost: Decimal | None = None  #: None: no price is known
    model: str | None = None
    token: int | None = None  #: of the claim that made it, where that is an earlier one
    #: Amounts that the request may pass, since nothing bounds its answer: no limit on them could be kept.
    guessed: frozenset[Limit] = frozenset()

    def made_by(self, claimed: Holder) -> int:
        """The token of the claim that set it aside."""
        return claimed.token if self.token is None else self.token


@dataclass(frozen=True, slots=True)
class Charge:
    """What one request did cost."""

    tokens: int
    cost: Decimal | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Reserved:
    """The money is set aside, durably: send now."""


@dataclass(frozen=True, slots=True)
class Exceeded:
    """A limit that would be passed: nothing is sent, nothing was set aside."""

    wallet_id: str
    what: Limit
    limit: Amount
    spent: Amount
    held: Amount
    asked: Amount | None  #: None: unknown, for want of a price or of an answer's greatest length


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a wallet allows; None: no limit."""

    tokens: int | None = None
    cost: Decimal | None = None
    calls: int | None = None
    seconds: float | None = (
        None  #: of wall-clock, from the start of the run (of a batch: of its first)
    )
    attempts: int | None = None  #: of one step, whatever ended them; waits for an endpoint are none

    def __bool__(self) -> bool:
        return any(
            limit is not None
            for limit in (self.tokens, self.cost, self.calls, self.seconds, self.attempts)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWallet:
    """A wallet as it is opened with what it pays for."""

    wallet_id: str  #: the id of its run or batch
    kind: Literal["run", "batch"]
    parent_id: str | None = None  #: what is spent from this one is spent from that one as well
    limits: Limits = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a wallet stands. What is left counts what is reserved as gone."""

    wallet_id: str
    kind: str
    parent_id: str | None
    limits: Limits
    spent_tokens: int
    spent_cost: Decimal
    spent_calls: int
    spent_seconds: float | None  #: of wall-clock; None: not started
    held_tokens: int
    held_cost: Decimal
    held_calls: int
    recovery_tokens: int  #: part of what is spent: answers that were lost with their owners
    recovery_cost: Decimal
    recovery_seconds: float  #: that lost attempts had worked

    @property
    def left_tokens(self) -> int | None:
        limit = self.limits.tokens
        return None if limit is None else max(0, limit - self.spent_tokens - self.held_tokens)

    @property
    def left_cost(self) -> Decimal | None:
        limit = self.limits.cost
        if limit is None:
            return None
        return max(Decimal(0), limit - self.spent_cost - self.held_cost)

    @property
    def left_calls(self) -> int | None:
        limit = self.limits.calls
        return None if limit is None else max(0, limit - self.spent_calls - self.held_calls)

    @property
    def left_seconds(self) -> float | None:
        limit = self.limits.seconds
        return None if limit is None else max(0.0, limit - (self.spent_seconds or 0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class CallView:
    """One recorded call as people see it."""

    step_key: str
    place: Place
    kind: str
    method: str
    url: str
    endpoint: str
    dialect: str
    model: str | None
    model_answered: str | None
    status: int
    state: str
    verdict: Verdict | None
    reason: str | None  #: why it was rejected
    tokens_in: int | None
    tokens_out: int | None
    cost: Decimal | None
    token: int
    attempt: int
    worker: str
    started_at: datetime
    answered_at: datetime
    current: bool  #: False: set aside by a branch


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointStanding:
    """Whether an endpoint may be asked, as all workers see it."""

    endpoint: str
    wait: float  #: seconds until it may be asked again; 0: now
    spread: float
    reason: str | None  #: why it was left alone last; None: it answers
    since: datetime | None  #: since when it has not answered
    strikes: int
