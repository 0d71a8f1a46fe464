"""One kind after another: play, judge, play more until enough kills have landed, then ask a person."""

import random  # noqa: TID251 - seeded: see ``kills``
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from models.journal import resolving, stories
from models.settings import settings
from ops.resolving import result_of
from recovery.sweep import recover_run
from tests.reliability.judging import Fell, Shot, Verdict, Way, judge
from tests.reliability.kills import Instant, Kind, Plan, plans
from tests.reliability.looking import look
from tests.reliability.playing import Player
from tests.support.invariants import check_invariants
from tests.support.world import World

ROUNDS = 8  #: a kill at any moment may land outside, and is made up for by others


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything about one kind."""

    kind: Kind
    verdicts: tuple[Verdict, ...]
    seconds: float
    missing: int  #: kills that were asked for and did not land between effect and settlement
    told: int = 0  #: effects of which a person said what became of them, in the end
    violations: tuple[str, ...] = ()

    @property
    def shots(self) -> list[Shot]:
        return [shot for verdict in self.verdicts for shot in verdict.shots]

    @property
    def between(self) -> list[Shot]:
        return [shot for shot in self.shots if shot.fell is Fell.BETWEEN]

    def landed(self, instant: Instant) -> int:
        """Kills at this instant that fell between effect and settlement."""
        return sum(shot.kill.instant is instant for shot in self.between)

    @property
    def by_lease(self) -> int:
        """Deaths that no parent told of: the lease had to decide."""
        return sum(verdict.seen.expired for verdict in self.verdicts)

    def ways(self) -> Counter[Way]:
        return Counter(shot.way for shot in self.between if shot.way is not None)

    def recoveries(self, *, before: bool = False) -> list[float]:
        """Of the kills between effect and settlement, or of those before the effect."""
        shots = (
            [shot for shot in self.shots if shot.fell is Fell.BEFORE] if before else self.between
        )
        return [shot.recovery for shot in shots if shot.recovery is not None]


def play(
    world: World, kind: Kind, *, kills: int, seed: int, say: Callable[[str], None],
    tool: str | None = None,
) -> Outcome:  # fmt: skip
    """Play one kind. ``tool``: a planted one, which the outcome is to show."""
    lots = random.Random(f"{seed} {kind}")  # noqa: S311 - see ``kills``
    player = Player(world, seed=seed, say=say, tool=tool)
    outcome, played = Outcome(kind, (), 0.0, kills), list[Plan]()
    for _ in range(ROUNDS):
        more = plans(kind, lots, kills=outcome.missing, first=len(played) + 1)
        began = time.monotonic()
        player.play(more)
        spent = time.monotonic() - began
        played += more
        outcome = _judged(world, played, seconds=outcome.seconds + spent, kills=kills)
        if outcome.missing == 0:
            break
    outcome = replace(outcome, violations=(*_violations(outcome), *_broken(played)))
    return _with_person(world, outcome) if any(one.waiting for one in outcome.verdicts) else outcome


def _judged(world: World, played: Sequence[Plan], *, seconds: float, kills: int) -> Outcome:
    verdicts = tuple(judge(seen) for seen in look(world, played))
    outcome = Outcome(played[0].kind, verdicts, seconds, 0)
    return replace(outcome, missing=max(0, kills - len(outcome.between)))


def _violations(outcome: Outcome) -> list[str]:
    found = [
        sentence
        for verdict in outcome.verdicts
        for sentence in (*verdict.twice, *verdict.lost, *verdict.wrong)
    ]
    if outcome.missing:
        found.append(f"{outcome.missing} of the kills did not land between effect and settlement")
    return found


def _broken(played: Sequence[Plan]) -> list[str]:
    """The journal's own promises (I2 to I8), run by run."""
    found = []
    for plan in played:
        try:
            check_invariants(settings().database_url, plan.run_id)
        except AssertionError as error:
            found.append(f"run {plan.run_id}: {error}")
    return found


def _with_person(world: World, outcome: Outcome) -> Outcome:
    """Say what became of everything that waits, as the service shows it, and see the runs through.

    Nothing is lost by waiting: afterwards all of it must be there once, and every run completed.
    """
    told = 0
    for verdict in outcome.verdicts:
        for place in verdict.waiting:
            _tell(world, verdict, place)
            told += 1
    played = [verdict.seen.plan for verdict in outcome.verdicts]
    world.wait_runs([plan.run_id for plan in played], timeout=120 + told)
    final = [judge(seen, told=True) for seen in look(world, played)]
    after = _violations(replace(outcome, verdicts=tuple(final)))
    violations = (*outcome.violations, *(f"after a person's word: {one}" for one in after))
    return replace(outcome, told=told, violations=violations)


def _tell(world: World, verdict: Verdict, place: str) -> None:
    """What ``onward effects resolve`` does."""
    seen = verdict.seen
    key, made = seen.recorded[place].key, seen.witnessed[place].made
    if made:
        found = made[0][0]
        text = result_of(stories.get_effect(key), external_id=found, given=None)
        resolving.found(key, external_id=found, result=text, by="sam", reason="it is there")
    else:
        resolving.absent(key, by="sam", reason="it is not there")
    recover_run(world.app, seen.plan.run_id)
