"""The supervisor's end of ``guard.py``: tells it which sessions to end after a ``kill -9``."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from ops.stack.process import Child


class Watchdog:
    """Runs the guard while there is something to guard, anew should someone kill it."""

    def __init__(self) -> None:
        self._guard: subprocess.Popen[str] | None = None
        self._sessions: dict[int, int] = {}

    def watch(self, child: Child) -> None:
        signal_number = int(child.program.death_signal)
        self._sessions[child.pid] = signal_number
        self._tell(f"+ {child.pid} {signal_number}")

    def forget(self, child: Child) -> None:
        self._sessions.pop(child.pid, None)
        self._tell(f"- {child.pid}")
        if not self._sessions:
            self._dismiss()

    def _tell(self, line: str) -> None:
        if self._guard is None or self._guard.poll() is not None:
            self._hire()
            return
        with suppress(BrokenPipeError):  # killed in this moment; the next line finds that out
            self._write(line)

    def _hire(self) -> None:
        self._dismiss()
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(__file__).with_name("guard.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
            text=True,
        )
        for session, number in self._sessions.items():
            self._write(f"+ {session} {number}")

    def _write(self, line: str) -> None:
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.write(f"{line}\n")
            self._guard.stdin.flush()

    def _dismiss(self) -> None:
        if self._guard is not None and self._guard.stdin is not None:
            with suppress(BrokenPipeError):
                self._guard.stdin.close()
            self._guard.wait()
        self._guard = None
