"""The recorder inside a process: every client, with and without TLS, and what each fault does to it."""

import http.server
import json
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from models.ids import idempotency_key
from ops.testing.certify.faults import Fault, FaultKind, Request
from ops.testing.certify.records import Notebook, Records
from tests.support.programs import ROOT

CERTIFICATE = ROOT / "tests" / "support" / "localhost.pem"
CLIENTS = ("urllib", "http.client", "requests", "httpx2", "httpx2 async")
TIMEOUT = 5.0  #: seconds; of every client
TOOL_TIMEOUT = 0.1  #: seconds; of the tool that calls
BODY = b'{"amount": 1}'

PROGRAM = """
import asyncio, http.client, json, ssl, sys, time, urllib.request
from pathlib import Path
from urllib.parse import urlsplit
import httpx2
from ops.testing.certify import http_client, httpx_transport
from ops.testing.certify.records import Notebook
from ops.testing.certify.wire import Wire

directory, client, address, certificate, timeout, limit, *runs = sys.argv[1:]
timeout, limit = float(timeout), float(limit)
trusted = ssl.create_default_context(cafile=certificate)

def by_urllib(url, body, headers):
    request = urllib.request.Request(url, body, headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=timeout, context=trusted) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()

def by_http_client(url, body, headers):
    at = urlsplit(url)
    if at.scheme == "https":
        connection = http.client.HTTPSConnection(at.hostname, at.port, timeout=timeout, context=trusted)
    else:
        connection = http.client.HTTPConnection(at.hostname, at.port, timeout=timeout)
    connection.request("POST", at.path, body, headers)
    answer = connection.getresponse()
    return answer.status, answer.read()

def by_requests(url, body, headers):
    import requests
    answer = requests.post(url, data=body, headers=headers, timeout=timeout, verify=certificate)
    return answer.status_code, answer.content

def by_httpx2(url, body, headers):
    with httpx2.Client(timeout=timeout, verify=trusted, trust_env=False) as session:
        answer = session.post(url, content=body, headers=headers)
    return answer.status_code, answer.content

def by_httpx2_async(url, body, headers):
    async def ask():
        async with httpx2.AsyncClient(timeout=timeout, verify=trusted, trust_env=False) as session:
            return await session.post(url, content=body, headers=headers)
    answer = asyncio.run(ask())
    return answer.status_code, answer.content

ask = globals()["by_" + client.replace(" ", "_").replace(".", "_")]
wire = Wire(Notebook(Path(directory)))
http_client.install(wire)
httpx_transport.install(wire)
for run in runs:
    wire.begin_task(run, "pay")
    began = time.monotonic()
    key = f"{run}:pay:till.charge:1"
    try:
        with wire.calling(tool="till.charge", function="execute", key=key, timeout=limit):
            status, body = ask(f"{address}/charges", BODY, {"Idempotency-Key": key})
        told = [status, json.loads(body)]
    except Exception as error:
        told = [type(error).__name__, str(error)]
    wire.end_task()
    print(json.dumps([run, *told, time.monotonic() - began]), flush=True)
""".replace("BODY", repr(BODY))


AT_ONCE = """
import sys, threading, urllib.request
from pathlib import Path
from ops.testing.certify import http_client
from ops.testing.certify.records import Notebook
from ops.testing.certify.wire import Wire

directory, address = sys.argv[1:]
wire = Wire(Notebook(Path(directory)))
http_client.install(wire)
wire.begin_task("run-1", "pay")

def ask(path, key):
    with wire.calling(tool="till.charge", function="execute", key=f"run-1:pay:till.charge:{key}", timeout=9):
        request = urllib.request.Request(address + path, b"{}", {"Idempotency-Key": key}, method="POST")
        urllib.request.urlopen(request, timeout=9).read()
        print("answered", key, flush=True)

slow = threading.Thread(target=ask, args=("/slow", "1"))
slow.start()
while not any(exchange.passed for exchange in wire.notebook.read().of("run-1")):
    pass
ask("/charges", "2")
"""


class Till(http.server.BaseHTTPRequestHandler):
    """Counts what it was asked to charge, by key."""

    charged: list[str]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/slow":
            threading.Event().wait(0.5)
        self.server.charged.append(self.headers["Idempotency-Key"])  # type: ignore[attr-defined]
        body = b'{"id": "c-1"}'
        self.send_response(201)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """The list is the log."""


@contextmanager
def till(*, tls: bool) -> Iterator[tuple[str, list[str]]]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Till)
    server.charged = []  # type: ignore[attr-defined]
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATE)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        scheme = "https" if tls else "http"
        yield f"{scheme}://localhost:{server.server_port}", server.charged  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def notebook(tmp_path: Path) -> Notebook:
    notebook = Notebook(tmp_path / "certify")
    notebook.create()
    return notebook


def play(
    notebook: Notebook, client: str, address: str, *runs: str, timeout: float = TIMEOUT,
    tool_timeout: float = TOOL_TIMEOUT,
) -> tuple[int, dict[str, list[Any]]]:  # fmt: skip
    """One process that asks once for each run; its exit code, and what came back by run."""
    arguments = [str(notebook.directory), client, address, str(CERTIFICATE), str(timeout),
                 str(tool_timeout), *runs]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], cwd=ROOT, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return done.returncode, {line[0]: line[1:] for line in lines}


def order(notebook: Notebook, run: str, kind: FaultKind, address: str) -> None:
    host = address.partition("://")[2]
    request = Request("POST", host, 0, "/charges")
    notebook.schedule(run, Fault(kind, "pay", "pay:till.charge:1", request))


def statuses(records: Records, run: str) -> list[int | None]:
    return [exchange.status for exchange in records.of(run)]


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
@pytest.mark.parametrize("client", CLIENTS)
def test_a_request_is_recorded_whoever_sends_it(
    notebook: Notebook, client: str, *, tls: bool
) -> None:
    if client == "requests":
        pytest.importorskip("requests")
    with till(tls=tls) as (address, charged):
        _, told = play(notebook, client, address, "run-1")
    assert told["run-1"][:2] == [201, {"id": "c-1"}]
    assert charged == ["run-1:pay:till.charge:1"]
    (exchange,) = notebook.read().of("run-1")
    assert exchange.method == "POST"
    assert exchange.host + exchange.path == address.partition("://")[2] + "/charges"
    assert (exchange.step_key, exchange.effect) == ("pay", "pay:till.charge:1")
    assert (exchange.tool, exchange.via) == ("till.charge", "execute")
    assert exchange.carries_effect_key
    assert exchange.passed
    assert exchange.applied
    assert not notebook.read().unseen("run-1")


@pytest.mark.parametrize("client", CLIENTS)
def test_what_a_fault_makes_of_an_answer(notebook: Notebook, client: str) -> None:
    if client == "requests":
        pytest.importorskip("requests")
    runs = {"drop": FaultKind.DROP, "500": FaultKind.ERROR, "delay": FaultKind.DELAY}
    with till(tls=True) as (address, charged):
        for run, kind in runs.items():
            order(notebook, run, kind, address)
        _, told = play(notebook, client, address, *runs, "none", tool_timeout=60)
    assert len(charged) == len(runs) + 1, (
        "each was applied once, and none was kept from the service"
    )
    records = notebook.read()
    assert all(statuses(records, run) == [201] for run in (*runs, "none"))
    assert records.fired == set(runs)
    assert told["none"][0] == 201
    assert told["500"][:2] == [500, {"error": "injected by certify"}]
    assert "onnect" in told["drop"][0] or "Protocol" in told["drop"][0]
    assert "ime" in told["delay"][0]  # ReadTimeout, TimeoutError, ...
    assert told["delay"][2] < TIMEOUT, "nobody waits for a time-out that can be told at once"


def test_a_delay_outlasts_the_tools_own_time_out_when_the_client_would_wait_longer(
    notebook: Notebook,
) -> None:
    with till(tls=False) as (address, charged):
        order(notebook, "late", FaultKind.DELAY, address)
        _, told = play(notebook, "urllib", address, "late")
    status, _, seconds = told["late"]
    assert (status, len(charged)) == (201, 1)
    assert seconds > TOOL_TIMEOUT


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("kind", [FaultKind.P2, FaultKind.P3])
def test_a_kill_on_the_wire(notebook: Notebook, client: str, kind: FaultKind) -> None:
    if client == "requests":
        pytest.importorskip("requests")
    with till(tls=False) as (address, charged):
        order(notebook, "run-1", kind, address)
        code, told = play(notebook, client, address, "run-1")
        again, _ = play(notebook, client, address, "run-1")
    applied = kind is FaultKind.P3
    assert (code, told) == (-signal.SIGKILL, {})
    assert again == 0, "a fault happens once"
    assert len(charged) == 1 + applied
    first, second = notebook.read().of("run-1")
    assert (first.passed, first.applied) == (applied, applied), "what was written survives"
    assert second.applied


def test_a_process_that_is_killed_knows_first_what_became_of_its_other_requests(
    notebook: Notebook,
) -> None:
    with till(tls=False) as (address, charged):
        host = address.partition("://")[2]
        request = Request("POST", host, 0, "/charges")
        notebook.schedule("run-1", Fault(FaultKind.P2, "pay", "pay:till.charge:2", request))
        done = subprocess.run(
            [sys.executable, "-c", AT_ONCE, str(notebook.directory), address], cwd=ROOT,
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert (charged, done.stdout) == (["1"], ""), (
        "applied, recorded, and nobody acted on the answer"
    )
    found = {exchange.effect: exchange for exchange in notebook.read().of("run-1")}
    assert found["pay:till.charge:1"].applied
    assert not found["pay:till.charge:2"].passed


def test_an_effects_key_begins_with_its_run() -> None:
    key = idempotency_key("run-1", "pay", "till.charge", 1)
    assert key == "run-1:pay:till.charge:1", (
        "the recorder takes the run's id from the key's beginning"
    )
