"""``onward metrics``: what recovery does and costs, for Prometheus or for a look."""

import signal
import threading
from typing import Annotated

import typer

from models.journal import metrics
from ops.cli.output import Json, emit, say
from ops.cli.problems import UsageProblem

app = typer.Typer(no_args_is_help=True, help="What recovery does and costs, from the journal.")
PORT = 9464


@app.command("show")
def show(as_json: Json = False) -> None:
    """Print every figure once."""
    from ops.metrics import render  # noqa: PLC0415 - Prometheus's client, for two commands

    answer = {
        metric.name: [
            {"labels": dict(zip(metric.labels, labels, strict=True)), "value": value}
            for labels, value in metrics.read(metric)
        ]
        for metric in metrics.METRICS
    }
    emit(answer, as_json=as_json, show=lambda: say(render().decode().rstrip()))


@app.command("serve")
def serve(
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one.")] = PORT,
    as_json: Json = False,
) -> None:
    """Answer /metrics in Prometheus format until stopped; alerts when the sweep stands still."""
    from ops.metrics import Server  # noqa: PLC0415

    try:
        server = Server(host, port)
    except OSError as error:
        raise UsageProblem(f"Cannot listen at {host}:{port}: {error.strerror or error}.") from error
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: threading.Thread(target=server.stop).start())
    answer = {"url": f"http://{host}:{server.port}/metrics"}
    emit(answer, as_json=as_json, show=lambda: say(f"Serving {answer['url']}"))
    server.serve()
