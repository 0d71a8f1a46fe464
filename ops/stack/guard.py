"""What is left to do when a supervisor was killed: end the sessions it had started.

Run as a file (``python -I -S guard.py``), one beside each supervisor, which writes ``+ SESSION
SIGNAL`` when it starts a process and ``- SESSION`` when it has reaped one. The end of this pipe is
the end of the supervisor, however it came. On Linux the kernel has told the processes themselves
by then (``launch.py``), but nobody has told what they started, such as the subprocess of a step;
elsewhere nobody has told anyone.
"""

import os
import signal
import sys
import time
from contextlib import suppress

GRACE = 60.0  #: seconds for the shutdown checkpoint of a busy journal
PERIOD = 0.05  #: seconds between two looks


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)  # it ends with the pipe, and not before
    sessions: dict[int, int] = {}
    for line in sys.stdin:
        match line.split():
            case "+", session, death_signal:
                sessions[int(session)] = int(death_signal)
            case "-", session:
                sessions.pop(int(session), None)
    for session, death_signal in sessions.items():
        _signal(session, death_signal)
    deadline = time.monotonic() + GRACE
    while sessions:
        for session in [one for one in sessions if not _exists(one) or time.monotonic() > deadline]:
            _end(session)
            del sessions[session]
        time.sleep(PERIOD)


def _end(session: int) -> None:
    """Kill whatever is left of a session."""
    _signal(session, signal.SIGKILL)
    for pid in _members(session):
        _signal(pid, signal.SIGKILL)


def _members(session: int) -> list[int]:
    """Processes of a session, as far as this system lets us look."""
    found = []
    for name in os.listdir("/proc") if sys.platform == "linux" else ():
        try:
            if name.isdigit() and os.getsid(int(name)) == session:
                found.append(int(name))
        except ProcessLookupError:
            continue
    return found


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # PostgreSQL, run as another user
        return True
    return True


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


if __name__ == "__main__":
    main()
