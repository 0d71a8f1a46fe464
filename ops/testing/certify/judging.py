"""From what was seen to what it means: the effects of one case against those of the run without faults. Pure."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from models.states import SETTLED_RUN_STATES, EffectState, RunState
from ops.testing.certify.counting import Seen, Subject, Times, times
from ops.testing.certify.observing import EffectSeen, Standing
from ops.testing.certify.report import Sighting, Verdict

Counts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Witnessed:
    """What one run left outside, by the recorder and by the user's counter."""

    parts: Mapping[Subject, Seen]
    effects: Sequence[EffectSeen] = ()
    counted: Counts = field(default_factory=dict)  #: what the user's counter rose by
    blocked: Collection[str] = ()  #: steps that wait for a person

    def says(self, subject: Subject, *states: EffectState) -> bool:
        """Whether the journal says this of an effect; of all of them, when it stands for a tool."""
        meant = [effect for effect in self.effects if subject.name in (effect.name, effect.tool)]
        return bool(meant) and all(effect.state in states for effect in meant)


def subjects(measure: Witnessed) -> tuple[Subject, ...]:
    """What is counted: the user's counter stands for the tools and effects that it names."""
    named = set(measure.counted)
    seen = [
        subject
        for subject in measure.parts
        if subject.name not in named and subject.tool not in named
    ]
    return (*seen, *(_counted(name, measure) for name in sorted(named)))


def _counted(name: str, measure: Witnessed) -> Subject:
    """What the user's counter names: the effects of a tool together, or something of the user's own."""
    meant = [subject for subject in measure.parts if name in (subject.name, subject.tool)]
    steps = {subject.step_key for subject in meant}
    classes = {subject.effect_class for subject in meant}
    return Subject(
        name, steps.pop() if len(steps) == 1 else "", name if meant else "",
        classes.pop() if len(classes) == 1 else "",
    )  # fmt: skip


def uncounted(measure: Witnessed) -> tuple[Subject, ...]:
    """Effects of the run without faults that nobody saw."""
    return tuple(
        subject
        for subject in subjects(measure)
        if subject in measure.parts and not measure.parts[subject].surely
    )


def sightings(case: Witnessed, measure: Witnessed, *, standing: Standing) -> tuple[Sighting, ...]:
    """Each effect of the case, in the order of the run without faults; unexpected ones follow."""
    return tuple(_sightings(case, measure, standing))


def _sightings(case: Witnessed, measure: Witnessed, standing: Standing) -> Iterator[Sighting]:
    known = subjects(measure)
    for subject in known:
        seen = _times(subject, case, measure)
        yield Sighting(subject, _verdict(seen, case, subject=subject, standing=standing), seen.most)
    for subject in subjects(case):
        if subject not in known and subject.name not in measure.counted:
            most = max(case.parts[subject].surely.values(), default=0)
            if most > 1:
                yield Sighting(subject, Verdict.TWICE, most)


def _times(subject: Subject, case: Witnessed, measure: Witnessed) -> Times:
    if subject in measure.parts:
        return times(case.parts.get(subject, Seen()), measure.parts[subject].surely)
    expected = measure.counted[subject.name] or 1
    ratio = case.counted.get(subject.name, 0) / expected
    return Times(math.floor(ratio), math.ceil(ratio))


def _verdict(seen: Times, case: Witnessed, *, subject: Subject, standing: Standing) -> Verdict:
    if seen.most > 1:
        return Verdict.TWICE
    if standing.state not in SETTLED_RUN_STATES:
        return Verdict.OPEN
    if case.says(subject, EffectState.SETTLED):
        return Verdict.ONCE if seen.least else Verdict.LOST
    if seen.most and case.says(subject, EffectState.REFUSED, EffectState.ABSENT):
        return Verdict.DENIED
    if subject.step_key in case.blocked or (not subject.step_key and case.blocked):
        return Verdict.PERSON
    if seen.least:
        return Verdict.ONCE
    if standing.state == RunState.COMPLETED:
        return Verdict.LOST
    return Verdict.ONCE if seen.most else Verdict.NOT_DONE
