"""Real servers that nobody here wrote, each a process out of the environment that ``make peers`` makes."""

import json
import os
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-peers" / "bin" / "python"
SERVERS = ROOT / "tests" / "peers" / "servers"
START_TIMEOUT = 30.0  #: seconds; they take one


@dataclass(frozen=True)
class LlmMock:
    """A running llmock: a provider's quotas, faults and words, and a journal of all requests."""

    url: str

    @property
    def openai(self) -> str:
        """The base address of its OpenAI side."""
        return f"{self.url}/v1"

    def script(self, *behaviors: dict[str, Any]) -> None:
        """Let coming requests meet these, the first that fits of each kind."""
        self._ask("POST", "scenario", {"behaviors": list(behaviors)})

    def reset(self) -> None:
        """Forget requests and behaviours."""
        self._ask("POST", "reset")

    def requests(self) -> list[dict[str, Any]]:
        """Every request that reached it, oldest first."""
        found: list[dict[str, Any]] = self._ask("GET", "requests")["requests"]
        return found

    def verdict(self) -> dict[str, Any]:
        """What it says of how its clients coped."""
        return self._ask("GET", "verdict")

    def _ask(self, method: str, what: str, body: object = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/_llmock/{what}", data, method=method)  # noqa: S310
        with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310
            answer: dict[str, Any] = json.loads(response.read())
            return answer


@contextmanager
def llmock(directory: Path, *options: str) -> Iterator[LlmMock]:
    """llmock with these options of ``llmock serve``."""
    port = _free_port()
    command = [
        *_module("llmock.cli:app"), "serve", "--host", "127.0.0.1", "--port", str(port), *options,
    ]  # fmt: skip
    with _serving(command, directory / "llmock.log", f"http://127.0.0.1:{port}/health"):
        yield LlmMock(f"http://127.0.0.1:{port}")


@contextmanager
def llama(directory: Path) -> Iterator[str]:
    """The server of llama.cpp over a tiny random model; its OpenAI base address."""
    model = directory / "tiny.gguf"
    _python()
    subprocess.run([str(PYTHON), str(SERVERS / "tiny_model.py"), str(model)], check=True)
    port = _free_port()
    command = [str(PYTHON), str(SERVERS / "llama.py"), str(model), str(port)]
    with _serving(command, directory / "llama.log", f"http://127.0.0.1:{port}/health"):
        yield f"http://127.0.0.1:{port}/v1"


def _module(entry: str) -> list[str]:
    """A console script's command, wherever the environment has been moved to."""
    module, _, name = entry.partition(":")
    return [str(_python()), "-c", f"from {module} import {name}; {name}()"]


def _python() -> Path:
    if not PYTHON.exists():
        if os.environ.get("ONWARD_PEERS") == "required":
            pytest.fail(f"{PYTHON} is missing")
        pytest.skip("there is no .venv-peers; `make peers` makes it")
    return PYTHON


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def _serving(command: list[str], log: Path, health: str) -> Iterator[None]:
    with (
        log.open("ab") as output,
        subprocess.Popen(command, stdout=output, stderr=output) as server,
    ):
        try:
            wait_until(
                lambda: server.poll() is not None or _answers(health), timeout=START_TIMEOUT,
                what=f"{health} answers", details=log.read_text,
            )  # fmt: skip
            assert server.poll() is None, log.read_text()
            yield
        finally:
            server.kill()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:  # noqa: S310
            return bool(response.status == 200)
    except OSError:
        return False
