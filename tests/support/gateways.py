"""Gateways: a ledger in hand, and one in a process of its own that acts once for each key it reads.

Every line of that one's output is ``["done", answer]`` or ``["refused", error_type]``.
"""

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from sqlalchemy import Engine, create_engine, select

from tasks.toolkit.gateway import GatewayLedger, GatewayRefusal, digest_of
from tests.support.programs import ROOT

LEASE = 0.6  #: seconds


def a_ledger(engine: Engine, *, lifetime: float | None = None) -> GatewayLedger:
    return GatewayLedger(
        engine,
        lease=timedelta(seconds=LEASE),
        max_request_lifetime=None if lifetime is None else timedelta(seconds=lifetime),
    )


def row(ledger: GatewayLedger, engine: Engine, key: str) -> dict[str, Any]:
    with engine.connect() as connection:
        query = select(ledger.table).where(ledger.table.c.key == key)
        return dict(connection.execute(query).mappings().one())


def never() -> Any:
    raise AssertionError("this must not be done")


def refusal(ledger: GatewayLedger, key: str, wanted: type[GatewayRefusal]) -> GatewayRefusal | None:
    """The refusal of a key, when it is of this kind; it is never acted on."""
    try:
        ledger.once(key, digest_of(key), act=never)
    except GatewayRefusal as error:
        return error if isinstance(error, wanted) else None
    raise AssertionError(f"{key} was answered")


class Gateway:
    """The test's end of one."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.pid = process.pid

    def ask(self, *keys: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("".join(f"{key}\n" for key in keys))
        self._process.stdin.flush()

    def answers(self, count: int) -> list[list[str]]:
        assert self._process.stdout is not None
        return [json.loads(self._process.stdout.readline()) for _ in range(count)]

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait()


@contextmanager
def a_gateway(database_url: str, port: int, lease: float) -> Iterator[Gateway]:
    """One that listens."""
    command = [
        sys.executable,
        "-m",
        "tests.support.gateways",
        database_url,
        str(port),
        str(lease),
    ]
    with subprocess.Popen(
        command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            gateway = Gateway(process)
            assert gateway.answers(1) == [["ready"]]
            yield gateway
        finally:
            process.kill()


def pay(port: int, name: str) -> str:
    """What nobody can be asked about afterwards, and no key protects."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=90)
    try:
        connection.request("POST", f"/plain/{name}", json.dumps({"name": name}))
        answer: dict[str, Any] = json.loads(connection.getresponse().read())
        return str(answer["id"])
    finally:
        connection.close()


def _serve(database_url: str, port: int, lease: float) -> None:
    engine = create_engine(database_url)
    ledger = GatewayLedger(engine, lease=timedelta(seconds=lease))
    with engine.connect():
        _say("ready")
    for line in sys.stdin:
        key = line.strip()
        try:
            _say("done", ledger.once(key, digest_of(key), act=lambda: pay(port, key)))  # noqa: B023 - called at once
        except GatewayRefusal as error:
            _say("refused", error.error_type)


def _say(*words: str) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
