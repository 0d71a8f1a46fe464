"""``onward runs``: looking at runs, and acting on them by name."""

from typing import Annotated

import typer

from models.journal import history
from models.journal.history import RunView
from models.states import RunState
from ops import client, resuming, schema
from ops.cli.asking import By, DryRun, RunArgument, Yes, actor, confirm, find_run
from ops.cli.output import Json, emit, facts, note, say, table
from ops.resuming import Preview
from recovery import watch
from recovery.verify import verify

app = typer.Typer(no_args_is_help=True, help="Look at runs and act on them.")


@app.command("list")
def list_runs(
    state: Annotated[RunState | None, typer.Option(help="Only runs in this state.")] = None,
    workflow: Annotated[str | None, typer.Option(help="Only runs of this workflow.")] = None,
    batch: Annotated[str | None, typer.Option(help="Only runs of this batch.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000)] = 50,
    as_json: Json = False,
) -> None:
    """The newest runs."""
    schema.require()
    found = history.list_runs(state=state, workflow=workflow, batch_id=batch, limit=limit)
    emit(found, as_json=as_json, show=lambda: _list(found, limit))


@app.command("show")
def show(run: RunArgument, as_json: Json = False) -> None:
    """One run, and in one line why it does not move."""
    run_id = find_run(run)
    found, why = history.get_run(run_id), watch.why(run_id)
    answer = {"run": found, "why": why.word, "why_sentence": why.sentence, "stuck": why.stuck}
    emit(answer, as_json=as_json, show=lambda: _show(found, why.sentence))


@app.command("resume")
def resume(
    run: RunArgument, by: By = None, yes: Yes = False, dry_run: DryRun = False, as_json: Json = False
) -> None:  # fmt: skip
    """Let a blocked or failed run go on from its last completed steps."""
    run_id = find_run(run)
    plan = resuming.preview(run_id)
    if not as_json:
        _show_preview(plan)
    sent_back = []
    if not dry_run:
        if plan.acts:
            confirm("Go on with this run?", yes=yes, as_json=as_json)
        sent_back = resuming.resume(run_id, by=actor(by))
    answer = {"preview": plan, "sent_back": sent_back}
    emit(answer, as_json=as_json, show=lambda: _show_sent_back(sent_back, dry_run=dry_run))


@app.command("retry")
def retry(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Runs' ids or keys.")],
    by: By = None,
    as_json: Json = False,
) -> None:
    """Try the failed or blocked steps of these runs again, at once. Exit code 1 when one is refused."""
    done = resuming.retry_runs([find_run(run) for run in runs], by=actor(by))

    def show_done() -> None:
        for run_id, keys in done.sent_back.items():
            say(f"{run_id}: tries {', '.join(keys)} again.")
        for reason in done.refused.values():
            note(f"onward: {reason}")

    emit(done, as_json=as_json, show=show_done)
    if done.refused:
        raise typer.Exit(1)


@app.command("cancel")
def cancel(
    run: RunArgument,
    reason: Annotated[str, typer.Option(help="Why, for the history.")] = "no reason given",
    by: By = None,
    as_json: Json = False,
) -> None:
    """Stop a run for good. Steps in the air end first; completed ones stay."""
    run_id = find_run(run)
    done = client.cancel(run_id, by=actor(by), reason=reason)
    told = (
        f"Run {run_id} is being cancelled ({done.cancellation_id})."
        if done.first
        else f"Run {run_id} was cancelled before by {done.cancelled_by}: {done.reason} ({done.cancellation_id})."
    )
    emit(done, as_json=as_json, show=lambda: say(told))


@app.command("verify")
def verify_run(run: RunArgument, as_json: Json = False) -> None:
    """Hold everything recorded of a run against itself. Exit code 1 when something does not hold."""
    run_id = find_run(run)
    findings = verify(run_id)

    def show_findings() -> None:
        for finding in findings:
            say(str(finding))
        say(f"{run_id}: {len(findings) or 'no'} findings.")

    answer = {"run_id": run_id, "verified": not findings, "findings": findings}
    emit(answer, as_json=as_json, show=show_findings)
    if findings:
        raise typer.Exit(1)


def _list(found: list[RunView], limit: int) -> None:
    columns = ("run", "workflow", "state", "steps", "reason", "batch", "key", "created")
    table(columns, (
        (run.run_id, f"{run.workflow}@{run.version}", run.state, f"{run.completed_steps}/{run.step_count}",
         run.reason, run.batch_id, run.submission_key, run.created_at)
        for run in found
    ))  # fmt: skip
    if len(found) == limit:
        note(f"The newest {limit} runs; --limit shows more.")


def _show(run: RunView, why: str) -> None:
    cancelled = f"by {run.cancelled_by}: {run.cancel_reason}" if run.cancelled_by else None
    facts((
        ("run", run.run_id), ("why", why), ("state", run.state),
        ("workflow", f"{run.workflow} version {run.version}"),
        ("steps", f"{run.completed_steps} of {run.step_count} completed"), ("reason", run.reason),
        ("detail", run.detail), ("cancelled", cancelled), ("batch", run.batch_id),
        ("key", run.submission_key), ("priority", run.priority or None),
        ("duplicates dropped", run.duplicates or None), ("submitted", run.created_at),
        ("started", run.started_at), ("finished", run.finished_at),
    ))  # fmt: skip


def _show_preview(plan: Preview) -> None:
    facts((
        ("run", f"{plan.run_id} ({plan.state})"), ("reused", _keys(plan.reused)),
        ("run again", _keys(plan.again)), ("asked first", _keys(plan.asked)),
        ("under way", _keys(plan.moving)), ("left stopped", _keys(plan.left)),
        ("not reached yet", f"{plan.ahead} steps"),
    ))  # fmt: skip


def _show_sent_back(keys: list[str], *, dry_run: bool) -> None:
    say("Nothing was done (--dry-run)." if dry_run else f"Goes on with {', '.join(keys)}.")


def _keys(keys: tuple[str, ...], limit: int = 12) -> str:
    shown = ", ".join(keys[:limit])
    return f"{shown} and {len(keys) - limit} more" if len(keys) > limit else shown or "nothing"
