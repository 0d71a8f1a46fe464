"""One supervised process: what to start, how to recognise it later, how to end it."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from ops.stack import identity
from ops.stack.errors import StackError

LOG_LIMIT = 32 * 1024 * 1024  #: bytes; a longer log is set aside once, when its process starts


class Stage(IntEnum):
    """When a process is stopped: highest stage first, everything of a stage at once."""

    JOURNAL = 0
    BROKER = 1
    WORKER = 2
    VIEW = 3
    SCHEDULE = 4

    @property
    def may_be_killed(self) -> bool:
        """Whether a user in a hurry may cut it short: that costs a worker the step in flight."""
        return self >= Stage.WORKER


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What to run and how it wants to be treated."""

    name: str
    argv: tuple[str, ...]
    log: Path
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    cwd: Path = field(default_factory=Path.cwd)
    stage: Stage = Stage.VIEW
    stop_signal: signal.Signals = signal.SIGTERM
    grace: float = 10.0  #: seconds from the stop signal to SIGKILL
    death_signal: signal.Signals = signal.SIGKILL  #: what the kernel sends when the supervisor dies
    account: tuple[int, int] | None = None  #: uid and gid to run as; None: ours
    may_start: Callable[[], bool] | None = None  #: asked before each start; False: not yet


class Child:
    """A started program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._process = _spawn(program)
        self.identity = identity.Identity.of(self._process.pid)

    @property
    def pid(self) -> int:
        return self._process.pid

    def exit_code(self) -> int | None:
        """None while it runs. What it left in its session is killed before it is reaped.

        The order matters: until the zombie is reaped its pid cannot be given to a stranger, so the
        session of that number is still the one we started. Pool children and subprocesses of a
        killed worker would otherwise go on without anyone who knows of them.
        """
        if self._process.returncode is None and identity.has_exited(self.pid):
            for orphan in identity.session_members(self.pid):
                send(orphan, signal.SIGKILL)
        return self._process.poll()

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal; a process that is already gone is no error."""
        if self.exit_code() is None:
            send(self.pid, number)

    def ask_to_stop(self) -> None:
        """Send the stop signal, and wake it if it was paused: a paused process hears nothing."""
        self.send_signal(self.program.stop_signal)
        self.send_signal(signal.SIGCONT)

    def kill(self) -> int:
        """End it now and return its exit code."""
        self.send_signal(signal.SIGKILL)
        return self.wait()

    def wait(self) -> int:
        """Wait until it ends, however long that takes, and return its exit code."""
        while (code := self.exit_code()) is None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(0.05)
        return code


def send(pid: int, number: signal.Signals) -> None:
    """Signal a process that may be gone already."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _spawn(program: Program) -> subprocess.Popen[bytes]:
    if threading.current_thread() is not threading.main_thread():
        # The kernel takes the end of the *thread* that forked for the death of the parent.
        raise StackError(f"{program.name} must be started from the main thread")
    program.log.parent.mkdir(parents=True, exist_ok=True)
    if program.log.exists() and program.log.stat().st_size > LOG_LIMIT:
        program.log.replace(program.log.with_suffix(".old.log"))
    account = ":".join(map(str, program.account)) if program.account else "-"
    launcher = (sys.executable, "-I", "-S", str(Path(__file__).with_name("launch.py")))
    order = (str(os.getpid()), str(int(program.death_signal)), account)
    with program.log.open("ab") as log:
        return subprocess.Popen(
            [*launcher, *order, *program.argv],
            env=dict(program.env),
            cwd=program.cwd,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C at the terminal reaches the supervisor alone
        )
