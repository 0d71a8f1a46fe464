"""What a certification found: values, the verdict over them, and the sentences that name what is wrong."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Self

from ops.testing.certify.counting import Subject
from ops.testing.certify.faults import IN_WORDS, Fault, FaultKind, Request


class Verdict(StrEnum):
    """How often the outside world saw an effect after one fault."""

    ONCE = "once"
    TWICE = "twice"  #: or more often
    LOST = "lost"  #: not at all, or only in part, while the journal says that it happened
    DENIED = "denied"  #: once, while the journal says that it did not happen
    PERSON = "waiting for a person"
    NOT_DONE = "not done"  #: not at all, and the run says that it failed
    OPEN = "still open"  #: the run never came to rest


#: What a certificate cannot be given with.
BAD = frozenset({Verdict.TWICE, Verdict.LOST, Verdict.DENIED})


@dataclass(frozen=True, slots=True)
class Sighting:
    """One effect in one case."""

    subject: Subject
    verdict: Verdict
    seen: int

    @property
    def sentence(self) -> str:
        """What the outside world has."""
        match self.verdict:
            case Verdict.TWICE:
                return f"the outside world saw it {self.seen} times"
            case Verdict.LOST:
                return "the outside world " + (
                    "saw a part of it only" if self.seen else "never saw it"
                )
            case Verdict.DENIED:
                return "the outside world saw it, and the journal says that it did not happen"
            case Verdict.PERSON:
                return f"the outside world saw it {self.seen} times; a person decides"
            case other:
                return f"{other}"


@dataclass(frozen=True, slots=True)
class Case:
    """One fault, played in a run of its own."""

    fault: Fault
    run_id: str
    fired: bool
    rested: bool  #: the run came to rest in time
    state: str
    reason: str
    seconds: float
    sightings: tuple[Sighting, ...]

    @property
    def ok(self) -> bool:
        return not any(self.problems())

    def problems(self) -> Iterator[str]:
        """Why this case speaks against a certificate."""
        if not self.fired:
            yield (
                f"{self.fault} did not fire: run {self.run_id} never came past it, so it says nothing. "
                "Does the workflow do the same in each run?"
            )
        if not self.rested:
            yield (
                f"{self.fault}: run {self.run_id} did not come to rest; it is {self.state}"
                f"{f' ({self.reason})' if self.reason else ''}."
            )
        for sighting in self.sightings:
            if sighting.verdict in BAD:
                yield _named(self.fault, sighting)

    @property
    def word(self) -> str:
        """The case in one word, the worst that can be said of it."""
        if not self.fired:
            return "not fired"
        if not self.rested:
            return "stuck"
        verdicts = {sighting.verdict for sighting in self.sightings}
        for verdict in (Verdict.TWICE, Verdict.LOST, Verdict.DENIED):
            if verdict in verdicts:
                return str(verdict)
        return {"completed": "ok", "blocked": "person"}.get(self.state, self.state)


@dataclass(frozen=True, slots=True)
class Undeclared:
    """Traffic of a step that no tool had to do with."""

    step_key: str
    what: str  #: ``POST host/path``, or the address of a connection that could not be looked into
    untracked: bool  #: the step says so itself: it is never repeated blindly
    seen: bool = True  #: False: only the connection is known, not what went over it

    def __str__(self) -> str:
        if not self.seen:
            return (
                f"step {self.step_key} talks to {self.what} in a way that the recorder cannot read: "
                "what it does there is not certified"
            )
        told = (
            "; the step is declared untracked" if self.untracked else ": make it a tool (ctx.call)"
        )
        return f"step {self.step_key} sends {self.what} outside a tool{told}"


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """Everything that a certification found."""

    workflow: str
    version: str
    seconds: float
    steps: tuple[str, ...]
    subjects: tuple[Subject, ...]
    cases: tuple[Case, ...]
    undeclared: tuple[Undeclared, ...] = ()
    uncounted: tuple[Subject, ...] = ()  #: effects that left no trace which could be counted

    @property
    def ok(self) -> bool:
        """Every fault fired, every run came to rest, and nothing was done twice or lost."""
        return not self.problems

    @property
    def problems(self) -> tuple[str, ...]:
        """What stands against a certificate, one sentence each."""
        unseen = (
            f"Effect {subject.name} of step {subject.step_key} made no request that the recorder could "
            "see: name a counter with --counter."
            for subject in self.uncounted
        )
        return (*(problem for case in self.cases for problem in case.problems()), *unseen)

    def to_json(self) -> dict[str, Any]:
        """Plain data, with the verdict and its sentences beside what they follow from."""
        return {
            "ok": self.ok,
            "problems": list(self.problems),
            **asdict(self),
            "cases": [{"ok": case.ok, "word": case.word, **asdict(case)} for case in self.cases],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """The report behind ``to_json``."""
        return cls(
            workflow=value["workflow"],
            version=value["version"],
            seconds=value["seconds"],
            steps=tuple(value["steps"]),
            subjects=tuple(Subject(**found) for found in value["subjects"]),
            cases=tuple(map(_case, value["cases"])),
            undeclared=tuple(Undeclared(**found) for found in value["undeclared"]),
            uncounted=tuple(Subject(**found) for found in value["uncounted"]),
        )

    def __repr__(self) -> str:
        word = "certified" if self.ok else "not certified"
        return f"<{self.workflow} version {self.version}, {len(self.cases)} faults: {word}>"

    def __str__(self) -> str:
        """What ``assert report.ok, str(report)`` shows."""
        return "\n".join([repr(self), *self.problems, *map(str, self.undeclared)])


def _named(fault: Fault, sighting: Sighting) -> str:
    instant = (
        f"{fault.kind} ({IN_WORDS[fault.kind]}{f'; {fault.request}' if fault.request else ''})"
    )
    where = "" if fault.step_key == sighting.subject.step_key else f" in step {fault.step_key}"
    return f"{_what(sighting.subject)}: {sighting.sentence} after {instant}{where}."


def _what(subject: Subject) -> str:
    if not subject.declared:
        return f"{subject.name}, sent by step {subject.step_key} outside a tool"
    if not subject.step_key:
        return f"{subject.name}, by the counter"
    return f"tool {subject.tool} in step {subject.step_key}, effect {subject.name}"


def _case(value: Mapping[str, Any]) -> Case:
    fault = value["fault"]
    request = Request(**fault["request"]) if fault["request"] else None
    return Case(
        fault=Fault(FaultKind(fault["kind"]), fault["step_key"], fault["effect"], request),
        run_id=value["run_id"],
        fired=value["fired"],
        rested=value["rested"],
        state=value["state"],
        reason=value["reason"],
        seconds=value["seconds"],
        sightings=tuple(
            Sighting(Subject(**one["subject"]), Verdict(one["verdict"]), one["seen"])
            for one in value["sightings"]
        ),
    )
