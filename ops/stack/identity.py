"""Which process is which: pids are reused, a pid together with its start time is not.

Linux is read from ``/proc``; elsewhere psutil answers the same questions as far as it can.
"""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

if sys.platform != "linux":
    import psutil

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Identity:
    """A process that can be recognised after its pid was given to another."""

    pid: int
    started: str  #: ticks since boot and the boot, or the platform's own start time

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """None when there is no such process, or only its zombie."""
        started = _started(pid)
        return None if started is None else cls(pid, started)

    def is_alive(self) -> bool:
        return _started(self.pid) == self.started


def has_exited(pid: int) -> bool:
    """Whether a child of ours has ended, without reaping it. Only Linux can tell."""
    if sys.platform != "linux":
        return False
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


def session_members(session: int) -> list[int]:
    """Every other live process of a session."""
    if sys.platform != "linux":
        return []
    table = ((pid, _stat(pid)) for pid in _pids())
    return [
        pid
        for pid, fields in table
        if fields is not None
        and int(fields[3]) == session
        and pid != session
        and fields[0] not in "ZX"
    ]


def processes_in(directory: Path) -> list[int]:
    """Processes that work in this directory: a PostgreSQL server and all of its backends."""
    return [pid for pid in _pids() if _cwd(pid) == directory]


def has_argument(pid: int, argument: str) -> bool:
    """Whether a process was started with this argument; anyone may ask that about any process."""
    if sys.platform != "linux":
        try:
            return argument in psutil.Process(pid).cmdline()
        except psutil.Error:
            return False
    try:
        return argument in (_PROC / str(pid) / "cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return False


def _pids() -> Iterator[int]:
    if sys.platform != "linux":
        yield from psutil.pids()
    else:
        yield from (int(entry) for entry in os.listdir(_PROC) if entry.isdigit())


def _cwd(pid: int) -> Path | None:
    if sys.platform != "linux":
        try:
            return Path(psutil.Process(pid).cwd())
        except psutil.Error:
            return None
    try:
        return (_PROC / str(pid) / "cwd").readlink()
    except OSError:  # gone, or another user's
        return None


def _started(pid: int) -> str | None:
    if sys.platform != "linux":
        try:
            process = psutil.Process(pid)
            return None if process.status() == psutil.STATUS_ZOMBIE else repr(process.create_time())
        except psutil.Error:
            return None
    fields = _stat(pid)
    if fields is None or fields[0] in "ZX":
        return None
    boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    return f"{fields[19]}@{boot}"


def _stat(pid: int) -> list[str] | None:
    """Fields of ``/proc/PID/stat`` from the third (state) on; the second may contain anything."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()
