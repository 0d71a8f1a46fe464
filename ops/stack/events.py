"""What a supervisor reports, in one vocabulary for logs, live views and tests."""

import signal
from dataclasses import dataclass
from enum import StrEnum


class EventKind(StrEnum):
    """What happened to a process."""

    STARTED = "started"
    EXITED = "exited"  #: by itself or by a foreign hand; a restart may follow
    RESTARTED = "restarted"
    STOPPED = "stopped"  #: because we asked it to
    KILLED = "killed"  #: it outstayed its grace, or the user was in a hurry
    FAILED = "failed"  #: it could not be started; tried again later


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEvent:
    """One thing that happened to one supervised process."""

    kind: EventKind
    name: str
    pid: int
    code: int | None = None  #: exit code as Popen gives it: negative for a signal
    note: str = ""

    @property
    def signal_name(self) -> str | None:
        """``SIGKILL`` when a signal ended the process."""
        if self.code is None or self.code >= 0:
            return None
        return signal.Signals(-self.code).name

    def __str__(self) -> str:
        text = f"{self.name} (pid {self.pid}) {self.kind}"
        if self.signal_name:
            text += f" by {self.signal_name}"
        elif self.code is not None:
            text += f" with code {self.code}"
        return f"{text}: {self.note}" if self.note else text
