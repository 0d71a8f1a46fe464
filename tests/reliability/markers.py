"""One file per kill, made directly before it: each happens once, and when it did is known."""

import os
import time
from pathlib import Path

from tests.reliability.kills import Kill


def take(run_id: str, kill: Kill) -> bool:
    """Whether this kill is ours to make. Writes down the time, by the clock of this machine.

    That is the clock of its PostgreSQL and of the service as well, against which it is held.
    """
    now = time.clock_gettime(time.CLOCK_REALTIME)
    try:
        with _path(run_id, kill).open("x") as marker:
            marker.write(f"{now:.6f}")
    except FileExistsError:
        return False
    return True


def fired_at(run_id: str, kill: Kill) -> float | None:
    """When it was made, in seconds since 1970; None when it was not."""
    try:
        written = _path(run_id, kill).read_text()
    except FileNotFoundError:
        return None
    return float(written) if written else None


def _path(run_id: str, kill: Kill) -> Path:
    return Path(os.environ["ONWARD_FAILPOINT_DIR"]) / f"{run_id}.{kill}"
