"""How each fault is played: aim, remember what exists, strike, watch until everything hit is done."""

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

import redis

from models.settings import settings
from ops.demo import evidence
from ops.demo.aiming import (
    AIM_TIMEOUT,
    Aimed,
    Missed,
    Scene,
    Waiting,
    aim_at_child,
    aim_at_worker,
    kill,
    patiently,
)
from ops.demo.evidence import Fate, HeldStep, QueuedStep
from ops.demo.records import Mechanism, mechanism_of, named
from ops.demo.schedule import FaultKind

T = TypeVar("T")

RECOVERY_TIMEOUT = 60.0  #: seconds; many leases, so that only a real failure runs into it


@dataclass(frozen=True, slots=True, kw_only=True)
class Blow:
    """A fault at the moment it fell; yielded once by each script, before the watching begins."""

    victim: str
    moment: datetime  #: by the database's clock
    held: tuple[HeldStep, ...] = ()  #: steps of the processes that were hit
    runs: tuple[str, ...] = ()  #: affected


@dataclass(frozen=True, slots=True, kw_only=True)
class Healing:
    """How it was overcome."""

    recovered_by: str
    until: datetime
    steps_lost: int = 0
    late_results_rejected: int = 0
    problem: str = ""


#: Yields None while it waits and its Blow when it has struck.
Script = Generator[Blow | None, None, Healing]


def child_sigkill(scene: Scene) -> Script:
    aimed = yield from aim_at_child(scene)
    blow = yield from _ready(scene, aimed)
    kill(aimed.pid)
    yield blow
    return (yield from _until_done(aimed.held))


def worker_sigkill_returns(scene: Scene) -> Script:
    aimed = yield from aim_at_worker(scene)
    blow = yield from _ready(scene, aimed)
    scene.stage.supervisor.kill(aimed.name)
    yield blow
    return (yield from _until_done(aimed.held))


def worker_sigkill_gone(scene: Scene) -> Script:
    aimed = yield from aim_at_worker(scene)
    blow = yield from _ready(scene, aimed)
    scene.stage.supervisor.retire(aimed.name)
    yield blow
    healing = yield from _until_done(aimed.held)
    scene.say(f"{scene.stage.replace_worker()} joins in place of {aimed.name}")
    return healing


def worker_sigstop(scene: Scene) -> Script:
    """Pause a worker until others have taken its steps, then wake it: its results come too late."""
    aimed = yield from aim_at_worker(
        scene, wanted=lambda held: any(one.kind == "llm" for one in held)
    )
    scene.paused.add(aimed.name)
    try:
        blow = yield from _ready(scene, aimed)
        yield blow
        yield from _fates(aimed.held, _taken_over, what="its leases to end")
    finally:
        scene.paused.discard(aimed.name)
        scene.stage.thaw(aimed.name)
    scene.say(f"{aimed.victim} wakes up; its leases are gone")
    fates = yield from _fates(
        aimed.held, lambda all_: _done(all_) and any(fate.rejected for fate in all_),
        what="the late results of the paused worker to be set aside",
    )  # fmt: skip
    if any(fate.finished_token == one.token for fate, one in zip(fates, aimed.held, strict=True)):
        raise Missed("a result of the paused worker was accepted after its lease had ended")
    return _healing(aimed.held, fates)


def beat_sigkill(scene: Scene) -> Script:
    name = next((one for one in scene.stage.supervisor.pids if one.startswith("beat-")), None)
    if name is None:
        raise Missed("no beat was running")
    victim = f"{name} (pid {scene.stage.supervisor.pids[name]})"
    blow = yield from _blow(scene, victim, (), ())
    scene.stage.supervisor.kill(name)
    yield blow
    # What the dead one sent last was swept within a period; from then on it takes another beat.
    since = blow.moment + timedelta(seconds=settings().sweep_period)
    deadline = time.monotonic() + RECOVERY_TIMEOUT
    while time.monotonic() < deadline:
        swept = yield from patiently(lambda: evidence.sweep_began_after(since))
        if swept is not None:
            alone = name not in scene.stage.supervisor.pids
            by = Mechanism.OTHER_BEAT if alone else Mechanism.RESTARTED_BEAT
            return Healing(recovered_by=str(by), until=swept)
        yield None
    raise Missed(f"no sweep was completed within {RECOVERY_TIMEOUT:.0f} s")


def valkey_sigkill(scene: Scene) -> Script:
    return (yield from _broker(scene, lambda: scene.stage.servers.kill("valkey"), "valkey"))


def valkey_wiped(scene: Scene) -> Script:
    return (yield from _broker(scene, scene.stage.servers.lose_broker_data, "valkey and its data"))


def postgres_restart(scene: Scene) -> Script:
    held = yield from _some(scene, scene.held, what="no running step")
    affected = tuple({one.run_id for one in held})
    victim = f"postgres (pid {scene.stage.supervisor.pids.get('postgres', 0)})"
    blow = yield from _blow(scene, victim, (), affected)
    scene.stage.servers.restart("postgres")
    yield blow
    return (yield from _until_done(held))


SCRIPTS: Mapping[FaultKind, Callable[[Scene], Script]] = {
    FaultKind.CHILD_SIGKILL: child_sigkill,
    FaultKind.WORKER_SIGKILL_RETURNS: worker_sigkill_returns,
    FaultKind.WORKER_SIGKILL_GONE: worker_sigkill_gone,
    FaultKind.WORKER_SIGSTOP: worker_sigstop,
    FaultKind.BEAT_SIGKILL: beat_sigkill,
    FaultKind.VALKEY_SIGKILL: valkey_sigkill,
    FaultKind.VALKEY_WIPED: valkey_wiped,
    FaultKind.POSTGRES_RESTART: postgres_restart,
}


def _broker(scene: Scene, strike: Callable[[], None], what: str) -> Script:
    """Hit the broker while messages are under way, and watch those steps until they are done."""
    queued = yield from _some(
        scene,
        lambda: patiently(lambda: _under_way(scene)),
        what="no message under way",
    )
    victim = f"{what} (pid {scene.stage.supervisor.pids.get('valkey', 0)})"
    blow = yield from _blow(scene, victim, (), tuple({one.run_id for one in queued}))
    strike()
    yield blow
    published = {index: one.publications for index, one in enumerate(queued)}
    deadline = time.monotonic() + RECOVERY_TIMEOUT
    while time.monotonic() < deadline:
        fates = yield from patiently(lambda: evidence.fates(queued))
        for index, fate in enumerate(fates):
            published[index] = max(published[index], fate.publications)
        if _done(fates):
            by = named(_carried(one, published[index]) for index, one in enumerate(queued))
            return Healing(recovered_by=by, until=_latest(fates, blow.moment))
        yield None
    raise Missed(_not_within("the steps whose messages were in the broker"))


def _under_way(scene: Scene) -> list[QueuedStep]:
    """Pending steps whose messages are out, while some of them are in the broker."""
    try:
        waiting = scene.stage.messages_waiting()
    except redis.RedisError:
        return []
    return evidence.queued(scene.batch_id) if waiting else []


def _carried(step: QueuedStep, publications: int) -> Mechanism:
    again = publications > step.publications
    return Mechanism.REPUBLICATION if again else Mechanism.MESSAGE_KEPT


def _ready(scene: Scene, aimed: Aimed) -> Waiting[Blow]:
    runs = tuple({one.run_id for one in aimed.held})
    return (yield from _blow(scene, aimed.victim, aimed.held, runs))


def _blow(
    scene: Scene, victim: str, held: tuple[HeldStep, ...], runs: tuple[str, ...]
) -> Waiting[Blow]:
    yield from patiently(scene.keepsake.take)
    moment = yield from patiently(evidence.clock)
    return Blow(victim=victim, moment=moment, held=held, runs=runs)


def _some(scene: Scene, look: Callable[[], Waiting[list[T]]], *, what: str) -> Waiting[list[T]]:
    deadline = time.monotonic() + AIM_TIMEOUT
    while time.monotonic() < deadline and not scene.settled:
        if found := (yield from look()):
            return found
        yield
    when = "until the batch was over" if scene.settled else f"for {AIM_TIMEOUT:.0f} s"
    raise Missed(f"{what} was found {when}, so the fault would have hit nothing")


def _until_done(held: Sequence[HeldStep]) -> Waiting[Healing]:
    return _healing(held, (yield from _fates(held, _done, what="every step it had held")))


def _healing(held: Sequence[HeldStep], fates: Sequence[Fate]) -> Healing:
    both = list(zip(fates, held, strict=True))
    mechanisms = [mechanism_of(fate, one.token) for fate, one in both]
    unknown = [one for one, by in zip(held, mechanisms, strict=True) if by is Mechanism.UNKNOWN]
    return Healing(
        recovered_by=named(mechanisms),
        until=max(fate.finished_at for fate in fates if fate.finished_at is not None),
        steps_lost=sum(fate.finished_token != one.token for fate, one in both),
        late_results_rejected=sum(fate.rejected for fate in fates),
        problem=f"nobody knows who recovered {'; '.join(map(str, unknown))}" if unknown else "",
    )


def _fates(
    held: Sequence[HeldStep],
    reached: Callable[[Sequence[Fate]], bool],
    *,
    what: str,
) -> Waiting[list[Fate]]:
    deadline = time.monotonic() + RECOVERY_TIMEOUT + settings().lease_ttl
    while time.monotonic() < deadline:
        fates = yield from patiently(lambda: evidence.fates(held))
        if reached(fates):
            return fates
        yield
    raise Missed(_not_within(what))


def _done(fates: Sequence[Fate]) -> bool:
    return all(fate.finished_at is not None for fate in fates)


def _taken_over(fates: Sequence[Fate]) -> bool:
    """Every claim has ended without its owner."""
    return all(fate.outcome is not None for fate in fates)


def _latest(fates: Sequence[Fate], moment: datetime) -> datetime:
    return max((fate.finished_at for fate in fates if fate.finished_at is not None), default=moment)


def _not_within(what: str) -> str:
    return f"waited {RECOVERY_TIMEOUT:.0f} s in vain for {what}"
