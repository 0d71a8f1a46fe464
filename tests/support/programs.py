"""Small programs of tests: Python source run as a process of its own."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]


@contextmanager
def running(source: str, *arguments: str, **options: object) -> Iterator["subprocess.Popen[str]"]:
    """Run source with arguments in ``sys.argv``, with the checkout on its import path."""
    process = subprocess.Popen(
        [sys.executable, "-c", source, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        **options,  # type: ignore[call-overload]
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def is_gone(pid: int) -> bool:
    """Whether no such process is left, not counting a zombie that nobody has reaped yet."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in "ZX"


def wait_gone(pids: list[int], *, timeout: float = 15.0) -> None:
    """Wait until none of these processes is left."""
    wait_until(lambda: all(map(is_gone, pids)), timeout=timeout, what=f"{pids} are gone")
