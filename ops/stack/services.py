"""The processes that Onward consists of: the same for ``onward up``, the demo and the tests.

Each is plain Celery: the command lines here are the ones a user would type.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ops.stack.home import Home
from ops.stack.process import Program, Stage

ROOT = Path(__file__).parents[2]
CONTROL_QUEUE = "onward.control"
FLOWER_USER = "onward"
SHUTDOWN_GRACE = 25.0  #: seconds a running step gets (``worker_soft_shutdown_timeout``)
KILL_MARGIN = 15.0  #: seconds more for the worker to put its messages back and leave


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Where the processes of one deployment find their servers, and what they load."""

    home: Home
    database_url: str
    broker_url: str
    agents: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)  #: on top of ours
    directory: Path = field(
        default_factory=Path.cwd
    )  #: first on their import path: the user's agents

    def worker(self, name: str, *, concurrency: int) -> Program:
        """Runs steps from every queue of the loaded workflows, but never the control queue."""
        pool = ("-P", "prefork", "-c", str(concurrency), "-X", CONTROL_QUEUE)
        return self._worker(name, *pool)

    def waiting_worker(self, name: str, *queues: str, concurrency: int = 100) -> Program:
        """Runs steps that only wait for a model, many at a time in threads of one process."""
        return self._worker(name, "-P", "threads", "-c", str(concurrency), "-Q", ",".join(queues))

    def control_worker(self, name: str = "control") -> Program:
        """Runs sweep and wake, and nothing else: no backlog of steps can starve recovery."""
        return self._worker(name, "-Q", CONTROL_QUEUE, "-c", "1")

    def beat(self, number: int = 1) -> Program:
        """Sends the periodic tasks. Two of them are harmless, so that one may die."""
        name = f"beat-{number}"
        schedule = self.home.path / f"{name}.schedule"
        argv = self._celery("beat", "-s", str(schedule), "--pidfile=", "-l", "INFO")
        return self._program(name, argv, stage=Stage.SCHEDULE)

    def flower(self, port: int) -> Program:
        """Flower on the loopback address, read-only, behind the password of this home."""
        argv = self._celery(
            "flower",
            "--address=127.0.0.1",
            f"--port={port}",
            "--read_only=True",
            "--persistent=True",
            f"--db={self.home.path / 'flower.db'}",
            "--state_save_interval=5000",
        )
        # In the environment: every user of the machine can read the arguments of a process.
        auth = {"FLOWER_BASIC_AUTH": f"{FLOWER_USER}:{self.home.secret('flower')}"}
        return self._program("flower", argv, stage=Stage.VIEW, extra=auth)

    def metrics(self, port: int) -> Program:
        """The journal's figures for Prometheus on the loopback address; alerts when the sweep stands still."""
        code = "from ops.cli import main; main()"
        argv = (sys.executable, "-P", "-c", code, "metrics", "serve", "--port", str(port))
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        return self._program("metrics", argv, stage=Stage.VIEW, extra={"PYTHONPATH": path})

    def _worker(self, name: str, *options: str) -> Program:
        # Gossip and mingle let workers wait for each other's answers; nothing here needs them.
        quiet = ("--without-gossip", "--without-mingle", "-l", "INFO")
        argv = self._celery("worker", "-n", f"{name}@%h", *options, *quiet)
        return self._program(name, argv, stage=Stage.WORKER, grace=SHUTDOWN_GRACE + KILL_MARGIN)

    def _celery(self, command: str, *options: str) -> tuple[str, ...]:
        return (sys.executable, "-m", "celery", "-A", "tasks", command, *options)

    def _program(
        self,
        name: str,
        argv: tuple[str, ...],
        *,
        stage: Stage,
        grace: float = 10.0,
        extra: Mapping[str, str] | None = None,
    ) -> Program:
        return Program(
            name=name,
            argv=argv,
            log=self.home.log(name),
            env={**self._environment(), **(extra or {})},
            cwd=self.directory,
            stage=stage,
            grace=grace,
        )

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "ONWARD_HOME": str(self.home.path),
            "ONWARD_DATABASE_URL": self.database_url,
            "ONWARD_BROKER_URL": self.broker_url,
            "ONWARD_AGENTS": self.agents,
            "PYTHONUNBUFFERED": "1",
            # Celery's soft shutdown (end running steps, give back messages) acts on SIGQUIT only.
            "REMAP_SIGTERM": "SIGQUIT",
            **self.environment,
        }
