"""The local stack as ``onward up`` and ``onward review`` start it."""

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from models import database
from models.settings import settings
from ops import schema, shadowing
from ops.cli import target
from ops.cli.output import note
from ops.demo.stage import is_news
from ops.demo.witnesses import Service, Witnesses, witnesses
from ops.stack import Home, ProcessEvent
from ops.stack.local import Layout, LocalStack
from ops.stack.state import StackState, own_identity
from ops.stack.stopping import StopRequests
from tasks import registry
from tasks.errors import ShadowedPackage

_LATENCY = "40-120"  #: milliseconds of an answer of the example's model server


class UserStack(LocalStack):
    """The local stack, and beside it what the example agent needs and the environment does not name.

    Without ``ONWARD_LLM_BASE_URL`` that is the example's rule-based model server, without
    ``ONWARD_REGISTRY_URL`` its registry; both keep their books in the home.
    """

    companions: tuple[str, ...] = ()

    def adopt(self) -> None:
        """Let this process use the stack it has just started."""
        own = own_identity()
        target.adopt(
            StackState(
                pid=own.pid, started=own.started, database_url=self.servers.database_url,
                broker_url=self.servers.broker_url, flower_url=self.flower_url, processes={},
                agents=self.layout.agents, directory=str(self.layout.directory),
            )
        )  # fmt: skip
        settings.cache_clear()
        database.close()

    def _start_services(self) -> None:
        if target.DEFAULT_AGENTS in self.layout.agents.split(","):
            self._start_companions()
        super()._start_services()

    def _start_companions(self) -> None:
        world = witnesses(
            self.home, self.home.path / "review", latency=_LATENCY, root=shadowing.ROOT
        )
        wanted = _wanted(world)
        for service in wanted:
            self.supervisor.start(service.program)
        self.companions = tuple(service.program.name for service in wanted)
        named = {name: url for name, url in world.environment.items() if not os.environ.get(name)}
        if world.model not in wanted:
            named = {name: url for name, url in named.items() if not name.startswith("ONWARD_LLM_")}
        self.layout = replace(self.layout, environment={**named, **self.layout.environment})


def _wanted(world: Witnesses) -> list[Service]:
    found = []
    if not os.environ.get("ONWARD_LLM_BASE_URL"):
        found.append(world.model)
    if not os.environ.get("ONWARD_REGISTRY_URL"):
        found.append(world.registry)
    return found


def prepare(
    *, workers: int, concurrency: int, agents: str, beats: int = 2, flower: bool = True,
    metrics: bool = False,
) -> Layout:  # fmt: skip
    """What to start, once it is certain that workers started here would find their code.

    Raises ``ShadowedPackage`` or ``AgentsError`` instead of letting workers die one after another.
    """
    directory = Path.cwd()
    if problem := shadowing.shadowed_in(directory):
        raise ShadowedPackage(problem)
    registry.load_agents(agents)
    own = target.is_explicit()
    if own:
        schema.require()
    adopted = "ONWARD_STACK" in os.environ
    return Layout(
        workers=workers, concurrency=concurrency, beats=beats, flower=flower, metrics=metrics, agents=agents,
        database_url=settings().database_url if own else None,
        broker_url=None if adopted else os.environ.get("ONWARD_BROKER_URL"), directory=directory,
    )  # fmt: skip


def start(home: Home, layout: Layout, stop: StopRequests) -> UserStack:
    """The stack, not entered yet; what happens to its processes is told on stderr."""
    return UserStack(home, layout, stop=stop, on_event=_tell(stop))


def python(*arguments: str) -> tuple[list[str], dict[str, str]]:
    """How to run ``onward`` with arguments as another process, and its environment.

    ``-P`` keeps the current directory from shadowing us; the path brings a checkout that is not installed.
    """
    code = "from ops.cli import main; main()"
    path = os.pathsep.join(filter(None, (str(shadowing.ROOT), os.environ.get("PYTHONPATH"))))
    return [sys.executable, "-P", "-c", code, *arguments], {**os.environ, "PYTHONPATH": path}


def _tell(stop: StopRequests) -> Callable[[ProcessEvent], None]:
    def tell(event: ProcessEvent) -> None:
        if is_news(event) and not stop.requested:
            note(str(event))

    return tell
