"""``onward doctor``, ``health``, ``workers`` and ``sweep``: is the deployment well?"""

from typing import Annotated

import typer

from models.journal import overview
from models.journal.overview import WorkerView
from models.settings import settings
from ops import client, doctor, schema
from ops.cli.output import Json, emit, say, table
from ops.cli.problems import UsageProblem
from ops.doctor import Check, Verdict
from recovery import watch
from recovery.sweep import sweep_once

_RECENT = 3600.0  #: seconds; a worker silent for longer is history


def health(as_json: Json = False) -> None:
    """Exit code 1 when recovery is not alive: the last complete sweep is too old."""
    healthy, sentence = watch.sweep_health()
    emit({"healthy": healthy, "sentence": sentence}, as_json=as_json, show=lambda: say(sentence))
    if not healthy:
        raise typer.Exit(1)


def sweep(
    once: Annotated[bool, typer.Option("--once", help="One complete pass, here and now.")] = False,
    as_json: Json = False,
) -> None:
    """Find what does not move and get it going. Beat does this every few seconds."""
    if not once:
        raise UsageProblem(
            "Say --once: the periodic sweep is beat's, on the control worker's queue."
        )
    schema.require()
    swept = sweep_once(client.app())
    told = (
        f"Swept: {swept}." if swept else "Another process is sweeping right now; nothing was done."
    )
    emit({"swept": swept}, as_json=as_json, show=lambda: say(told))


def workers(
    everything: Annotated[bool, typer.Option("--all", help="Also those long gone.")] = False,
    as_json: Json = False,
) -> None:
    """Who works, for which queues, and who has fallen silent."""
    schema.require()
    found = overview.list_workers(silent_before=None if everything else _RECENT)
    answer = [{"state": _state(worker), **_as_dict(worker)} for worker in found]
    emit(answer, as_json=as_json, show=lambda: _show_workers(found))


def examine(as_json: Json = False) -> None:
    """Check everything that often goes wrong. Exit code 1 when something must be changed."""
    checks = doctor.examine()
    emit(checks, as_json=as_json, show=lambda: _show_checks(checks))
    if any(check.verdict is Verdict.FAIL for check in checks):
        raise typer.Exit(1)


def _state(worker: WorkerView) -> str:
    if worker.stopped:
        return "stopped"
    return "alive" if worker.seen_ago < 4 * settings().heartbeat else "silent"


def _as_dict(worker: WorkerView) -> dict[str, object]:
    names = ("name", "host", "pid", "queues", "concurrency", "started_at", "seen_ago", "holding")
    return {name: getattr(worker, name) for name in names}


def _show_workers(found: list[WorkerView]) -> None:
    columns = ("worker", "state", "pid", "slots", "holds", "seen", "queues")
    table(columns, (
        (worker.name, _state(worker), worker.pid, worker.concurrency, worker.holding or "",
         f"{worker.seen_ago:.0f} s ago", ", ".join(worker.queues))
        for worker in found
    ))  # fmt: skip


def _show_checks(checks: list[Check]) -> None:
    table(("check", "", "what was found"), (
        (check.name, check.verdict.value, f"{check.sentence} {check.advice}".strip()) for check in checks
    ))  # fmt: skip
