"""The fault that strikes when the money is spent: a child dies as soon as an answer is on record and accepted.

A child stops itself at that instant, once, when it is wanted; the demo finds it stopped, as it finds any other
victim, and kills it. Its step then runs again; ``replays`` holds what it got against what the model server gave.
"""

from pathlib import Path

from ops.demo import watching
from ops.demo.aiming import Aimed, Scene, Waiting, kill
from ops.demo.evidence import HeldStep
from ops.demo.replays import marker
from ops.demo.watching import Script
from tasks.processes import is_alive


def answered_sigkill(scene: Scene) -> Script:
    """Kill a child whose answer is paid for, and watch its step until it is done."""
    wanted = marker(scene.stage.failpoints)
    wanted.unlink(missing_ok=True)
    try:
        (one, *_) = yield from watching.some(
            scene,
            lambda: _stopped(scene, wanted),
            what="no step whose answer had just been recorded",
        )
    finally:
        wanted.touch()
    blow = yield from watching.ready(scene, Aimed(f"a child of {one.worker}", one.pid, (one,)))
    kill(one.pid)
    yield blow
    return (yield from watching.until_done((one,)))


def _stopped(scene: Scene, wanted: Path) -> Waiting[list[HeldStep]]:
    held = yield from scene.held()
    if not wanted.exists():
        return []
    return [
        one
        for one in held
        if one.kind == "llm" and is_alive(one.pid, one.pid_started) and _is_stopped(one.pid)
    ]


def _is_stopped(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state == "T"
