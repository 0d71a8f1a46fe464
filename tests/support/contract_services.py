"""The example's outside services as real processes, and a pair of hands to talk to them."""

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]


@dataclass
class Service:
    """One service: start it, kill it, start it again over the same store."""

    module: str
    arguments: tuple[str, ...]
    directory: Path
    port: int = 0
    process: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)

    def start(self) -> "Service":
        """Start on a free port, or on the port it had before."""
        port_file = self.directory / f"{self.module}.port"
        port_file.unlink(missing_ok=True)
        command = [*self.command, "--port", str(self.port), "--port-file", str(port_file)]
        with (self.directory / f"{self.module}.log").open("ab") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
        wait_until(port_file.exists, what=f"{self.module} listens", details=self.log)
        self.port = int(port_file.read_text())
        return self

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", f"examples.contract_review.{self.module}", *self.arguments]

    def kill(self) -> None:
        """SIGKILL."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(timeout=10)

    def log(self) -> str:
        return (self.directory / f"{self.module}.log").read_text()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str) -> Any:
        return self.request("GET", path)[1]

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Any]:
        """Status and decoded answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, path, None if body is None else data, dict(headers or {}))
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()


@contextmanager
def asking(service: Service) -> Iterator[Service]:
    """A started model server for this process's own questions."""
    service.start()
    try:
        yield service
    finally:
        service.kill()


def model_server(directory: Path, *, latency: str = "1-5") -> Service:
    """A model server that answers fast."""
    store = str(directory / "model")
    return Service("model_server", ("--store", store, "--latency", latency), directory)


def registry(directory: Path, *flags: str) -> Service:
    """A registry over a file of ``directory``."""
    return Service("registry", ("--store", str(directory / "registry.sqlite"), *flags), directory)
