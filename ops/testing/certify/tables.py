"""A report as people read it: the steps by instants, the effects by verdicts, then sentences."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ops.testing.certify.counting import Subject
from ops.testing.certify.faults import FaultKind
from ops.testing.certify.report import BAD, Case, Report, Sighting, Verdict

#: From the worst that can be said of a cell's cases to the best.
_ORDER = ("twice", "lost", "denied", "stuck", "not fired", "failed", "person", "ok")


@dataclass(frozen=True, slots=True)
class Table:
    """Columns and rows, for whoever prints."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def by_step(report: Report) -> Table:
    """For each step and kind of fault the worst that came of it."""
    kinds = [kind for kind in FaultKind if any(case.fault.kind == kind for case in report.cases)]
    rows = []
    for step in report.steps:
        of_step = [case for case in report.cases if case.fault.step_key == step]
        if of_step:
            rows.append((step, *(_cell(of_step, kind) for kind in kinds)))
    return Table(("step", *kinds), tuple(rows))


def by_effect(report: Report) -> Table:
    """How often each effect was seen, over all cases."""
    rows = [
        (
            subject.name, subject.step_key, subject.tool or ("" if subject.declared else "no tool"),
            subject.effect_class, *_counts(_sightings(report.cases, subject)),
        )
        for subject in report.subjects
    ]  # fmt: skip
    return Table(("effect", "step", "tool", "class", *Verdict), tuple(rows))


def verdict(report: Report) -> str:
    """The last sentence."""
    stopped = Counter(case.state for case in report.cases if case.state != "completed")
    rest = "".join(f", {count} runs {state}" for state, count in sorted(stopped.items()))
    word = "Certified" if report.ok else "Not certified"
    return (
        f"{word}: {report.workflow} version {report.version}, {len(report.cases)} faults in "
        f"{report.seconds:.0f} s, {_count(report.cases)} fired{rest}."
    )


def _count(cases: Sequence[Case]) -> int:
    return sum(case.fired for case in cases)


def _cell(cases: Iterable[Case], kind: FaultKind) -> str:
    words = {case.word for case in cases if case.fault.kind == kind}
    return min(words, key=_badness) if words else ""


def _badness(word: str) -> int:
    return _ORDER.index(word) if word in _ORDER else _ORDER.index("failed")


def _sightings(cases: Iterable[Case], subject: Subject) -> list[Sighting]:
    return [one for case in cases for one in case.sightings if one.subject == subject]


def _counts(found: list[Sighting]) -> tuple[str, ...]:
    counted = Counter(one.verdict for one in found)
    return tuple(_shown(verdict, counted[verdict]) for verdict in Verdict)


def _shown(verdict: Verdict, number: int) -> str:
    return f"{number} (!)" if number and verdict in BAD else str(number or "")
