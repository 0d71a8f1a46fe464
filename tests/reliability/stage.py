"""The servers, workers and the outside world of a session: all real, all its own."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from models import database
from ops.stack import Servers
from ops.stack.process import Program
from tests.support.databases import Databases
from tests.support.world import World, a_world

AGENTS = "tests.agents.reliability"
HOOK = "tests.reliability.hook"
WORKERS, CONCURRENCY = 2, 4

#: Periods of a test. Leases stay long enough that a crowded machine costs no healthy step its owner: deaths
#: are seen by the parent at once, and a lease that has to decide instead shows as a long recovery.
TIMES = {
    "ONWARD_LEASE_TTL": "10",
    "ONWARD_HEARTBEAT": "2",
    "ONWARD_TRUST_MARGIN": "1",
    "ONWARD_SWEEP_PERIOD": "0.5",
    "ONWARD_WAKE_PERIOD": "0.3",
    "ONWARD_PUBLISH_GRACE": "4",
    "ONWARD_SEND_WINDOW": "2",
    "ONWARD_LOOK_PAUSE": "0.3",
    "ONWARD_LOOK_PAUSE_MAX": "2",
    "ONWARD_PRESUME_DEAD_AFTER": "20",
}

#: The outside world of transactional steps is a table of their own.
_TABLE = """
CREATE TABLE booking (name text NOT NULL, run_id text NOT NULL, attempt bigint NOT NULL,
                      made_at timestamptz NOT NULL DEFAULT clock_timestamp())"""


@contextmanager
def stage(directory: Path, *, keep: bool = False) -> Iterator[World]:
    """Everything from an empty directory, started and ready; ended, and unless ``keep`` removed, afterwards."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    try:
        with Servers(directory / "servers") as servers:
            databases = Databases(servers)
            databases.create_template()
            with (
                databases.clone() as database_url,
                a_world(
                    directory, database_url=database_url, broker_url=servers.broker_url,
                    agents=AGENTS, env=TIMES,
                ) as world,
            ):  # fmt: skip
                set_up(world)
                yield world
    finally:
        if not keep:
            shutil.rmtree(directory, ignore_errors=True)


def set_up(world: World, *, workers: int = WORKERS) -> None:
    """Start what runs steps and what recovers them."""
    database.fetch(_TABLE, {})
    services = world.cluster.services
    world.cluster.start_together(
        services.control_worker(),
        services.beat(),
        *(
            _hooked(services.worker(f"worker-{number}", concurrency=CONCURRENCY))
            for number in range(1, workers + 1)
        ),
    )


def deaths_seen(world: World) -> int:
    """How many children the main processes of the workers have seen die of SIGKILL."""
    names = [name for name in world.cluster.pids if name.startswith("worker-")]
    said = "exited with 'signal 9 (SIGKILL)'"
    return sum(world.cluster.logs(name).count(said) for name in names)


def _hooked(worker: Program) -> Program:
    return replace(worker, argv=(*worker.argv, "-I", HOOK))
