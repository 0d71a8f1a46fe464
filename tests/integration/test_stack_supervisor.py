"""The supervisor: what dies comes back, what is stopped stays stopped, nothing is left behind."""

import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.stack import EventKind, ProcessEvent, Program, Restart, StackError, Stage, Supervisor
from ops.stack.errors import StartFailed
from tests.support.programs import is_gone, running, wait_gone
from tests.support.waiting import wait_until

SLEEP = "import time; print('up', flush=True); time.sleep(600)"
STUBBORN = "import signal; signal.signal(15, signal.SIG_IGN); " + SLEEP
#: Starts a grandchild that outlives it unless someone cares, and says its pid.
PARENT = f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {SLEEP!r}]);" + (
    "print('child', p.pid, flush=True); p.wait()"
)
SUPERVISOR = """
import sys, time
from pathlib import Path
from ops.stack import Program, Supervisor
from ops.stack.stopping import StopRequests

with StopRequests(Path(sys.argv[1]) / "onward.log") as stop:
    supervisor = Supervisor(lambda event: print(event, flush=True))
    argv = (sys.executable, "-c", sys.argv[2])
    supervisor.start(Program(name="p", argv=argv, log=Path(sys.argv[1]) / "p.log"))
    while not stop.requested:
        supervisor.poll()
        time.sleep(0.02)
    supervisor.stop_all(in_a_hurry=lambda: stop.in_a_hurry)
"""


class Bench:
    """A supervisor with a log of what it reported."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.events: list[ProcessEvent] = []
        self.supervisor = Supervisor(self.events.append)

    def program(
        self, source: str, *, name: str = "p", stage: Stage = Stage.VIEW, grace: float = 10.0
    ) -> Program:
        argv = (sys.executable, "-c", source)
        log = self.directory / f"{name}.log"
        return Program(name=name, argv=argv, log=log, stage=stage, grace=grace)

    def start(self, program: Program, *, restart: Restart | None = None) -> int:
        self.supervisor.start(program, restart=restart)
        wait_until(program.log.read_text, what=f"{program.name} is up")
        return self.supervisor.pids[program.name]

    def kinds(self) -> list[EventKind]:
        return [event.kind for event in self.events]

    def poll_until(self, kind: EventKind, *, times: int = 1) -> None:
        def seen() -> bool:
            self.supervisor.poll()
            return self.kinds().count(kind) >= times

        wait_until(seen, what=f"{times} x {kind}", details=lambda: str(self.events))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.supervisor.stop_all(in_a_hurry=lambda: True)


def test_what_is_killed_comes_back_and_is_reported(bench: Bench) -> None:
    pid = bench.start(bench.program(SLEEP), restart=Restart(first=0.01))
    bench.supervisor.send_signal("p", signal.SIGKILL)
    bench.poll_until(EventKind.RESTARTED)
    assert bench.kinds() == [EventKind.STARTED, EventKind.EXITED, EventKind.RESTARTED]
    assert str(bench.events[1]) == f"p (pid {pid}) exited by SIGKILL"
    assert bench.supervisor.pids["p"] != pid


def test_what_fails_again_and_again_waits_longer_each_time(bench: Bench) -> None:
    bench.supervisor.start(bench.program("raise SystemExit(3)"), restart=Restart(first=0.001))
    bench.poll_until(EventKind.EXITED, times=5)
    assert bench.events[1].code == 3
    member = bench.supervisor._members["p"]
    assert member.deaths == 5


def test_without_a_restart_policy_an_end_is_only_reported(bench: Bench) -> None:
    bench.supervisor.start(bench.program("pass"), restart=None)
    bench.poll_until(EventKind.EXITED)
    bench.supervisor.poll()
    assert bench.kinds() == [EventKind.STARTED, EventKind.EXITED]
    assert bench.supervisor.pids == {}


def test_a_retired_process_never_comes_back(bench: Bench) -> None:
    pid = bench.start(bench.program(SLEEP), restart=Restart(first=0.0))
    bench.supervisor.retire("p")
    bench.supervisor.poll()
    assert is_gone(pid)
    with pytest.raises(StackError, match="no process named p"):
        bench.supervisor.send_signal("p", signal.SIGTERM)


def test_what_outstays_its_grace_is_killed(bench: Bench) -> None:
    bench.start(bench.program(STUBBORN, grace=0.1))
    bench.supervisor.stop("p")
    assert bench.kinds() == [EventKind.STARTED, EventKind.KILLED]


def test_a_user_in_a_hurry_does_not_wait_for_the_grace(bench: Bench) -> None:
    bench.start(bench.program(STUBBORN, grace=600.0))
    bench.supervisor.stop_all(in_a_hurry=lambda: True)
    assert bench.kinds() == [EventKind.STARTED, EventKind.KILLED]


def test_a_paused_process_hears_that_it_shall_stop(bench: Bench) -> None:
    bench.start(bench.program(SLEEP))
    bench.supervisor.send_signal("p", signal.SIGSTOP)
    bench.supervisor.stop("p")
    assert bench.kinds() == [EventKind.STARTED, EventKind.STOPPED]


def test_stages_stop_from_the_top(bench: Bench) -> None:
    for stage in (Stage.WORKER, Stage.JOURNAL, Stage.SCHEDULE, Stage.BROKER, Stage.VIEW):
        bench.start(bench.program(SLEEP, name=stage.name, stage=stage))
    bench.supervisor.stop_all()
    stopped = [event.name for event in bench.events if event.kind is EventKind.STOPPED]
    assert stopped == ["SCHEDULE", "VIEW", "WORKER", "BROKER", "JOURNAL"]


def test_what_a_dead_process_left_in_its_session_is_killed(bench: Bench) -> None:
    program = bench.program(PARENT)
    bench.start(program)
    grandchild = int(program.log.read_text().split()[1])
    bench.supervisor.send_signal("p", signal.SIGKILL)
    bench.poll_until(EventKind.EXITED)
    wait_gone([grandchild])


def test_a_program_that_ends_while_it_is_waited_for_names_its_log(bench: Bench) -> None:
    program = bench.program("raise SystemExit(7)")
    bench.supervisor.start(program, restart=None)
    with pytest.raises(StartFailed, match=rf"p ended with code 7; it says why in {program.log}"):
        bench.supervisor.wait_ready("p", lambda: False)


def test_a_second_process_of_the_same_name_is_refused(bench: Bench) -> None:
    bench.start(bench.program(SLEEP))
    with pytest.raises(StackError, match="p already runs as pid"):
        bench.supervisor.start(bench.program(SLEEP))


def test_a_thread_may_not_start_processes(bench: Bench) -> None:
    caught: list[str] = []

    def start() -> None:
        try:
            bench.supervisor.start(bench.program(SLEEP))
        except StackError as error:
            caught.append(str(error))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert caught == ["p must be started from the main thread"]


def supervised_pid(line: str) -> int:
    return int(line.partition("(pid ")[2].partition(")")[0])


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT], ids=lambda n: n.name
)
def test_every_way_to_stop_is_orderly(tmp_path: Path, number: signal.Signals) -> None:
    with running(SUPERVISOR, str(tmp_path), SLEEP) as supervisor:
        assert supervisor.stdout is not None
        pid = supervised_pid(supervisor.stdout.readline())
        supervisor.send_signal(number)
        assert supervisor.wait(15) == 0
        assert is_gone(pid)


def test_a_kill_of_the_supervisor_reaches_what_its_processes_started(tmp_path: Path) -> None:
    with running(SUPERVISOR, str(tmp_path), PARENT) as supervisor:
        assert supervisor.stdout is not None
        pid = supervised_pid(supervisor.stdout.readline())
        wait_until((tmp_path / "p.log").read_text, what="the process is up")
        grandchild = int((tmp_path / "p.log").read_text().split()[1])
        supervisor.kill()
        supervisor.wait()
        wait_gone([pid, grandchild])


def test_a_kill_of_the_supervisor_reaches_a_process_that_ignores_everything_else(
    tmp_path: Path,
) -> None:
    with running(SUPERVISOR, str(tmp_path), STUBBORN) as supervisor:
        assert supervisor.stdout is not None
        pid = supervised_pid(supervisor.stdout.readline())
        wait_until((tmp_path / "p.log").read_text, what="the process is up")
        supervisor.kill()
        supervisor.wait()
        wait_gone([pid])
