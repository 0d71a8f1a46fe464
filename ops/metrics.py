"""The journal's figures in Prometheus format, and the one watcher that lives when recovery does not.

``onward metrics serve`` answers ``/metrics`` and ``/health``. A scrape reads the journal; within
``FRESH`` seconds it is answered with what the last one read, so that two scrapers cost as much as one.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from models import database
from models.journal import metrics
from models.journal.errors import JournalError
from models.journal.metrics import Metric
from recovery import watch
from recovery.alerts import StaleSweep

FRESH = 5.0  #: seconds
SILENCE = 30.0  #: seconds that a scraper may take to say what it wants
LOOK_PERIOD = 5.0  #: seconds between two looks at the age of the sweep
UP = "onward_up"
STUCK = "onward_stuck_runs"

Family = CounterMetricFamily | GaugeMetricFamily


class JournalCollector(Collector):
    """Reads every metric at each collection; without a journal only ``onward_up 0`` is left."""

    def collect(self) -> Iterator[Family]:
        """All families that the journal can give now."""
        try:
            found = [*_families()]
            up = 1.0
        except JournalError:
            found, up = [], 0.0
        finally:
            database.close()
        yield GaugeMetricFamily(UP, "Whether the journal answered.", value=up)
        yield from found


def render() -> bytes:
    """One exposition, read now."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(JournalCollector())
    return generate_latest(registry)


class Server:
    """Serves the exposition, and alerts when the sweep stands still."""

    def __init__(self, host: str, port: int) -> None:
        self._read_at = float("-inf")
        self._text = b""
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._http = make_server(host, port, self._answer, _Threaded, _Quiet)
        self.port: int = self._http.server_port

    def serve(self) -> None:
        """Answer until ``stop``."""
        watcher = threading.Thread(target=self._watch, name="onward-sweep-age", daemon=True)
        watcher.start()
        self._http.serve_forever()
        self._http.server_close()

    def stop(self) -> None:
        """End ``serve``; called from another thread."""
        self._stopping.set()
        self._http.shutdown()

    def _answer(
        self, environ: dict[str, Any], start: Callable[[str, list[tuple[str, str]]], object]
    ) -> Iterable[bytes]:
        match environ.get("PATH_INFO"):
            case "/metrics":
                start("200 OK", [("Content-Type", CONTENT_TYPE_LATEST)])
                return [self._fresh()]
            case "/health":
                start("200 OK", [("Content-Type", "text/plain")])
                return [b"serving\n"]
            case _:
                start("404 Not Found", [("Content-Type", "text/plain")])
                return [b"/metrics or /health\n"]

    def _fresh(self) -> bytes:
        with self._lock:
            if time.monotonic() - self._read_at > FRESH:
                self._text = render()
                self._read_at = time.monotonic()
            return self._text

    def _watch(self) -> None:
        sweep = StaleSweep()
        while not self._stopping.wait(LOOK_PERIOD):
            try:
                sweep.look()
            except JournalError:
                continue  # `onward_up 0` says so; who can be asked about a sweep is gone as well
            finally:
                database.close()


class _Threaded(ThreadingMixIn, WSGIServer):
    """A thread for each scrape: one who connects and says nothing keeps nobody else waiting."""

    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    timeout = SILENCE

    def handle(self) -> None:
        """Answer, or hang up on who never asks."""
        with suppress(TimeoutError):
            super().handle()

    def log_message(self, *_: Any) -> None:
        """A scrape every few seconds is no news."""


def _families() -> Iterator[Family]:
    for metric in metrics.METRICS:
        yield _family(metric)
    stuck = GaugeMetricFamily(
        STUCK, "Runs that nothing but a person or a new worker gets going, by reason.", labels=["reason"]
    )  # fmt: skip
    for reason, count in sorted(Counter(one.word for one in watch.stuck_runs().values()).items()):
        stuck.add_metric([reason], count)
    yield stuck


def _family(metric: Metric) -> Family:
    made = (CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily)(
        metric.name, metric.help, labels=list(metric.labels)
    )
    for labels, value in metrics.read(metric):
        made.add_metric(list(labels), value)
    return made
