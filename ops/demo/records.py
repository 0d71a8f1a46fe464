"""What is known about a fault once it is over, and the mechanism that undid it, by the journal's evidence."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any

from ops.demo.evidence import Fate
from ops.demo.schedule import FaultKind


class Mechanism(StrEnum):
    """What got the affected steps going again."""

    CHILD_FAST_PATH = "child fast path"  #: the parent saw its child die
    RETURNING_WORKER = "returning worker"  #: the worker's next start found the old one gone
    SWEEP = "sweep"  #: the lease ran out
    RECONNECTION = "reconnection"  #: the same attempt wrote its result once the journal was back
    MESSAGE_KEPT = "message kept"  #: the message that was under way arrived
    REPUBLICATION = "republication"  #: the journal's due work was sent again
    OTHER_BEAT = "other beat"
    RESTARTED_BEAT = "restarted beat"
    LOOK_UP = "look-up"  #: the registry was asked, and nothing was sent again
    RETRY = "retry"  #: the attempt failed, and the step was tried again
    HANDED_BACK = "handed back"  #: its worker was asked to stop, and gave the step back
    UNKNOWN = "something unknown"  #: the claim ended without a trace: the demo fails by it


#: Ways of an attempt to end that say by themselves who released it.
_BY_OUTCOME = {
    "died": Mechanism.CHILD_FAST_PATH,
    "failed": Mechanism.RETRY,
    "interrupted": Mechanism.HANDED_BACK,
}

#: How ``losing.mark_orphaned`` words what a returning worker does.
_RETURNED = "its worker is gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What stayed done at the moment of a fault."""

    batch_seconds: float = 0.0  #: since the batch began
    batch_tokens: int = 0  #: spent until then, by the model server's count
    run_seconds: float = 0.0  #: of completed steps of the affected runs alone
    run_calls: int = 0  #: their completed LLM steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Replays:
    """Answers that an attempt had from the record, since an earlier one had asked for them.

    How many there are says the journal; everything else is the model server's own count of its answers.
    """

    calls: int = 0
    tokens: int = 0  #: that it billed for them, once
    cost: Decimal = Decimal(0)  #: in USD
    asked_again: int = 0  #: requests for what was on record
    never_given: int = 0  #: answers on record that it knows nothing of
    spent: Decimal = Decimal(0)  #: in USD for every answer of the batch, lost ones included


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRecord:
    """One fault, from the blow to the next progress of everything it had hit."""

    kind: FaultKind
    document: int  #: documents completed when it came
    at_seconds: float  #: since the batch began
    victim: str
    leases_held: int = 0  #: by the processes hit, at that instant
    held: tuple[str, ...] = ()
    steps_lost: int = 0  #: claims that had to be made again
    late_results_rejected: int = 0
    recovered_by: str = ""
    seconds: float | None = None  #: until the last affected step was completed; None: it never was
    saved: Saved = Saved()
    problem: str = ""  #: why the demo fails by this fault

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": str(self.kind),
            "at": self.document,
            "at_seconds": round(self.at_seconds, 1),
            "victim": self.victim,
            "steps_lost": self.steps_lost,
            "recovered_by": self.recovered_by,
            "seconds": None if self.seconds is None else round(self.seconds, 2),
            "late_results_rejected": self.late_results_rejected,
            "problem": self.problem,
        }


def mechanism_of(fate: Fate, token: int) -> Mechanism:
    """What released the claim ``token`` of a step that is completed now."""
    if fate.outcome == "expired":
        return Mechanism.RETURNING_WORKER if fate.reason.startswith(_RETURNED) else Mechanism.SWEEP
    if fate.outcome is None and fate.finished_token == token:
        return Mechanism.RECONNECTION
    return _BY_OUTCOME.get(fate.outcome or "", Mechanism.UNKNOWN)


def named(mechanisms: Iterable[Mechanism]) -> str:
    """All mechanisms that took part, the one that did most first."""
    return " and ".join(str(one) for one, _ in Counter(mechanisms).most_common())
