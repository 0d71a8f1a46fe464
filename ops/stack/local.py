"""Everything of Onward on one machine: what ``onward up`` and the demo start."""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from models.migrations import upgrade
from ops.stack import state
from ops.stack.events import ProcessEvent
from ops.stack.home import Home
from ops.stack.servers import Servers
from ops.stack.services import Services
from ops.stack.state import StackState
from ops.stack.stopping import StopRequests
from ops.stack.supervisor import Supervisor

POLL_PERIOD = 0.1  #: seconds between two looks at the processes

#: Seconds that workers may import alone before beats and Flower do. On two cores everything at once
#: delays the first step by two seconds, and beats have nothing to mend before that.
HEAD_START = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What to run beside the servers."""

    workers: int = 2
    concurrency: int = 2  #: steps at a time in each worker
    beats: int = 2
    flower: bool = True
    metrics: bool = False
    agents: str = ""  #: packages with workflows, comma-separated
    database_url: str | None = None  #: a PostgreSQL of the user's own, migrated by the user
    broker_url: str | None = None  #: a Redis or Valkey of the user's own
    environment: Mapping[str, str] = field(
        default_factory=dict
    )  #: on top of ours, for every process
    directory: Path = field(default_factory=Path.cwd)  #: first on the import path of the workers


class LocalStack:
    """Servers, migrated journal, workers, beats, Flower and metrics, from entering to leaving the context.

    The caller keeps it alive by calling ``poll`` from the main thread, or ``run`` until it is asked
    to stop. Leaving stops everything in order: beats, Flower, workers, Valkey, PostgreSQL.
    """

    def __init__(
        self,
        home: Home,
        layout: Layout,
        *,
        stop: StopRequests | None = None,
        on_event: Callable[[ProcessEvent], None] | None = None,
    ) -> None:
        self.home = home
        self.layout = layout
        self.supervisor = Supervisor(self._note)
        self.servers = Servers(
            home,
            self.supervisor,
            database_url=layout.database_url,
            broker_url=layout.broker_url,
        )
        self.flower_url: str | None = None
        self.metrics_url: str | None = None
        self._stop = stop or StopRequests(home.log("onward"))
        self._on_event = on_event or (lambda _event: None)
        self._held = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            undo.enter_context(self.servers)
            undo.callback(self._stop_all)
            if self.layout.database_url is None:
                upgrade(self.servers.database_url)
            self._start_services()
            self._held = undo.pop_all()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._held.close()

    @property
    def services(self) -> Services:
        """The processes to start, pointed at this stack's servers."""
        return Services(
            home=self.home,
            database_url=self.servers.database_url,
            broker_url=self.servers.broker_url,
            agents=self.layout.agents,
            environment=self.layout.environment,
            directory=self.layout.directory,
        )

    def poll(self) -> None:
        """Start again what died and is due. Returns at once."""
        self.supervisor.poll()

    def run(self) -> None:
        """Keep everything running until someone asks to stop."""
        while not self._stop.requested:
            self.poll()
            time.sleep(POLL_PERIOD)

    def _start_services(self) -> None:
        services, layout = self.services, self.layout
        self.supervisor.start(services.control_worker())
        for number in range(1, layout.workers + 1):
            program = services.worker(f"worker-{number}", concurrency=layout.concurrency)
            self.supervisor.start(program)
        if layout.flower:
            port = self.home.port("flower")
            self.flower_url = f"http://127.0.0.1:{port}"
            self.supervisor.start_later(services.flower(port), HEAD_START)
        if layout.metrics:
            port = self.home.port("metrics")
            self.metrics_url = f"http://127.0.0.1:{port}/metrics"
            self.supervisor.start_later(services.metrics(port), HEAD_START)
        for number in range(1, layout.beats + 1):
            self.supervisor.start_later(services.beat(number), HEAD_START)

    def _stop_all(self) -> None:
        self.supervisor.stop_all(in_a_hurry=lambda: self._stop.in_a_hurry)

    def _note(self, event: ProcessEvent) -> None:
        own = state.own_identity()
        StackState(
            pid=own.pid,
            started=own.started,
            database_url=self.servers.database_url,
            broker_url=self.servers.broker_url,
            flower_url=self.flower_url,
            processes=self.supervisor.identities,
            agents=self.layout.agents,
            directory=str(self.layout.directory),
        ).write(self.home)
        self._on_event(event)
