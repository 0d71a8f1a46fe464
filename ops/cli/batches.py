"""``onward batch``: runs submitted together, seen and helped together."""

import time
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from models.journal import history, overview
from models.journal.overview import BatchView
from ops import budgets, resuming
from ops.budgets import Report
from ops.cli.asking import BatchArgument, By, DryRun, Yes, actor, confirm, find_batch
from ops.cli.output import Json, console, emit, facts, note, say
from ops.resuming import BatchPreview, Resumed

app = typer.Typer(no_args_is_help=True, help="Look at batches and act on them.")

_LOOK_PERIOD = 0.5  #: seconds between two looks at a batch that is watched
_SHOWN = 20


@app.command("show", hidden=True)
@app.command("status")
def status(batch: BatchArgument, as_json: Json = False) -> None:
    """How far a batch is: ``136/137, completed_with_errors``."""
    found = overview.get_batch(find_batch(batch))
    budget = budgets.of(found.batch_id)
    answer = {**as_dict(found), "budget": budget.as_dict()}
    emit(answer, as_json=as_json, show=lambda: _show_status(found, budget))


@app.command("watch")
def watch(
    batch: BatchArgument,
    timeout: Annotated[float | None, typer.Option(help="Seconds to watch at most.")] = None,
    as_json: Json = False,
) -> None:
    """Show a batch's progress until nothing of it moves. Exit code 1 unless every run completed."""
    batch_id = find_batch(batch)
    deadline = None if timeout is None else time.monotonic() + timeout
    with progress() as shown:
        row = shown.add_task(batch_id, total=None)
        while True:
            found = overview.get_batch(batch_id)
            shown.update(
                row, total=found.total, completed=found.completed, description=str(found.state)
            )
            if not found.moving or (deadline is not None and time.monotonic() > deadline):
                break
            time.sleep(_LOOK_PERIOD)
    emit(as_dict(found), as_json=as_json, show=lambda: _show_status(found))
    if found.completed != found.total:
        raise typer.Exit(1)


@app.command("recover")
def recover(
    batch: BatchArgument, *, by: By = None, yes: Yes = False, dry_run: DryRun = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Take over what lost its owner, and let the blocked runs of a batch go on."""
    plan = resuming.preview_recovery(find_batch(batch))
    _act(plan, "recover", by=by, yes=yes, dry_run=dry_run, as_json=as_json)


@app.command("retry-failed")
def retry_failed(
    batch: BatchArgument, *, by: By = None, yes: Yes = False, dry_run: DryRun = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Try the failed runs of a batch again from their last completed steps, and touch nothing else."""
    plan = resuming.preview_retry(find_batch(batch))
    _act(plan, "retry", by=by, yes=yes, dry_run=dry_run, as_json=as_json)


def progress() -> Progress:
    """A bar on stderr; nothing where that is not a terminal."""
    screen = console(error=True)
    return Progress(
        TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(),
        TimeElapsedColumn(), console=screen, disable=not screen.is_terminal,
    )  # fmt: skip


def as_dict(found: BatchView) -> dict[str, object]:
    """A batch for ``--json``."""
    return {
        "batch_id": found.batch_id, "label": found.label, "created_at": found.created_at,
        "state": found.state, "completed": found.completed, "total": found.total,
        "runs": dict(found.counts), "summary": str(found),
    }  # fmt: skip


def _act(
    plan: BatchPreview, verb: str, *, by: str | None, yes: bool, dry_run: bool, as_json: bool
) -> None:
    if not as_json:
        _show_preview(plan, verb)
    done = Resumed()
    if not dry_run:
        if stopped := len(plan.again) + (len(plan.asked) if verb == "recover" else 0):
            question = f"Let {stopped} runs go on?"
            confirm(question, yes=yes, as_json=as_json)
        act = resuming.recover_batch if verb == "recover" else resuming.retry_batch
        done = act(plan, by=actor(by))
    answer = {"preview": plan, "sent_back": done.sent_back, "refused": done.refused}
    emit(answer, as_json=as_json, show=lambda: _show_done(done, dry_run=dry_run))


def _show_status(found: BatchView, budget: Report | None = None) -> None:
    say(str(found))
    facts((
        ("batch", found.batch_id), ("label", found.label if found.label != found.batch_id else None),
        *((state, count) for state, count in sorted(found.counts.items())),
        *(budget.facts() if budget else ()),
    ))  # fmt: skip
    for run in _unwell(found.batch_id):
        say(run)


def _unwell(batch_id: str) -> list[str]:
    """The runs of a batch that a person may want to look at, with their reasons."""
    told = []
    for state in ("blocked", "failed"):
        for run in history.list_runs(batch_id=batch_id, state=state, limit=_SHOWN):
            told.append(f"{run.run_id} {run.state}: {run.detail or run.reason}")
    return told


def _show_preview(plan: BatchPreview, verb: str) -> None:
    facts((
        ("batch", plan.batch_id),
        ("reused", f"{len(plan.reused)} completed runs; {plan.steps_reused} completed steps in all runs"),
        (f"go on ({verb})", _some(plan.again)), ("asked first", _some(plan.asked)),
        ("under way", f"{len(plan.moving)} runs; steps without a live owner are taken over by the sweep"),
        ("left stopped", f"{len(plan.left)} runs"),
    ))  # fmt: skip
    for step in plan.unseen[:_SHOWN]:
        say(f"  repeats {step} (untracked: look yourself what it did)")
    if len(plan.unseen) > _SHOWN:
        say(f"  and {len(plan.unseen) - _SHOWN} more untracked steps")
    for question in plan.questions[:_SHOWN]:
        say(f"  asks {question}")
    for reason in plan.left[:_SHOWN]:
        say(f"  {reason}")


def _show_done(done: Resumed, *, dry_run: bool) -> None:
    if dry_run:
        say("Nothing was done (--dry-run).")
        return
    for run_id, keys in done.sent_back.items():
        say(f"{run_id} goes on with {', '.join(keys)}.")
    for reason in done.refused.values():
        note(reason)
    if not done.sent_back:
        say("No run was stopped.")


def _some(ids: tuple[str, ...]) -> str:
    if not ids:
        return "nothing"
    shown = ", ".join(ids[:_SHOWN])
    return f"{len(ids)} runs: {shown}{' ...' if len(ids) > _SHOWN else ''}"
