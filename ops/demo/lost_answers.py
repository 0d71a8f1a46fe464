"""The fault that kills nothing: the registry files, and its answer is lost."""

from collections.abc import Callable
from datetime import datetime

from ops.demo import doubts, evidence, watching
from ops.demo.aiming import Scene, Waiting, patiently
from ops.demo.doubts import Story
from ops.demo.evidence import HeldStep
from ops.demo.records import Mechanism
from ops.demo.schedule import drops
from ops.demo.watching import Blow, Healing, Script


def response_dropped(scene: Scene) -> Script:
    """Let the registry file and lose its answers; watch that each is asked for and none sent again."""
    registry, count = scene.stage.outside.registry, drops(scene.documents)
    known = {one["id"] for one in registry.get("/faults")["dropped"]}
    since = yield from patiently(evidence.clock)
    registry.post("/faults", {"drop_responses": count})
    lost = yield from watching.some(
        scene, lambda: _lost_answers(scene, known, since=since, count=count),
        what=f"no {count} filings whose answers could be lost",
    )  # fmt: skip
    filings = {
        one["run"]: one["id"]
        for one in registry.get("/faults")["dropped"]
        if one["id"] not in known
    }
    held = tuple(step for step, _ in lost)
    yield from patiently(scene.keepsake.take)
    yield Blow(
        victim=f"{count} answer{'s' * (count > 1)} of the registry", moment=min(at for _, at in lost), held=held,
        runs=tuple(filings),
    )  # fmt: skip
    fates = yield from watching.fates(
        held, watching.done, what="every filing whose answer was lost",
        meanwhile=_telling(scene, Story(held[0].run_id, filings[held[0].run_id])),
    )  # fmt: skip
    wrong = [one for one in held if evidence.result_of(one) != filings[one.run_id]]
    return Healing(
        recovered_by=str(Mechanism.LOOK_UP), until=watching.latest(fates, since), steps_lost=len(held),
        problem=f"the result of {wrong[0]} is not the filing whose answer was lost" if wrong else "",
    )  # fmt: skip


def _lost_answers(
    scene: Scene, known: set[str], *, since: datetime, count: int
) -> Waiting[list[tuple[HeldStep, datetime]]]:
    """Once the registry has lost as many answers as it should: the steps that say so."""
    dropped = [
        one
        for one in scene.stage.outside.registry.get("/faults")["dropped"]
        if one["id"] not in known
    ]
    if len(dropped) < count:
        return []
    runs = [one["run"] for one in dropped]
    found = yield from patiently(lambda: doubts.lost_answers(runs, since))
    return found if len(found) == count else []


def _telling(scene: Scene, story: Story) -> Callable[[], None]:
    def tell() -> None:
        for line in story.more():
            scene.say(line)

    return tell
