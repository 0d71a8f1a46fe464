"""What the workers write down while faults are played, and what becomes of it: one JSON object a line.

Each process appends to a file of its own with one unbuffered write per line: what it wrote before a
SIGKILL is there, since the kernel has it, and no line of one process stands inside another's.
"""

import hashlib
import json
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ops.testing.certify.faults import Fault, FaultKind, Request

#: Of the worker's environment: the directory that everything here lies in.
VARIABLE = "ONWARD_CERTIFY"

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
REFUSAL = 400  #: the first status that says that nothing was applied


@dataclass(slots=True)
class Exchange:
    """One outgoing request, and how far it came."""

    run_id: str
    step_key: str
    effect: str  #: the effect's key without the run's id; empty outside tools
    tool: str
    via: str  #: ``execute`` or another function of the tool; ``step`` outside tools
    method: str
    host: str
    path: str
    key: str  #: of an idempotency header; empty: none
    carries_effect_key: bool  #: whether the effect's own key went with it, wherever in it
    occurrence: int = 0
    passed: bool = False  #: handed to the real transport
    status: int | None = None  #: that the real server answered
    digest: str = ""  #: of the body

    @property
    def changes(self) -> bool:
        """Whether a request of this method is meant to change something."""
        return self.method not in SAFE_METHODS

    @property
    def applied(self) -> bool:
        """Whether the real server said that it did what was asked."""
        return self.status is not None and self.status < REFUSAL

    @property
    def undecided(self) -> bool:
        """It left, and its process died before there was an answer."""
        return self.passed and self.status is None


@dataclass(slots=True)
class Records:
    """Everything that the workers of one certification have written down."""

    exchanges: list[Exchange] = field(default_factory=list)
    fired: set[str] = field(default_factory=set)  #: runs whose fault happened
    connections: set[tuple[str, str, str]] = field(
        default_factory=set
    )  #: (run, step, address) of connections that were opened outside recorded requests

    def of(self, run_id: str) -> list[Exchange]:
        """The requests of one run."""
        return [exchange for exchange in self.exchanges if exchange.run_id == run_id]

    def unseen(self, run_id: str) -> set[tuple[str, str]]:
        """(step, address) of connections whose traffic nobody has seen."""
        return {
            (step_key, address) for owner, step_key, address in self.connections if owner == run_id
        }


class Notebook:
    """The directory that runner and workers share: schedules in, records out."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock = threading.Lock()
        self._pid = 0
        self._file = -1
        self._number = 0

    def create(self) -> None:
        for name in ("faults", "fired", "lines"):
            (self.directory / name).mkdir(parents=True)

    def schedule(self, run_id: str, fault: Fault) -> None:
        """Let this fault happen to this run. Written before the run is submitted."""
        (self.directory / "faults" / run_id).write_text(json.dumps(asdict(fault)))

    def scheduled(self, run_id: str) -> Fault | None:
        """The fault that is to happen to a run."""
        try:
            found = json.loads((self.directory / "faults" / run_id).read_text())
        except OSError:
            return None
        request = Request(**found["request"]) if found["request"] else None
        return Fault(FaultKind(found["kind"]), found["step_key"], found["effect"], request)

    def take(self, run_id: str) -> bool:
        """Whether the fault of this run is ours to play: it happens once, whoever comes first."""
        try:
            (self.directory / "fired" / run_id).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def open(self, exchange: Exchange) -> str:
        """Write a request down before it is passed on; returns its name for later lines."""
        name = f"{os.getpid()}.{self._next_number()}"
        self._write({"open": name, **asdict(exchange)})
        return name

    def passed(self, name: str) -> None:
        self._write({"passed": name})

    def answered(self, name: str, *, status: int, digest: str, carries_effect_key: bool) -> None:
        facts = {"status": status, "digest": digest, "carries_effect_key": carries_effect_key}
        self._write({"answered": name, "facts": facts})

    def connected(self, run_id: str, step_key: str, address: str) -> None:
        self._write({"connected": address, "run_id": run_id, "step_key": step_key})

    def read(self) -> Records:
        """Everything written so far, by whichever process."""
        records = Records(fired={path.name for path in (self.directory / "fired").iterdir()})
        for file in sorted((self.directory / "lines").iterdir()):
            _read_into(records, file.read_bytes().splitlines())
        return records

    def _next_number(self) -> int:
        with self._lock:
            self._number += 1
            return self._number

    def _write(self, line: Mapping[str, object]) -> None:
        with self._lock:
            if self._pid != os.getpid():  # a pool child, forked with the file of its parent
                self._pid = os.getpid()
                name = self.directory / "lines" / f"{self._pid}"
                self._file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.write(self._file, json.dumps(line).encode() + b"\n")


def digest_of(body: bytes) -> str:
    """A name for a body's bytes."""
    return hashlib.sha256(body).hexdigest()[:32]


def _read_into(records: Records, lines: list[bytes]) -> None:
    opened: dict[str, Exchange] = {}
    for line in _parsed(lines):
        match line:
            case {"open": str(name), **values}:
                opened[name] = Exchange(**values)
                records.exchanges.append(opened[name])
            case {"passed": str(name)}:
                opened[name].passed = True
            case {"answered": str(name), "facts": dict(facts)}:
                for fact, value in facts.items():
                    setattr(opened[name], fact, value)
            case {"connected": str(address), "run_id": str(run_id), "step_key": str(step_key)}:
                records.connections.add((run_id, step_key, address))


def _parsed(lines: list[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            yield json.loads(line)
        except ValueError:
            continue  # the last line of a process that was killed in the middle of its write
