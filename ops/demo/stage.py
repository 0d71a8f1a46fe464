"""The processes of the demo: everything of ``onward up`` but Flower, and the outside world beside it."""

import os
import signal
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import redis

import examples
from models.settings import settings
from ops.demo import batch, evidence
from ops.demo.memory import Memory
from ops.demo.replays import armed
from ops.demo.witnesses import Service, Witnesses, witnesses
from ops.stack import EventKind, Home, ProcessEvent, Restart
from ops.stack.identity import session_members
from ops.stack.local import Layout, LocalStack
from ops.stack.stopping import StopRequests

AGENT = "examples.contract_review.agent"
WORKERS, BEATS = 3, 2
LATENCY = "700-2000"  #: milliseconds of an LLM call; about that of a small hosted model
SHORT_LATENCY = "300-900"  #: in a batch too small to keep the slots busy
#: A third of the product's times or less, so that a rescue by lease takes seconds; a worker on a busy
#: machine is back before its leases end.
TIMES = {
    "ONWARD_LEASE_TTL": "10",
    "ONWARD_HEARTBEAT": "2",
    "ONWARD_TRUST_MARGIN": "1",
    "ONWARD_SWEEP_PERIOD": "1",
    "ONWARD_WAKE_PERIOD": "0.5",
    "ONWARD_PUBLISH_GRACE": "3",
}
#: A killed beat is away for some sweeps, so that it shows whether the other one is enough.
_BEAT_RESTART = Restart(first=4.0)
WINDOW = 4  #: unclaimed messages: enough to keep all slots busy between two wakes, few enough that
#: documents are finished one after another instead of all at the end


@dataclass(frozen=True, slots=True)
class Size:
    """How much runs at once. A small batch on many slots would be over before anything is killed."""

    workers: int
    concurrency: int

    @classmethod
    def of(cls, documents: int) -> "Size":
        return cls(WORKERS, max(1, min(3, documents // 12)))

    @property
    def latency(self) -> str:
        return LATENCY if self.concurrency > 1 else SHORT_LATENCY

    @property
    def environment(self) -> Mapping[str, str]:
        """What every process gets on top of its own environment."""
        return {**TIMES, "ONWARD_PUBLISH_WINDOW": str(WINDOW)}


class Stage(LocalStack):
    """The stack of one demo batch, with hands for hurting it."""

    def __init__(
        self,
        home: Home,
        memory: Memory,
        *,
        stop: StopRequests,
        on_event: Callable[[ProcessEvent], None] | None = None,
        dropped: Memory | None = None,
    ) -> None:
        self._dropped = dropped
        self.size = Size.of(memory.documents)
        self.memory = memory
        self.lost_before = 0  #: claims that earlier sessions left without a result
        self._replacements = self.size.workers
        layout = Layout(
            workers=self.size.workers,
            concurrency=self.size.concurrency,
            beats=BEATS,
            flower=False,
            agents=AGENT,
            environment=self.size.environment,
            directory=root(),
        )
        super().__init__(home, layout, stop=stop, on_event=on_event)

    @property
    def outside(self) -> Witnesses:
        """The outside world of this batch."""
        return self._outside

    @property
    def failpoints(self) -> Path:
        """Where workers look whether they are to stop at a named instant."""
        return self.memory.store(self.home) / "failpoints"

    def start_outside(self, world: Witnesses) -> None:
        """Start two services and wait until they serve."""
        for service in (world.model, world.registry):
            self._start_service(service)

    def worker_names(self) -> list[str]:
        """Workers that run now."""
        return [name for name in self.supervisor.pids if name.startswith("worker-")]

    def messages_waiting(self) -> int:
        """Messages of steps that lie in the broker and that no worker has taken."""
        with redis.Redis.from_url(self.servers.broker_url, socket_timeout=3) as client:
            queues = client.scan_iter(f"{settings().key_prefix}steps.*", _type="list")
            return sum(int(client.llen(queue)) for queue in queues)

    def freeze(self, name: str) -> None:
        """SIGSTOP a process and everything of its session, the one that could fork first."""
        for pid in self._session(name):
            _send(pid, signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        """SIGCONT the same."""
        for pid in self._session(name):
            _send(pid, signal.SIGCONT)

    def replace_worker(self) -> str:
        """Start a worker under a name that was never used, for one that is gone for good."""
        self._replacements += 1
        name = f"worker-{self._replacements}"
        self.supervisor.start(self.services.worker(name, concurrency=self.size.concurrency))
        return name

    def thaw_all(self, *, but: Collection[str] = ()) -> None:
        """Let nothing stay paused: a paused process hears no request to stop."""
        for name in self.worker_names():
            if name not in but:
                self.thaw(name)

    def _stop_all(self) -> None:
        self.thaw_all()
        super()._stop_all()

    def _start_services(self) -> None:
        store = self.memory.store(self.home)
        self._outside = witnesses(self.home, store, latency=self.size.latency, root=root())
        self.start_outside(self._outside)
        world = {
            **self.layout.environment,
            **self._outside.environment,
            **armed(self.failpoints),
        }
        self.layout = replace(self.layout, environment=world)
        self._adopt_environment()
        self._drop()
        self.lost_before = evidence.lost_claims(self.memory.batch_id)
        services = self.services
        self.supervisor.start(services.control_worker())
        for number in range(1, self.size.workers + 1):
            self.supervisor.start(
                services.worker(f"worker-{number}", concurrency=self.size.concurrency)
            )
        for number in range(1, BEATS + 1):
            self.supervisor.start(services.beat(number), restart=_BEAT_RESTART)

    def _drop(self) -> None:
        """Cancel the batch that is given up before any worker could file a document of it here."""
        if self._dropped is not None:
            self.memory.save(self.home)
            batch.cancel(self._dropped.batch_id)

    def _adopt_environment(self) -> None:
        """This process submits and reads under the settings its workers have."""
        os.environ.update(
            ONWARD_DATABASE_URL=self.servers.database_url,
            ONWARD_BROKER_URL=self.servers.broker_url,
            ONWARD_AGENTS=AGENT,
            **self.layout.environment,
        )
        settings.cache_clear()

    def _start_service(self, service: Service) -> None:
        self.supervisor.start(service.program)
        self.supervisor.wait_ready(service.program.name, service.is_ready)

    def _session(self, name: str) -> list[int]:
        pid = self.supervisor.pids.get(name)
        return [] if pid is None else [pid, *session_members(pid)]


def root() -> Path:
    """The directory of our packages: first on the import path of every process."""
    return Path(str(examples.__file__)).parents[1]


def is_news(event: ProcessEvent) -> bool:
    """Whether an event of the supervisor belongs on the screen."""
    return event.kind in (EventKind.EXITED, EventKind.RESTARTED, EventKind.FAILED)


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
