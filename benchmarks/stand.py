"""The test stand: servers of its own, one set of workers at a time, and what the driver needs of both."""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import redis

from models import database
from models.migrations import upgrade
from models.settings import settings
from ops.stack import Home, Program, Servers, Stage, Supervisor
from ops.stack.services import Services

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """How workers run: the circumstances under which contestants are compared."""

    concurrency: int
    events: bool

    def __str__(self) -> str:
        return f"concurrency {self.concurrency}, task events {'on' if self.events else 'off'}"


class Stand:
    """Servers with a migrated journal, from entering to leaving the context."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._held = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            shutil.rmtree(self._directory, ignore_errors=True)
            undo.callback(shutil.rmtree, self._directory, ignore_errors=True)
            self.home = Home.at(self._directory)
            self.supervisor = Supervisor()
            self.servers = undo.enter_context(Servers(self.home, self.supervisor))
            upgrade(self.servers.database_url)
            undo.callback(database.close)
            self._point_here()
            self._held = undo.pop_all()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._held.close()

    @property
    def valkey(self) -> "redis.Redis":
        """A client of the broker, for its statistics."""
        return redis.Redis.from_url(self.servers.broker_url, decode_responses=True)

    def libpq_url(self, name: str = "onward") -> str:
        """A database of the stand, as libpq reads it."""
        return self.servers.database_url_of(name).replace("+psycopg", "", 1)

    @property
    def finished(self) -> Path:
        """Where runs of plain Celery leave a line when they are done."""
        return self.home.path / "finished"

    @contextmanager
    def onward(self, mode: Mode, *, sticky: bool) -> Iterator[int]:
        """One worker of ours; its pid. It is ready when it has done something."""
        environment = {
            "ONWARD_STICKY": str(sticky).lower(),
            "ONWARD_TASK_EVENTS": str(mode.events).lower(),
        }
        worker = self._services(environment).worker("bench", concurrency=mode.concurrency)
        with self._running(_quiet(worker)) as pid:
            yield pid

    @contextmanager
    def plain(self, mode: Mode, *, module: str) -> Iterator[int]:
        """One worker of a plain Celery app, on the same pool; its pid."""
        worker = self._services({}).worker("plain", concurrency=mode.concurrency)
        argv = tuple(module if word == "tasks" else word for word in worker.argv)
        without_queues = argv.index("-X")
        argv = argv[:without_queues] + argv[without_queues + 2 :]
        os.environ["BENCH_EVENTS"] = str(int(mode.events))
        self.finished.write_text("")
        with self._running(_quiet(replace(worker, argv=argv, env=dict(os.environ)))) as pid:
            yield pid

    def _services(self, environment: Mapping[str, str]) -> Services:
        return Services(
            home=self.home,
            database_url=self.servers.database_url,
            broker_url=self.servers.broker_url,
            agents="benchmarks.agent",
            environment=environment,
            directory=ROOT,
        )

    @contextmanager
    def _running(self, program: Program) -> Iterator[int]:
        self.supervisor.start(program, restart=None)
        try:
            yield self.supervisor.pids[program.name]
        finally:
            self.supervisor.stop(program.name)

    def _point_here(self) -> None:
        """This process submits: its settings are those of the stand, whatever the user's are."""
        os.environ.update(
            ONWARD_DATABASE_URL=self.servers.database_url,
            ONWARD_BROKER_URL=self.servers.broker_url,
            ONWARD_AGENTS="benchmarks.agent",
            ONWARD_ARTIFACTS=str(self.finished.parent / "artifacts"),
            ONWARD_PUBLISH_WINDOW="5000",  # a mass recovery is published whole, whoever consumes
            BENCH_BROKER_URL=self.servers.broker_url,
            BENCH_FINISHED=str(self.finished),
            BENCH_DATABASE_URL=self.libpq_url("floor"),
        )
        settings.cache_clear()


def _quiet(program: Program) -> Program:
    """Logging a line per task is not what is measured."""
    argv = tuple("WARNING" if word == "INFO" else word for word in program.argv)
    return replace(program, argv=argv, stage=Stage.WORKER)
