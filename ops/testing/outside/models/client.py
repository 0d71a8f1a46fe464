"""The test's end of the models: start them, script them, read what they counted. Standard library only."""

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

from ops.testing.outside.models.script import Answer, Ways

_ROOT = Path(__file__).parents[4]
_START_LIMIT = 20.0  #: seconds
_PERIOD = 0.02  #: seconds between two looks


class ModelsError(Exception):
    """The models did not start, or did not understand an order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """One request that reached the models."""

    id: int
    kind: str  #: chat, responses, embeddings, messages; poll: a look at a background response
    model: str
    digest: str
    text: str
    request: str
    headers: str  #: JSON
    stream: bool
    at: float  #: seconds, of the models' clock
    outcome: str  #: answered, lost, cut, limited, failed, rejected; arrived: under way
    status: int | None
    not_before: float | None  #: the instant that its Retry-After named, of the same clock
    tokens_in: int | None  #: None: not billed
    tokens_out: int | None
    cost: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Billed:
    """What the caller owes."""

    calls: int
    tokens_in: int
    tokens_out: int
    cost: Decimal

    @property
    def tokens(self) -> int:
        return self.tokens_in + self.tokens_out


class ModelService:
    """Running models. ``url`` is the base address of every dialect; Anthropic's SDK takes ``root``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start over what it counted, on the port it had before; the script is a new one."""
        self._directory.mkdir(parents=True, exist_ok=True)
        port_file = self._directory / "models.port"
        port_file.unlink(missing_ok=True)
        command = [
            sys.executable, "-m", "ops.testing.outside.models", "--store", str(self._directory),
            "--port-file", str(port_file), "--port", str(self.port),
        ]  # fmt: skip
        with (self._directory / "models.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=_ROOT)
        process = self._process
        _wait(lambda: port_file.exists() or process.poll() is not None, what="the models listen")
        if not port_file.exists():
            log_text = (self._directory / "models.log").read_text()
            raise ModelsError(f"the models did not start:\n{log_text}")
        self.port = int(port_file.read_text())

    def kill(self) -> None:
        """SIGKILL: connections are refused until the next start."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.root}/v1"

    # What it counted

    def calls(
        self, match: str = "", *, kind: str | None = None, outcome: str | None = None
    ) -> list[ModelCall]:
        """Every request whose text contains this, in order, looks at background responses included."""
        query = {"match": match, **({"kind": kind} if kind else {})}
        found = [ModelCall(**one) for one in self._ask("GET", "calls", query)["calls"]]
        return [call for call in found if outcome in (None, call.outcome)]

    def count(self, match: str = "", *, kind: str | None = None) -> int:
        """How many requests those are."""
        return len(self.calls(match, kind=kind))

    def rejected(self) -> list[ModelCall]:
        """Requests against the rules of the provider: unpaired tool calls, turns out of order."""
        return self.calls(outcome="rejected")

    def billed(self, match: str = "") -> Billed:
        """What is to be paid for requests whose text contains this, whoever got the answers."""
        found = self._ask("GET", "billed", {"match": match})
        return Billed(**{**found, "cost": Decimal(found["cost"])})

    def most_at_once(self) -> int:
        """How many requests were under way at the same time, at most."""
        return int(self._ask("GET", "now", {})["most_at_once"])

    def wait_idle(self, *, timeout: float = _START_LIMIT) -> None:
        """Wait until nothing is under way: what a killed caller asked for is billed by then."""
        _wait(
            lambda: self._ask("GET", "now", {})["at_once"] == 0,
            timeout=timeout, what="no request is under way",
        )  # fmt: skip

    # What is to come

    def script(
        self, match: str, *answers: Answer | str, kind: str | None = None, last: bool = False,
        repeats: bool = True,
    ) -> None:  # fmt: skip
        """Answer requests whose text contains this so, in this order; a text alone is the content.

        The newest rule that fits speaks. The last answer stays, or, when it does not repeat, the rule is
        over with it. ``last`` looks at the last message only.
        """
        given = [one if isinstance(one, Answer) else Answer(text=one) for one in answers]
        order = {
            "match": match, "answers": [one.order() for one in given], "kind": kind, "last": last,
            "repeats": repeats,
        }  # fmt: skip
        self._ask("POST", "script", order)

    def fault(self, match: str, *answers: Answer, kind: str | None = None) -> None:
        """Answer the next so many requests so, and those after them as before."""
        self.script(match, *answers, kind=kind, repeats=False)

    def clear(self) -> None:
        """Forget the whole script."""
        self._ask("POST", "clear", {})

    def behave(self, ways: Ways | None = None) -> None:
        """How everybody is treated: limits, keys, withdrawn models, prices. None: as at the start."""
        wanted = ways or Ways()
        self._ask("POST", "ways", {name: getattr(wanted, name) for name in Ways.__slots__})

    def held(self, name: str) -> int:
        return int(self._ask("GET", "held", {"name": name})["held"])

    def wait_held(self, name: str, *, count: int = 1, timeout: float = _START_LIMIT) -> None:
        """Wait until so many requests wait for the release of this name."""
        what = f"{count} requests wait for {name}"
        _wait(lambda: self.held(name) >= count, timeout=timeout, what=what)

    def release(self, name: str) -> int:
        """Let them go on; how many they were."""
        return int(self._ask("POST", "release", {"name": name})["released"])

    def _ask(self, method: str, what: str, given: Mapping[str, Any]) -> dict[str, Any]:
        path = f"/_{what}?{urlencode(given)}" if method == "GET" else f"/_{what}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, json.dumps(given) if method == "POST" else None)
            response = connection.getresponse()
            answer: dict[str, Any] = json.loads(response.read())
        finally:
            connection.close()
        if response.status != 200:
            raise ModelsError(f"{method} {path}: {response.status} {answer}")
        return answer


def _wait(predicate: Callable[[], bool], *, timeout: float = _START_LIMIT, what: str) -> None:
    deadline = time.monotonic() + timeout
    while not predicate():
        if time.monotonic() > deadline:
            raise ModelsError(f"not within {timeout} s: {what}")
        time.sleep(_PERIOD)
