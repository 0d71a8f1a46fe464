"""Keeps named processes running: starts, watches, starts again, and stops them in order.

There is no thread: ``poll`` looks once at everything and returns at once, so a command line, a live
view or a test calls it as often as it likes. Processes must be started from the main thread
(see ``process``), so ``poll`` belongs there too.
"""

import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from ops.stack.errors import StackError, StartFailed
from ops.stack.events import EventKind, ProcessEvent
from ops.stack.identity import Identity
from ops.stack.process import Child, Program
from ops.stack.watchdog import Watchdog

LOOK_PERIOD = 0.02  #: seconds between two looks while waiting
START_TIMEOUT = 60.0  #: seconds; crash recovery of a large journal is the slowest start
DRAIN_TIMEOUT = 60.0  #: seconds a predecessor of a killed supervisor gets to be gone


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """How a process that ended by itself comes back."""

    first: float = 0.2  #: seconds before the first restart
    longest: float = 15.0  #: each one in a row waits twice as long, up to this
    healthy_after: float = 20.0  #: seconds alive after which the next death counts as the first


ALWAYS = Restart()


@dataclass(slots=True)
class _Member:
    program: Program
    restart: Restart | None
    child: Child | None = None
    started_at: float = 0.0
    deaths: int = 0  #: in a row
    due_at: float | None = None  #: when it is started again


class Supervisor:
    """A set of processes with one owner."""

    def __init__(self, on_event: Callable[[ProcessEvent], None] | None = None) -> None:
        self._on_event = on_event or (lambda _event: None)
        self._members: dict[str, _Member] = {}
        self._watchdog = Watchdog()

    @property
    def pids(self) -> Mapping[str, int]:
        """The processes that run now."""
        return {
            name: member.child.pid
            for name, member in self._members.items()
            if member.child is not None and _runs(member)
        }

    @property
    def identities(self) -> Mapping[str, Identity]:
        """The same, so that another process can recognise them later."""
        return {
            name: member.child.identity
            for name, member in self._members.items()
            if member.child is not None and member.child.identity is not None
        }

    def start(self, program: Program, *, restart: Restart | None = ALWAYS) -> None:
        """Start a process and keep it. ``restart=None``: its end is only reported."""
        known = self._members.get(program.name)
        if known is not None and _runs(known):
            raise StackError(f"{program.name} already runs as pid {self.pids[program.name]}")
        if known is not None:
            self._let_go(known)  # it ended since the last poll, and nobody will ask for it again
        member = self._members[program.name] = _Member(program, restart)
        wait_to_start(program.name, lambda: self._launch(member, EventKind.STARTED))

    def start_later(self, program: Program, delay: float) -> None:
        """Keep a process that the first ``poll`` after ``delay`` seconds starts."""
        member = self._members[program.name] = _Member(program, ALWAYS)
        member.due_at = time.monotonic() + delay

    def wait_ready(
        self, name: str, is_ready: Callable[[], bool], *, timeout: float = START_TIMEOUT
    ) -> None:
        """Wait until a started process serves. Raises StartFailed with the place of its log."""
        member = self._member(name)
        deadline = time.monotonic() + timeout
        while not is_ready():
            if not _runs(member):
                code = member.child.exit_code() if member.child else None
                raise StartFailed(
                    f"{name} ended with code {code}; it says why in {member.program.log}"
                )
            if time.monotonic() > deadline:
                raise StartFailed(
                    f"{name} did not answer within {timeout:.0f} s; see {member.program.log}"
                )
            time.sleep(LOOK_PERIOD)

    def poll(self) -> None:
        """Notice who ended, and start again what is due. Returns at once."""
        for member in list(self._members.values()):
            if member.child is not None and (code := member.child.exit_code()) is not None:
                self._note_death(member, member.child.pid, code)
            elif member.due_at is not None and time.monotonic() >= member.due_at:
                self._start_again(member)

    def send_signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a running process and go on supervising it."""
        child = self._member(name).child
        if child is not None:
            child.send_signal(number)

    def kill(self, name: str) -> None:
        """SIGKILL, and wait until it is gone. A ``poll`` starts it again when that is due."""
        member = self._member(name)
        if member.child is not None:
            pid, code = member.child.pid, member.child.kill()
            self._note_death(member, pid, code)

    def retire(self, name: str) -> None:
        """SIGKILL a process that never comes back, as when its machine is lost."""
        self._member(name).restart = None
        self.kill(name)
        del self._members[name]

    def restart(self, name: str) -> None:
        """Stop a process in an orderly way, if it runs, and start it again."""
        member = self._member(name)
        self.stop(name)
        self.start(member.program, restart=member.restart)

    def stop(self, *names: str, in_a_hurry: Callable[[], bool] = lambda: False) -> None:
        """Stop these processes together: ask, wait, and kill what outstays its grace."""
        leaving = [self._member(name) for name in names]
        since = time.monotonic()
        for member in leaving:
            member.due_at = None
            if member.child is not None:
                member.child.ask_to_stop()
        while leaving := [member for member in leaving if not self._has_left(member)]:
            waited = time.monotonic() - since
            for member in leaving:
                if waited > member.program.grace or in_a_hurry():
                    self._end(member)
            time.sleep(LOOK_PERIOD)

    def stop_all(self, *, in_a_hurry: Callable[[], bool] = lambda: False) -> None:
        """Stop everything, highest stage first. Servers always get an orderly end: it is quick."""
        for stage in sorted(
            {member.program.stage for member in self._members.values()}, reverse=True
        ):
            names = [
                name for name, member in self._members.items() if member.program.stage == stage
            ]
            self.stop(*names, in_a_hurry=in_a_hurry if stage.may_be_killed else lambda: False)
        self._members.clear()

    def _member(self, name: str) -> _Member:
        try:
            return self._members[name]
        except KeyError:
            raise StackError(
                f"no process named {name}; there are {', '.join(self._members) or 'none'}"
            ) from None

    def _launch(self, member: _Member, kind: EventKind) -> bool:
        if member.program.may_start is not None and not member.program.may_start():
            return False
        member.child = Child(member.program)
        self._watchdog.watch(member.child)
        member.started_at = time.monotonic()
        member.due_at = None
        self._report(ProcessEvent(kind=kind, name=member.program.name, pid=member.child.pid))
        return True

    def _start_again(self, member: _Member) -> None:
        try:
            self._launch(member, EventKind.RESTARTED if member.deaths else EventKind.STARTED)
        except OSError as error:  # out of processes or files: the next round may have more luck
            self._plan_restart(member)
            self._report(
                ProcessEvent(
                    kind=EventKind.FAILED, name=member.program.name, pid=0, note=str(error)
                )
            )

    def _note_death(self, member: _Member, pid: int, code: int) -> None:
        self._let_go(member)
        if member.restart and time.monotonic() - member.started_at >= member.restart.healthy_after:
            member.deaths = 0
        self._plan_restart(member)
        self._report(
            ProcessEvent(kind=EventKind.EXITED, name=member.program.name, pid=pid, code=code)
        )

    def _plan_restart(self, member: _Member) -> None:
        if member.restart is not None:
            delay = min(member.restart.first * 2**member.deaths, member.restart.longest)
            member.deaths += 1
            member.due_at = time.monotonic() + delay

    def _has_left(self, member: _Member) -> bool:
        if member.child is None:
            return True
        pid, code = member.child.pid, member.child.exit_code()
        if code is None:
            return False
        self._let_go(member)
        self._report(
            ProcessEvent(kind=EventKind.STOPPED, name=member.program.name, pid=pid, code=code)
        )
        return True

    def _end(self, member: _Member) -> None:
        if member.child is not None:
            pid, code = member.child.pid, member.child.kill()
            self._let_go(member)
            self._report(
                ProcessEvent(kind=EventKind.KILLED, name=member.program.name, pid=pid, code=code)
            )

    def _let_go(self, member: _Member) -> None:
        """Forget a process that has ended."""
        if member.child is not None:
            self._watchdog.forget(member.child)
            member.child = None

    def _report(self, event: ProcessEvent) -> None:
        with suppress(OSError):  # a closed terminal must not keep the servers from being stopped
            self._on_event(event)


def wait_to_start(name: str, try_to: Callable[[], bool]) -> None:
    """Wait for what is left of a killed predecessor to make room. Raises StartFailed."""
    deadline = time.monotonic() + DRAIN_TIMEOUT
    while not try_to():
        if time.monotonic() > deadline:
            raise StartFailed(
                f"{name} cannot start: a process of an earlier start still holds its data after "
                f"{DRAIN_TIMEOUT:.0f} s; end that process and try again"
            )
        time.sleep(LOOK_PERIOD)


def _runs(member: _Member) -> bool:
    return member.child is not None and member.child.exit_code() is None
