"""What the person or the system asks of a running stack by signal: to stop, and to hurry."""

import os
import signal
from pathlib import Path
from types import FrameType
from typing import Any, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class StopRequests:
    """Counts Ctrl-C, SIGTERM and a closed terminal instead of raising in the middle of something.

    The first request means an orderly stop; another Ctrl-C, or SIGQUIT (Ctrl-\\), means not to wait
    for running steps. Under ``nohup`` a closed terminal is none of our business.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self._count = 0
        self._before: dict[signal.Signals, Any] = {}

    @property
    def requested(self) -> bool:
        return self._count > 0

    @property
    def in_a_hurry(self) -> bool:
        return self._count > 1

    def __enter__(self) -> Self:
        for number in SIGNALS:
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_exc: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            self._leave_terminal()
        if number == signal.SIGINT:
            self._count += 1
        else:  # a closed terminal may send several; together they are one wish, not impatience
            self._count = max(self._count, 2 if number == signal.SIGQUIT else 1)

    def _leave_terminal(self) -> None:
        """What we say from now on goes to the log: writing to a terminal that is gone fails."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        log = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
