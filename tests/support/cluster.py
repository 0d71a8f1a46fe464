"""A cluster of real Celery processes for acceptance and fault tests."""

import signal
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Self

from ops.stack import Home, ProcessEvent, Supervisor
from ops.stack.process import Program, Stage
from ops.stack.services import Services
from tests.support.waiting import wait_until

#: What the log of a service says when it is ready.
READY = {
    Stage.WORKER: "ready.",
    Stage.SCHEDULE: "beat: Starting",
    Stage.VIEW: "Visit me at",
}

START_TIMEOUT = 60.0  #: seconds; a start takes two, and more while everything starts at once

#: Leases and periods so short that a rescue takes seconds; their proportions are the product's.
FAST = {
    "ONWARD_LEASE_TTL": "3",
    "ONWARD_HEARTBEAT": "1",
    "ONWARD_TRUST_MARGIN": "0.5",
    "ONWARD_SWEEP_PERIOD": "0.5",
    "ONWARD_WAKE_PERIOD": "0.3",
    "ONWARD_PUBLISH_GRACE": "1.5",
}


class Cluster:
    """Workers, control workers and beats of one test. Nothing restarts by itself."""

    def __init__(
        self,
        directory: Path,
        *,
        database_url: str,
        broker_url: str,
        agents: str,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.events: list[ProcessEvent] = []
        self._supervisor = Supervisor(self.events.append)
        self._home = Home.at(directory)
        self._home.create()
        root = Path(__file__).parents[2]
        self.env = {**FAST, **(env or {})}
        self.services = Services(
            home=self._home,
            database_url=database_url,
            broker_url=broker_url,
            agents=agents,
            environment=self.env,
            directory=root,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop_all()

    def worker(
        self,
        name: str = "worker-1",
        *,
        concurrency: int = 2,
        env: Mapping[str, str] | None = None,
    ) -> int:
        """Start a step worker, wait until it takes work, and return its pid."""
        return self.start(self._with(env).worker(name, concurrency=concurrency))

    def control_worker(self, name: str = "control", *, env: Mapping[str, str] | None = None) -> int:
        return self.start(self._with(env).control_worker(name))

    def beat(self, number: int = 1) -> int:
        return self.start(self.services.beat(number))

    def recovery(self) -> None:
        """Start what recovers: a control worker and a beat."""
        self.up(workers=0)

    def up(self, *, workers: int = 1, concurrency: int = 2) -> None:
        """Start ``worker-1`` and so on, a control worker and a beat, all at once."""
        names = [f"worker-{number}" for number in range(1, workers + 1)]
        self.start_together(
            *(self.services.worker(name, concurrency=concurrency) for name in names),
            self.services.control_worker(),
            self.services.beat(),
        )

    def start(self, program: Program) -> int:
        """Start any of the services, wait until it is ready, and return its pid."""
        self.start_together(program)
        return self.pids[program.name]

    def start_together(self, *programs: Program) -> None:
        """Start services side by side, and wait until the log of each says that it is ready."""
        seen = {program.name: len(self.logs(program.name)) for program in programs}
        for program in programs:
            self._supervisor.start(program, restart=None)
        for program in programs:
            self._wait_ready(program, seen[program.name])

    def _wait_ready(self, program: Program, seen: int) -> None:
        name, ready = program.name, READY[program.stage]
        wait_until(
            lambda: ready in self.logs(name)[seen:] or not self.is_running(name),
            timeout=START_TIMEOUT,
            what=f"{name} says {ready!r}",
            details=lambda: self.tail(name),
        )
        assert self.is_running(name), f"{name} ended at once:\n{self.tail(name)}"

    @property
    def pids(self) -> Mapping[str, int]:
        return self._supervisor.pids

    def is_running(self, name: str) -> bool:
        return name in self.pids

    def send_signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to the main process and return at once."""
        self._supervisor.send_signal(name, number)

    def kill(
        self, name: str, number: signal.Signals = signal.SIGKILL, *, timeout: float = 60.0
    ) -> None:
        """Send a signal that ends the process, and wait until it has ended."""
        self._supervisor.send_signal(name, number)
        wait_until(
            lambda: not self.is_running(name),
            timeout=timeout,
            what=f"{name} ends after {number.name}",
            details=lambda: self.tail(name),
        )
        self._supervisor.poll()

    def logs(self, name: str) -> str:
        log = self._home.log(name)
        return log.read_text(errors="replace") if log.exists() else ""

    def tail(self, name: str, *, lines: int = 60) -> str:
        return "\n".join(self.logs(name).splitlines()[-lines:])

    def tails(self) -> Iterable[tuple[str, str]]:
        """The end of every log, for the report of a failed test."""
        for log in sorted((self._home.path / "logs").glob("*.log")):
            yield log.stem, self.tail(log.stem)

    def stop_all(self) -> None:
        """End everything at once: what a test wanted to see of an orderly end it has asked for."""
        self._supervisor.stop_all(in_a_hurry=lambda: True)

    def _with(self, env: Mapping[str, str] | None) -> Services:
        return replace(self.services, environment={**self.env, **(env or {})})
