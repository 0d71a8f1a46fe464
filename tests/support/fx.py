"""The test's end of the outside world: start it, hold its requests, read what it counted."""

import http.client
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import quote

from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
Where = Literal["before", "after"]


class Fx:
    """One running service of ``fx_server``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        port_file = self._directory / "fx.port"
        store = self._directory / "fx.sqlite"
        command = [sys.executable, "-m", "tests.support.fx_server", "--store", str(store)]
        with (self._directory / "fx.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--port-file", str(port_file)], cwd=ROOT, stdout=log, stderr=log
            )
        wait_until(port_file.exists, what="the outside world listens", details=self.log)
        self.port = int(port_file.read_text())
        return self

    def __exit__(self, *_exc: object) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def log(self) -> str:
        return (self._directory / "fx.log").read_text()

    def calls(self, name: str) -> int:
        """Requests received for exactly this name."""
        return int(self._counts(name)["calls"].get(name, 0))

    def effects(self, name: str) -> int:
        """Resources that exist under exactly this name."""
        return int(self._counts(name)["effects"].get(name, 0))

    def keys(self, name: str) -> list[str]:
        """The different idempotency keys that came with this name."""
        return list(self._counts(name)["keys"])

    def all_calls(self, prefix: str) -> dict[str, int]:
        """Requests received, by name, of every name that begins so."""
        return dict(self._counts(prefix)["calls"])

    def all_effects(self, prefix: str) -> dict[str, int]:
        """Resources that exist, by name, of every name that begins so."""
        return dict(self._counts(prefix)["effects"])

    def hold(self, name: str, where: Where, *, times: int = 1) -> None:
        """Keep the next requests of this name waiting before or after their effect."""
        self._ask("POST", "/admin/hold", {"name": name, "where": where, "times": times})

    def held(self, name: str) -> int:
        return int(self._ask("GET", f"/held?name={quote(name)}")["held"])

    def wait_held(self, name: str, *, count: int = 1, timeout: float = 20.0) -> None:
        """Wait until so many requests of this name are held."""
        wait_until(
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

    def _counts(self, prefix: str) -> dict[str, Any]:
        return self._ask("GET", f"/counts?name={quote(prefix)}")

    def _ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            answer: dict[str, Any] = json.loads(connection.getresponse().read())
            return answer
        finally:
            connection.close()
