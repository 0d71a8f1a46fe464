"""What the verbs about effects take and give: frozen values, no rows. Durations are seconds."""

from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from models.ids import new_nonce
from models.states import EffectClass, EffectState


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What a tool declares about its effects; None of a duration: nothing is promised."""

    effect_class: EffectClass
    timeout: float  #: how long one call may take before it counts as unanswered
    key_retention: float | None = None  #: how long the provider honours a key, from the first send
    max_request_lifetime: float | None = None  #: how long after sending a request can still land
    consistency_window: float = 0.0  #: how long a look-up may miss what exists

    @property
    def absent_after(self) -> float | None:
        """Seconds after ``send_by`` from which finding nothing means that there is nothing."""
        if self.max_request_lifetime is None:
            return None
        return self.timeout + self.max_request_lifetime + self.consistency_window


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """One thing to be asked of the outside world, as it is written down before it is asked."""

    key: str
    tool: str
    tool_version: str
    promise: Promise
    request: str  #: canonical, without secret fields
    request_digest: str
    send_within: float  #: seconds from the commit in which the request may start to leave
    undoes: str | None = None
    nonce: str = field(
        default_factory=new_nonce
    )  #: marks this send: an intent tried again is the same one


class Holder(Protocol):
    """Who asks: the claim of a step, or whoever undoes what a step did. ``token`` rises from one to the next."""

    @property
    def run_id(self) -> str: ...
    @property
    def branch(self) -> str: ...
    @property
    def step_key(self) -> str: ...
    @property
    def step_name(self) -> str: ...
    @property
    def token(self) -> int: ...
    @property
    def owner(self) -> str: ...
    @property
    def attempt(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Sender:
    """The process that sends: what proves, later, that it is gone."""

    start_id: str
    worker: str
    pid: int
    pid_started: int
    pid_space: str


@dataclass(frozen=True, slots=True)
class Granted:
    """The intent is durable: send now. ``sends`` counts this one."""

    sends: int


@dataclass(frozen=True, slots=True)
class Recorded:
    """It was done before: this is its result."""

    result: str
    token: int  #: of the claim that it was settled under
    age: float = field(default=0.0, compare=False)  #: seconds since it was recorded


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A person abandoned it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """The key belongs to another request, which was sent or may have been."""

    state: EffectState


@dataclass(frozen=True, slots=True)
class InDoubt:
    """It may have happened already: the world must be asked first."""

    detail: str


@dataclass(frozen=True, slots=True)
class Declined:
    """It was refused before, and the body went on from there: it is refused again, and not asked again."""

    error: str


@dataclass(frozen=True, slots=True)
class Exhausted:
    """Sent so many times and never arrived."""

    sends: int


@dataclass(frozen=True, slots=True)
class Withheld:
    """The run is held (cancelled, being compensated): nothing new is sent for it."""

    hold: str


#: What an intent met.
Standing: TypeAlias = (
    Granted | Recorded | GivenUp | Declined | Conflict | InDoubt | Exhausted | Withheld
)


@dataclass(frozen=True, slots=True)
class OpenEffect:
    """An effect in doubt, as the reconciler claims it, with what the database's clock says about it."""

    key: str
    run_id: str
    step_key: str
    branch: str
    tool: str
    tool_version: str
    effect_class: EffectClass
    undoes: str | None
    request: str
    token: int
    sends: int
    looks: int  #: that found nothing, in a row, when nothing could still arrive
    checks: int  #: look-ups begun, this one included
    failed_checks: int  #: in a row, before this one
    error: str | None
    pid: int
    pid_started: int
    pid_space: str
    call_over: bool
    looker: str
    revision: int
    evidence: str | None  #: the late answer of a displaced owner
    undone_result: str | None  #: of an undo: the result of what it undoes
    resendable: bool  #: the next attempt sends it again, under a key that is still honoured
    sender_died: bool  #: its parent saw the sending process dead
    absent_in: float | None  #: seconds until "not there" may be believed; None: never
    silent_for: float  #: seconds since it came into doubt
    rewound: bool  #: the journal went back in time since: who sent it is not known
    earlier_doubt: bool  #: an earlier send of another process may have happened as well
