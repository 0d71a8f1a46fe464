"""The processes of a certification: a stack of its own, whose workers carry the hook."""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from models import database
from models.settings import settings
from ops import shadowing
from ops.cli import target
from ops.cli.local import UserStack
from ops.stack import Home, ProcessEvent
from ops.stack.local import Layout
from ops.stack.process import Program
from ops.stack.stopping import StopRequests
from ops.testing.certify.records import VARIABLE, Notebook
from tasks import registry
from tasks.errors import ShadowedPackage

WORKERS, CONCURRENCY = 2, 4
HOOK = "ops.testing.certify.hook"

#: Periods of a test, in the proportions of the product. Leases stay long enough that a crowded machine
#: costs no healthy step its owner; deaths are seen at once, so short ones would save nothing.
TIMES = {
    "ONWARD_LEASE_TTL": "10",
    "ONWARD_HEARTBEAT": "2",
    "ONWARD_TRUST_MARGIN": "1",
    "ONWARD_SWEEP_PERIOD": "0.5",
    "ONWARD_WAKE_PERIOD": "0.3",
    "ONWARD_PUBLISH_GRACE": "1.5",
    "ONWARD_SEND_WINDOW": "2",
    "ONWARD_LOOK_PAUSE": "0.5",
    "ONWARD_LOOK_PAUSE_MAX": "5",
    "ONWARD_PRESUME_DEAD_AFTER": "20",
    "ONWARD_STICKY": "0",  # each step by a message of its own, or P0 of most would never be reached
}
#: Of the user's own stack, which may be running: nothing here may collide with it or reach it.
_NOT_OURS = (
    "ONWARD_POSTGRES_PORT",
    "ONWARD_VALKEY_PORT",
    "ONWARD_FLOWER_PORT",
    "ONWARD_FAILPOINTS",
)


class Bench(UserStack):
    """Servers, one beat, and workers that record and hurt what they run."""

    def __init__(
        self,
        home: Home,
        agents: str,
        *,
        tool_timeout: float,
        stop: StopRequests,
        on_event: Callable[[ProcessEvent], None] | None = None,
    ) -> None:
        self.notebook = Notebook(home.path / "certify")
        environment = {
            "ONWARD_TOOL_TIMEOUT": str(tool_timeout),
            **TIMES,
            VARIABLE: str(self.notebook.directory),
        }
        layout = Layout(
            workers=WORKERS, concurrency=CONCURRENCY, beats=1, flower=False, agents=agents,
            environment=environment,
        )  # fmt: skip
        for name in _NOT_OURS:
            os.environ.pop(name, None)
        super().__init__(home, layout, stop=stop, on_event=on_event)

    @property
    def environment(self) -> Mapping[str, str]:
        """What the workers have on top of this process's environment."""
        return self.layout.environment

    @property
    def reads(self) -> tuple[str, ...]:
        """Beginnings of addresses that change nothing: the endpoint of the LLM."""
        endpoint = self.environment.get("ONWARD_LLM_BASE_URL") or os.environ.get(
            "ONWARD_LLM_BASE_URL"
        )
        return (endpoint,) if endpoint else ()

    def adopt(self) -> None:
        """Let this process submit and read with the settings of its workers."""
        os.environ.update(TIMES)
        super().adopt()

    def _start_services(self) -> None:
        self.notebook.create()
        if target.DEFAULT_AGENTS in self.layout.agents.split(","):
            self._start_companions()
        self.supervisor.start(self.services.control_worker())
        for number in range(1, WORKERS + 1):
            worker = self.services.worker(f"worker-{number}", concurrency=CONCURRENCY)
            self.supervisor.start(_hooked(worker))
        self.supervisor.start(self.services.beat())

    def _stop_all(self) -> None:
        """Everything was counted: no step that still runs is worth waiting for."""
        self.supervisor.stop_all(in_a_hurry=lambda: True)


def load(agents: str) -> None:
    """Load a user's package here as its workers will. Raises what would let them die one after another."""
    if problem := shadowing.shadowed_in(Path.cwd()):
        raise ShadowedPackage(problem)
    registry.load_agents(agents)


def release() -> None:
    """Let go of the servers before they are stopped."""
    database.close()
    settings.cache_clear()


def _hooked(worker: Program) -> Program:
    return replace(worker, argv=(*worker.argv, "-I", HOOK))
