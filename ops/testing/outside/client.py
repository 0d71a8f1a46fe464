"""The test's end of the outside world: start it, order faults, read what it counted."""

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import quote

Where = Literal["before", "after"]
On = Literal["create", "lookup", "delete"]
FaultName = Literal[
    "apply_delay", "drop_response", "drop_request", "5xx_after_apply", "5xx_before_apply", "429",
    "refuse", "redirect", "hang", "garbled", "hidden", "provisioning",
]  # fmt: skip

_START_LIMIT = 20.0  #: seconds
_PERIOD = 0.02  #: seconds between two looks


class OutsideError(Exception):
    """The outside world did not start, or did not understand an order."""


class Outside:
    """One running service. Names are business intents; see the package for its addresses."""

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
        """Start over what it knew, on the port it had before."""
        self._directory.mkdir(parents=True, exist_ok=True)
        port_file = self._directory / "fx.port"
        port_file.unlink(missing_ok=True)
        command = [
            sys.executable, "-m", "ops.testing.outside", "--store", str(self._directory / "fx.sqlite"),
            "--port-file", str(port_file), "--port", str(self.port),
        ]  # fmt: skip
        with (self._directory / "fx.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=_ROOT)
        process = self._process
        _wait(
            lambda: port_file.exists() or process.poll() is not None,
            what="the outside world listens",
            details=self.log,
        )
        if not port_file.exists():
            raise OutsideError(f"the outside world did not start:\n{self.log()}")
        self.port = int(port_file.read_text())

    def kill(self) -> None:
        """SIGKILL: connections to it are refused until the next start. Orders are forgotten."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def log(self) -> str:
        return (self._directory / "fx.log").read_text()

    # What it counted

    def calls(self, name: str, kind: str | None = None) -> int:
        """Requests received for exactly this name that asked for something new, or of one kind."""
        counts = self.counts(name)
        by_name = counts["calls"] if kind is None else counts["kinds"].get(kind, {})
        return int(by_name.get(name, 0))

    def effects(self, name: str) -> int:
        """Resources that exist under exactly this name."""
        return int(self.counts(name)["effects"].get(name, 0))

    def made(self, name: str) -> int:
        """Resources that were ever made under exactly this name, undone ones included."""
        return int(self.counts(name)["made"].get(name, 0))

    def lookups(self, name: str) -> int:
        """Look-ups for exactly this name, whatever they were answered."""
        return int(self.counts(name)["lookups"].get(name, 0))

    def deletes(self, name: str) -> int:
        """Requests to undo something of exactly this name, whatever they were answered."""
        return int(self.counts(name)["deletes"].get(name, 0))

    def keys(self, name: str) -> list[str]:
        """The different idempotency keys that came with this name."""
        return list(self.counts(name)["keys"])

    def all_calls(self, prefix: str) -> dict[str, int]:
        """Requests received, by name, of every name that begins so."""
        return dict(self.counts(prefix)["calls"])

    def all_effects(self, prefix: str) -> dict[str, int]:
        """Resources that exist, by name, of every name that begins so."""
        return dict(self.counts(prefix)["effects"])

    def all_made(self, prefix: str) -> dict[str, int]:
        """Resources that were ever made, by name, of every name that begins so."""
        return dict(self.counts(prefix)["made"])

    def counts(self, prefix: str) -> dict[str, Any]:
        """Everything counted, of every name that begins so."""
        return self._ask("GET", f"/counts?name={quote(prefix)}")

    def resources(self, prefix: str) -> list[dict[str, Any]]:
        """What was ever made, in order; nobody counts this look."""
        found: list[dict[str, Any]] = self._ask("GET", f"/ledger/resources?name={quote(prefix)}")[
            "resources"
        ]
        return found

    def requests(self, prefix: str) -> list[dict[str, Any]]:
        """Every request about names that begin so: kind, name, key, digest of the body, at."""
        found: list[dict[str, Any]] = self._ask("GET", f"/ledger/calls?name={quote(prefix)}")[
            "calls"
        ]
        return found

    # Orders for what is to come

    def fault(
        self, name: str, fault: FaultName, *, times: int = 1, on: On = "create", **options: Any
    ) -> None:
        """Treat the next so many requests of this name (``*``: any) like this.

        Options: ``seconds`` (apply_delay, hang, hidden, provisioning), ``connection="cut"`` (apply_delay),
        ``status`` (5xx, refuse, redirect), ``retry_after`` (429; seconds or an HTTP date), ``location``.
        """
        order = {"name": name, "fault": fault, "times": times, "on": on, **options}
        self._ask("POST", "/admin/fault", order)

    def clear_faults(self, name: str = "*") -> None:
        """Take back the faults that have not come yet."""
        self._ask("POST", "/admin/clear", {"name": name})

    def hold(self, name: str, where: Where, *, times: int = 1, on: On = "create") -> None:
        """Keep the next requests of this name waiting before or after their effect."""
        self._ask("POST", "/admin/hold", {"name": name, "where": where, "times": times, "on": on})

    def held(self, name: str) -> int:
        return int(self._ask("GET", f"/held?name={quote(name)}")["held"])

    def wait_held(self, name: str, *, count: int = 1, timeout: float = 20.0) -> None:
        """Wait until so many requests of this name are held."""
        _wait(
            lambda: self.held(name) >= count,
            timeout=timeout,
            what=f"{count} requests for {name} are held",
        )

    def release(self, name: str, *, count: int | None = None) -> int:
        """Let what is held go on, all or the oldest; returns how many requests that were."""
        order = {"name": name, "count": count}
        return int(self._ask("POST", "/admin/release", order)["released"])

    def script(self, name: str, text: str) -> None:
        """From now on the model answers this, and nothing else, for this name."""
        self._ask("POST", "/admin/script", {"name": name, "text": text})

    def behave(
        self, *, page_size: int = 50, key_retention: float | None = None,
        authorization: str | None = None,
    ) -> None:  # fmt: skip
        """How it treats everybody: items on a page, seconds a key is honoured, who is let in."""
        ways = {"page_size": page_size, "key_retention": key_retention}
        self._ask("POST", "/admin/ways", {**ways, "authorization": authorization})

    # What somebody does there by hand

    def make(
        self, name: str, *, key: str | None = None, body: Mapping[str, Any] | None = None
    ) -> str:
        """A resource that nobody asked for over HTTP; its id."""
        order = {"name": name, "key": key, "body": dict(body or {})}
        return str(self._ask("POST", "/admin/make", order)["id"])

    def remove(self, resource_id: str) -> None:
        """Remove one, uncounted."""
        self._ask("POST", "/admin/remove", {"id": resource_id})

    def rename(self, resource_id: str, to: str) -> None:
        """Call it something else; it is counted under its old name, and its key still finds it."""
        self._ask("POST", "/admin/rename", {"id": resource_id, "to": to})

    def forget_keys(self, name: str, *, in_lookups: bool = False) -> None:
        """Honour the keys of this name no longer; with ``in_lookups`` they find nothing either."""
        self._ask("POST", "/admin/forget", {"name": name, "in_lookups": in_lookups})

    def _ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            response = connection.getresponse()
            answer: dict[str, Any] = json.loads(response.read())
        finally:
            connection.close()
        if response.status != 200:
            raise OutsideError(f"{method} {path}: {response.status} {answer}")
        return answer


_ROOT = Path(__file__).parents[3]


def _wait(
    predicate: Callable[[], bool], *, timeout: float = _START_LIMIT, what: str,
    details: Callable[[], str] = lambda: "",
) -> None:  # fmt: skip
    deadline = time.monotonic() + timeout
    while not predicate():
        if time.monotonic() > deadline:
            raise OutsideError(f"not within {timeout} s: {what}\n{details()}".rstrip())
        time.sleep(_PERIOD)
