"""``onward submit``, ``result``, ``steps`` and ``history``: what the journal takes and gives."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from models.journal import history
from models.journal.history import StepView
from models.journal.stories import Happening
from ops import client, schema
from ops.cli.asking import RunArgument, find_run
from ops.cli.output import Json, emit, say, seconds_between, table
from ops.cli.problems import UsageProblem
from tasks import registry

_SHOWN = 160  #: characters of a detail in a table; ``--json`` has all


def submit(
    workflow: Annotated[str, typer.Argument(help="Name of a workflow of ONWARD_AGENTS.")],
    *,
    given: Annotated[
        str, typer.Option("--input", help="A JSON object, @FILE, or - for standard input.")
    ] = "{}",
    key: Annotated[
        str | None, typer.Option(help="Your own key: the same key and input are the same run.")
    ] = None,
    batch: Annotated[str | None, typer.Option(help="Batch the run belongs to.")] = None,
    priority: Annotated[int, typer.Option(help="Higher goes first.")] = 0,
    budget: Annotated[
        str | None, typer.Option(metavar="JSON", help='What it may spend: {"cost": "5.00"}.')
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the run is over.")] = False,
    timeout: Annotated[float | None, typer.Option(help="Seconds to wait.")] = None,
    as_json: Json = False,
) -> None:
    """Submit a run."""
    values = read_input(given)
    allowed = None if budget is None else read_input(budget, option="--budget")
    schema.require()
    registry.load_agents()
    run = client.submit(
        workflow, values, key=key, batch_id=batch, priority=priority, budget=allowed
    )
    if wait:
        client.wait(run, timeout)
        _give_result(run.run_id, as_json=as_json)
        return
    told = f"{run.run_id} {'submitted' if run.created else 'was submitted before'}"
    emit(
        {"run_id": run.run_id, "created": run.created},
        as_json=as_json,
        show=lambda: say(f"{told}."),
    )


def result(
    run: RunArgument,
    wait: Annotated[float, typer.Option(help="Seconds to wait for it.")] = 0.0,
    as_json: Json = False,
) -> None:
    """The recorded result of a run, as JSON."""
    run_id = find_run(run)
    client.wait(run_id, wait)
    _give_result(run_id, as_json=as_json)


def steps(run: RunArgument, as_json: Json = False) -> None:
    """The steps of a run, each with the one state that counts."""
    found = history.list_steps(find_run(run))
    emit(found, as_json=as_json, show=lambda: _show_steps(found))


def show_history(run: RunArgument, as_json: Json = False) -> None:
    """Claims, results, losses, effects and events of a run in the order of time."""
    found = history.timeline(find_run(run))
    emit(found, as_json=as_json, show=lambda: _show_history(found))


def read_input(given: str, *, option: str = "--input") -> dict[str, Any]:
    """The run's input from an option: JSON itself, a file's, or standard input's."""
    text, source = _read(given, option)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageProblem(f"{source} is not JSON: {error}.") from None
    if not isinstance(value, dict):
        raise UsageProblem(
            f"{source} must be a JSON object by parameter name, such as "
            '{"uri": "file:///tmp/a.pdf"}, and is '
            f"{'null' if value is None else 'a ' + type(value).__name__}."
        )
    return value


def _read(given: str, option: str) -> tuple[str, str]:
    if given == "-":
        return sys.stdin.read(), "standard input"
    if not given.startswith("@"):
        return given, option
    try:
        return Path(given[1:]).read_text(encoding="utf-8"), given[1:]
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageProblem(f"{given[1:]} cannot be read: {reason}.") from None


def _give_result(run_id: str, *, as_json: bool) -> None:
    """The journal's own JSON: lossless, and plain JSON for plain data."""
    recorded = client.recorded(run_id)
    value = json.loads(recorded.output or "null")
    answer = {"run_id": run_id, "state": recorded.state, "result": value}

    def show_value() -> None:
        sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")

    emit(answer, as_json=as_json, show=show_value)


def _show_steps(found: list[StepView]) -> None:
    columns = ("step", "kind", "state", "attempt", "worker", "took", "note")
    table(columns, (
        (step.step_key, step.kind, step.state.replace("_", " "), step.attempt or "", step.worker,
         seconds_between(step.started_at, step.finished_at), _note_of(step))
        for step in found
    ))  # fmt: skip


def _note_of(step: StepView) -> str:
    if step.block_reason or step.error:
        return _short(f"{step.block_reason or step.error_type}: {step.error}")
    if step.state == "running" and step.progress_done is not None:
        total = f"/{step.progress_total:g}" if step.progress_total else ""
        return f"{step.progress_done:g}{total} {step.progress_note or ''}".strip()
    return f"added by {step.inserted_by}" if step.inserted_by else ""


def _show_history(found: list[Happening]) -> None:
    columns = ("at", "what", "step", "attempt", "token", "worker", "detail")
    table(columns, (
        (f"{one.at:%Y-%m-%d %H:%M:%S}.{one.at.microsecond // 1000:03}", one.kind, one.step_key, one.attempt,
         one.token, one.worker or one.actor, _short(_named(one)))
        for one in found
    ))  # fmt: skip


def _named(one: Happening) -> str:
    """An effect's line with what its key adds to the run's own id."""
    return one.detail if one.effect is None else f"{one.effect.partition(':')[2]}: {one.detail}"


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
