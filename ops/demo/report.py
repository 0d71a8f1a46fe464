"""The verdict: the journal held against the outside world. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from examples.contract_review.estimate import CALLS_PER_DOCUMENT
from ops.demo.doubts import Doubt
from ops.demo.evidence import Progress
from ops.demo.records import FaultRecord, Replays
from ops.demo.schedule import WORKER_FAULTS, FaultKind
from ops.demo.witnesses import Witnessed


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that was counted, by whom it was counted."""

    documents: int  #: that were to be reviewed: each is a text of its own, and each can be read
    progress: Progress
    testimony: Witnessed
    steps_executed: int
    leases_held: int
    results_kept: int  #: results that existed before some fault
    results_changed: int
    seconds: float
    doubts: Sequence[Doubt] = ()  #: effects that came into doubt, and how each was settled
    doubts_open: int = 0
    faults: Sequence[FaultRecord] = ()
    earlier: Sequence[dict[str, Any]] = ()  #: faults of sessions before this one
    problems: Sequence[str] = ()
    replays: Replays = field(default_factory=Replays)

    @property
    def failed(self) -> int:
        return self.progress.stopped

    @property
    def played(self) -> set[str]:
        """Kinds of the faults that hit what they were to hit, in this session or an earlier one."""
        return {
            *(fault.kind for fault in self.faults if not fault.problem),
            *(fault["kind"] for fault in self.earlier if not fault.get("problem")),
        }

    @property
    def llm_calls_minimum(self) -> int:
        return CALLS_PER_DOCUMENT * self.documents

    @property
    def tokens_a_call(self) -> float:
        return self.testimony.tokens / max(1, self.testimony.llm_calls)

    @property
    def cost_a_token(self) -> float:
        """USD, on the average of the batch."""
        return float(self.replays.spent) / max(1, self.testimony.tokens)

    def to_json(self) -> dict[str, Any]:
        return {
            "documents": self.documents,
            "completed": self.progress.completed,
            "failed": self.failed,
            "filings": self.testimony.filings,
            "duplicate_filings": self.testimony.duplicate_filings,
            "duplicates_refused": 0,  # the registry refuses none: it knows no keys
            "look_ups": self.testimony.look_ups,
            "responses_dropped": self.testimony.responses_dropped,
            "unknown_effects": [doubt.to_json() for doubt in self.doubts],
            "llm_calls": self.testimony.llm_calls,
            "llm_calls_minimum": self.llm_calls_minimum,
            "llm_calls_replayed": self.replays.calls,
            "llm_calls_asked_again": self.replays.asked_again,
            "tokens_saved": self.replays.tokens,
            "cost_saved": str(self.replays.cost),
            "cost": str(self.replays.spent),
            "steps_executed": self.steps_executed,
            "steps_minimum": self.progress.steps_planned,
            "leases_held_at_kills": self.leases_held,
            "faults": [*self.earlier, *(fault.to_json() for fault in self.faults)],
            "results_changed": self.results_changed,
            "seconds": round(self.seconds, 1),
            "tokens": self.testimony.tokens,
            "violations": violations(self),
        }


def violations(report: Report) -> list[str]:
    """One sentence for each condition that does not hold; none: the demo has proved its point."""
    found = [*report.problems, *(fault.problem for fault in report.faults if fault.problem)]
    found += [str(fault["problem"]) for fault in report.earlier if fault.get("problem")]
    found += _of_documents(report)
    found += _of_answers(report)
    more = report.steps_executed - report.progress.steps_planned
    if more > report.leases_held:
        found.append(
            f"{more} steps were executed beyond the plan, but only {report.leases_held} leases were "
            "held at the kills"
        )
    if report.results_changed:
        found.append(
            f"{report.results_changed} of {report.results_kept} results that existed before a fault "
            "are different now"
        )
    if report.doubts_open:
        found.append(f"nobody knows what became of {report.doubts_open} filings")
    found += [
        f"{fault.kind} hit no process with a running step"
        for fault in report.faults
        if fault.kind in WORKER_FAULTS and not fault.leases_held and not fault.problem
    ]
    return found


def _of_answers(report: Report) -> list[str]:
    replays = report.replays
    conditions = (
        (
            not replays.asked_again,
            f"the model server was asked {replays.asked_again} times for answers that were on record",
        ),
        (
            not replays.never_given,
            f"{replays.never_given} answers on record are none that the model server gave",
        ),
        (
            replays.calls > 0 or FaultKind.ANSWERED_SIGKILL not in report.played,
            "a process was killed when its answer was on record, and no later attempt had it from there",
        ),
    )
    return [sentence for holds, sentence in conditions if not holds]


def _of_documents(report: Report) -> list[str]:
    wanted, progress, outside = report.documents, report.progress, report.testimony
    conditions = (
        (
            progress.documents == wanted,
            f"{progress.documents} documents were submitted instead of {wanted}",
        ),
        (
            progress.completed == wanted,
            f"{progress.completed} of {wanted} documents were completed",
        ),
        (report.failed == 0, f"{report.failed} of {wanted} documents failed"),
        (
            outside.filings == wanted,
            f"the registry holds {outside.filings} filings for {wanted} documents",
        ),
        (
            outside.distinct == outside.filings,
            f"the registry's {outside.filings} filings are about {outside.distinct} documents only",
        ),
        (
            outside.duplicate_filings == 0,
            f"the registry holds {outside.duplicate_filings} duplicate filings",
        ),
        (
            outside.llm_calls >= report.llm_calls_minimum,
            f"the model server counted {outside.llm_calls} LLM calls, fewer than the "
            f"{report.llm_calls_minimum} that {wanted} results must have taken",
        ),
    )
    return [sentence for holds, sentence in conditions if not holds]
