"""How each fault is played: aim, remember what exists, strike, watch until everything hit is done."""

import time
from collections.abc import Callable, Mapping
from datetime import timedelta

import redis

from models.settings import settings
from ops.demo import evidence, watching
from ops.demo.aiming import (
    Missed,
    Scene,
    aim_at_child,
    aim_at_worker,
    kill,
    patiently,
)
from ops.demo.evidence import HeldStep, QueuedStep
from ops.demo.lost_answers import response_dropped
from ops.demo.recorded_answers import answered_sigkill
from ops.demo.records import Mechanism, named
from ops.demo.schedule import FaultKind
from ops.demo.watching import RECOVERY_TIMEOUT, Healing, Script


def child_sigkill(scene: Scene) -> Script:
    aimed = yield from aim_at_child(scene)
    blow = yield from watching.ready(scene, aimed)
    kill(aimed.pid)
    yield blow
    return (yield from watching.until_done(aimed.held))


def worker_sigkill_returns(scene: Scene) -> Script:
    aimed = yield from aim_at_worker(scene)
    blow = yield from watching.ready(scene, aimed)
    scene.stage.supervisor.kill(aimed.name)
    yield blow
    return (yield from watching.until_done(aimed.held))


def worker_sigkill_gone(scene: Scene) -> Script:
    aimed = yield from aim_at_worker(scene)
    blow = yield from watching.ready(scene, aimed)
    scene.stage.supervisor.retire(aimed.name)
    yield blow
    healing = yield from watching.until_done(aimed.held)
    scene.say(f"{scene.stage.replace_worker()} joins in place of {aimed.name}")
    return healing


def worker_sigstop(scene: Scene) -> Script:
    """Pause a worker until others have taken its steps, then wake it: its results come too late."""
    aimed = yield from aim_at_worker(
        scene, wanted=lambda held: any(one.kind == "llm" for one in held)
    )
    scene.paused.add(aimed.name)
    try:
        blow = yield from watching.ready(scene, aimed)
        yield blow
        yield from watching.fates(aimed.held, watching.taken_over, what="its leases to end")
    finally:
        scene.paused.discard(aimed.name)
        scene.stage.thaw(aimed.name)
    scene.say(f"{aimed.victim} wakes up; its leases are gone")
    fates = yield from watching.fates(
        aimed.held, lambda all_: watching.done(all_) and any(fate.rejected for fate in all_),
        what="the late results of the paused worker to be set aside",
    )  # fmt: skip
    if any(fate.finished_token == one.token for fate, one in zip(fates, aimed.held, strict=True)):
        raise Missed("a result of the paused worker was accepted after its lease had ended")
    return watching.healing(aimed.held, fates)


def beat_sigkill(scene: Scene) -> Script:
    name = next((one for one in scene.stage.supervisor.pids if one.startswith("beat-")), None)
    if name is None:
        raise Missed("no beat was running")
    victim = f"{name} (pid {scene.stage.supervisor.pids[name]})"
    blow = yield from watching.blow(scene, victim, (), ())
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
    victim = f"postgres (pid {scene.stage.supervisor.pids.get('postgres', 0)})"
    held: list[HeldStep] = []
    while not held:  # what ran when the results were noted down may be over by now
        running = yield from watching.some(scene, scene.held, what="no running step")
        blow = yield from watching.blow(scene, victim, (), tuple({one.run_id for one in running}))
        still = yield from scene.held()
        held = [one for one in running if one in still]
    scene.stage.servers.restart("postgres")
    yield blow
    return (yield from watching.until_done(held))


SCRIPTS: Mapping[FaultKind, Callable[[Scene], Script]] = {
    FaultKind.CHILD_SIGKILL: child_sigkill,
    FaultKind.ANSWERED_SIGKILL: answered_sigkill,
    FaultKind.RESPONSE_DROPPED: response_dropped,
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
    queued = yield from watching.some(
        scene,
        lambda: patiently(lambda: _under_way(scene)),
        what="no message under way",
    )
    victim = f"{what} (pid {scene.stage.supervisor.pids.get('valkey', 0)})"
    blow = yield from watching.blow(scene, victim, (), tuple({one.run_id for one in queued}))
    strike()
    yield blow
    published = {index: one.publications for index, one in enumerate(queued)}
    deadline = time.monotonic() + RECOVERY_TIMEOUT
    while time.monotonic() < deadline:
        fates = yield from patiently(lambda: evidence.fates(queued))
        for index, fate in enumerate(fates):
            published[index] = max(published[index], fate.publications)
        if watching.done(fates):
            by = named(_carried(one, published[index]) for index, one in enumerate(queued))
            return Healing(recovered_by=by, until=watching.latest(fates, blow.moment))
        yield None
    raise Missed(watching.not_within("the steps whose messages were in the broker"))


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
