"""The whole local stack: real servers, workers, beats and Flower, from up to down."""

import os
import pty
import subprocess
import sys
import urllib.error
import urllib.request
from base64 import b64encode
from pathlib import Path

import pytest

from ops.stack import Home, StackError, state
from ops.stack.state import StackState, Stopped
from tests.support.programs import ROOT, is_gone, running, wait_gone
from tests.support.waiting import wait_until

UP = """
import fcntl, sys, termios
from ops.stack.home import Home
from ops.stack.local import Layout, LocalStack
from ops.stack.stopping import StopRequests

if "terminal" in sys.argv:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
home = Home.at(sys.argv[1])
with (
    StopRequests(home.log("onward")) as stop,
    LocalStack(home, Layout(workers=1), stop=stop, on_event=lambda event: print(event, flush=True)) as stack,
):
    stack.run()
print("down", flush=True)
"""
ALL = {"postgres", "valkey", "control", "worker-1", "flower", "beat-1", "beat-2"}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.at(tmp_path / "home")


def wait_up(home: Home) -> StackState:
    """Wait until everything runs and the worker takes work."""

    def up() -> StackState | None:
        found = state.running(home)
        worker = home.log("worker-1")
        is_ready = worker.exists() and "ready." in worker.read_text()
        return found if found and is_ready and set(found.processes) == ALL else None

    return wait_until(up, timeout=60, what="everything is up", details=lambda: logs(home))


def logs(home: Home) -> str:
    """The end of every log, for a failed test."""
    files = sorted((home.path / "logs").glob("*.log"))
    return "\n".join(f"--- {file.stem}\n{file.read_text()[-1500:]}" for file in files)


def pids_of(found: StackState) -> list[int]:
    return [process.pid for process in found.processes.values()]


def answer_of(url: str, *, password: str | None = None, data: bytes | None = None) -> int:
    request = urllib.request.Request(url, data=data)  # noqa: S310 - a loopback address
    if password:
        login = b64encode(f"onward:{password}".encode()).decode()
        request.add_header("Authorization", f"Basic {login}")
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310
            status: int = answer.status
            return status
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0


def test_up_and_down(home: Home) -> None:
    with running(UP, str(home.path)) as first:
        found = wait_up(home)
        assert found.pid == first.pid
        url, password = found.flower_url, home.secret("flower")
        wait_until(lambda: answer_of(f"{url}/") == 401, timeout=30, what="Flower asks who it is")
        assert answer_of(f"{url}/", password=password) == 200
        restart = f"{url}/api/worker/pool/restart/worker-1"
        assert answer_of(restart, password=password, data=b"") == 403, "Flower is not read-only"
        with running(UP, str(home.path), stderr=subprocess.PIPE) as second:
            _, complaint = second.communicate(timeout=30)
        assert f"(pid {first.pid}); stop it with `onward down`" in complaint
        assert state.stop(home) is Stopped.STOPPED
        assert first.wait(10) == 0
    assert all(map(is_gone, pids_of(found)))
    assert StackState.read(home) is None
    assert state.stop(home) is Stopped.NOT_RUNNING


def test_a_killed_stack_leaves_nothing_and_starts_again(home: Home) -> None:
    with running(UP, str(home.path)) as stack:
        found = wait_up(home)
        stack.kill()
        stack.wait()
        wait_gone(pids_of(found))
    assert state.running(home) is None
    with running(UP, str(home.path)) as stack:
        again = wait_up(home)
        assert again.database_url == found.database_url
        assert again.flower_url == found.flower_url
        assert state.stop(home, now=True) is Stopped.STOPPED
        assert stack.wait(10) == 0


def test_a_closed_terminal_is_an_orderly_end(home: Home) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", UP, str(home.path), "terminal"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    with process:
        os.close(theirs)
        found = wait_up(home)
        os.close(ours)
        assert process.wait(60) == 0
    assert all(map(is_gone, pids_of(found)))
    said = home.log("onward").read_text()
    assert said.rstrip().endswith("down"), said
    assert "postgres" in said


def test_a_home_held_by_something_else_is_not_stopped(home: Home) -> None:
    with home.locked(), pytest.raises(StackError, match=rf"\(pid {os.getpid()}\)"):
        state.stop(home)
