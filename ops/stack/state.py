"""Who runs the stack of a home, and how another process reaches or stops it."""

import json
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Self

from ops.stack.errors import StackError
from ops.stack.home import Home, write_private
from ops.stack.identity import Identity
from ops.stack.process import send
from ops.stack.supervisor import LOOK_PERIOD

STOP_TIMEOUT = 120.0  #: seconds; a worker's whole grace, then both servers
KILLED_TIMEOUT = 10.0  #: seconds from the end of a killed supervisor to the end of its children


@dataclass(frozen=True, slots=True, kw_only=True)
class StackState:
    """What the running stack says about itself in ``state.json``."""

    pid: int
    started: str
    database_url: str
    broker_url: str
    flower_url: str | None
    processes: Mapping[str, Identity]
    agents: str = ""  #: packages its workers have loaded
    directory: str = ""  #: where those are, beside what is installed

    @classmethod
    def read(cls, home: Home) -> Self | None:
        """None when nothing was left there, or something that is not ours to understand."""
        try:
            fields = json.loads(home.state_file.read_text())
            processes = {name: Identity(**of) for name, of in fields.pop("processes").items()}
            return cls(processes=processes, **fields)
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def write(self, home: Home) -> None:
        write_private(home.state_file, json.dumps(asdict(self), indent=2))

    @property
    def owner(self) -> Identity:
        return Identity(self.pid, self.started)

    def alive(self) -> list[Identity]:
        """The processes of this stack that live now."""
        return [process for process in self.processes.values() if process.is_alive()]


class Stopped(StrEnum):
    """What ``stop`` found and did."""

    STOPPED = "stopped"
    NOT_RUNNING = "not running"
    LEFTOVERS_ENDED = "leftovers ended"  #: the supervisor had been killed, some of its children not


def running(home: Home) -> StackState | None:
    """The stack that runs on this home now."""
    state = StackState.read(home)
    return state if state is not None and state.owner.is_alive() and home.is_locked() else None


def stop(home: Home, *, now: bool = False, timeout: float = STOP_TIMEOUT) -> Stopped:
    """Stop the stack of a home from another process; ``now`` does not wait for running steps."""
    state = StackState.read(home)
    if state is None or not state.owner.is_alive():
        if home.is_locked():
            holder = (home.path / "lock").read_text()
            raise StackError(
                f"{home.path} is in use by {holder}, which is still starting or is not a stack: "
                "try again in a moment, or end that process"
            )
        ended = end_leftovers(home)
        return Stopped.LEFTOVERS_ENDED if ended else Stopped.NOT_RUNNING
    send(state.pid, signal.SIGQUIT if now else signal.SIGTERM)
    if not _gone([state.owner], timeout):
        raise StackError(
            f"the stack (pid {state.pid}) did not stop within {timeout:.0f} s; look at "
            f"{home.path / 'logs'}, or end it with `kill -9 {state.pid}`: its processes follow it"
        )
    return Stopped.STOPPED


def end_leftovers(home: Home) -> int:
    """End what a killed supervisor left alive, and say how many that were.

    On Linux the kernel ends them within moments, and this only waits; elsewhere nobody tells them.
    """
    state = StackState.read(home)
    if state is None or state.owner.is_alive():
        return 0
    leftovers = state.alive()
    for process in leftovers:
        # To PostgreSQL, SIGTERM means to wait for every client; SIGINT stops all of them.
        send(process.pid, signal.SIGINT)
    if not _gone(leftovers, KILLED_TIMEOUT):
        for process in state.alive():
            send(process.pid, signal.SIGKILL)
    forget(home)
    return len(leftovers)


def forget(home: Home) -> None:
    """Nothing of the stack of this home runs any more."""
    home.state_file.unlink(missing_ok=True)


def own_identity() -> Identity:
    """The identity of this process."""
    own = Identity.of(os.getpid())
    if own is None:
        raise StackError("this process cannot see itself in the process table; is /proc mounted?")
    return own


def _gone(processes: list[Identity], timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while any(process.is_alive() for process in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_PERIOD)
    return True
