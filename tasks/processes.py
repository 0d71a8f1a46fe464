"""Which processes are alive, told apart by pid *and* start time, and what a dead attempt left running."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

#: In the environment of everything a step starts: which attempt it belongs to.
ATTEMPT_MARKER = "ONWARD_ATTEMPT"

_PROC = Path("/proc")
_DEATH_TIMEOUT = (
    5.0  #: seconds; one that sleeps in the kernel dies late, and cannot write until then
)


def started_at(pid: int) -> int:
    """Clock ticks after boot at which a process began; 0 where that cannot be told or it is gone."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[19])


@lru_cache(maxsize=2)
def own_start(pid: int) -> int:
    """``started_at`` of this process, read once per pid."""
    return started_at(pid)


def is_alive(pid: int, started: int) -> bool:
    """Whether this very process still runs. A zombie does not: it will never write again."""
    if started == 0:
        with suppress(ProcessLookupError):
            os.kill(pid, 0)
            return True
        return False
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return False
    fields = stat.rpartition(")")[2].split()
    return int(fields[19]) == started and fields[0] not in ("Z", "X")


@lru_cache(maxsize=1)
def pid_space() -> str:
    """Within which a pid means something: this boot of this machine, this pid namespace."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{(_PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return f"{os.uname().nodename}/unknown"


def mark_attempt(run_id: str, step_key: str, token: int) -> None:
    """Let whatever this step starts carry the attempt's name, unless other steps run beside it."""
    if threading.current_thread() is not threading.main_thread():
        return  # the environment is the whole process's: a mark would be given to strangers' children
    os.environ[ATTEMPT_MARKER] = f"{run_id}:{step_key}:{token}"


def kill_strays(run_id: str, step_key: str, token: int) -> int:
    """Kill what earlier attempts of this step left running on this host; returns how many.

    A subprocess outlives a killed worker. Before the step runs again, what the dead attempt started must
    not go on writing beside it.
    """
    prefix = f"{ATTEMPT_MARKER}={run_id}:{step_key}:".encode()
    own = prefix + str(token).encode()
    killed = []
    for pid, marker in _marked(prefix):
        if marker != own and pid != os.getpid():
            started = started_at(pid)
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
                killed.append((pid, started))
    _wait_gone(killed)
    return len(killed)


def kill_left_by(run_id: str, step_key: str, token: int) -> None:
    """Kill what an attempt whose process is gone left running on this host."""
    mark = f"{ATTEMPT_MARKER}={run_id}:{step_key}:{token}".encode()
    for pid, found in _marked(mark):
        if found == mark:
            kill(pid, started_at(pid))


def kill(pid: int, started: int) -> None:
    """Kill this very process and wait until it is gone."""
    if is_alive(pid, started):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
        _wait_gone([(pid, started)])


def _wait_gone(killed: list[tuple[int, int]]) -> None:
    """A signal is delivered some time after it was sent, and until then its receiver writes on."""
    deadline = time.monotonic() + _DEATH_TIMEOUT
    while any(is_alive(pid, started) for pid, started in killed) and time.monotonic() < deadline:
        time.sleep(0.002)


def kill_group(pid: int) -> None:
    """Kill what is left of a pool child's process group (each child leads its own)."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _marked(prefix: bytes) -> Iterator[tuple[int, bytes]]:
    for entry in _PROC.glob("[0-9]*/environ"):
        with suppress(OSError):
            for variable in entry.read_bytes().split(b"\0"):
                if variable.startswith(prefix):
                    yield int(entry.parent.name), variable
