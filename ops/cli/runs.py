"""``onward runs``: looking at runs, and acting on them by name."""

from typing import Annotated, TypeAlias

import typer

from models.journal import history, stories
from models.journal.compensations import Requested
from models.journal.history import RunView
from models.states import RunState
from ops import budgets, client, resuming, schema, undoing
from ops.budgets import Report
from ops.cli.asking import By, DryRun, RunArgument, Yes, actor, confirm, find_run
from ops.cli.effects import tell_of_run
from ops.cli.output import Json, emit, facts, note, say, table
from ops.cli.problems import UsageProblem
from ops.resuming import Preview
from recovery import watch
from recovery.verify import look

app = typer.Typer(no_args_is_help=True, help="Look at runs and act on them.")

Reason: TypeAlias = Annotated[str, typer.Option(help="Why, for the history.")]

_MOVING = (RunState.PENDING, RunState.RUNNING, RunState.WAITING)
_EFFECTS = 100_000  #: more than a plan has steps


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
    found, why, budget = history.get_run(run_id), watch.why(run_id), budgets.of(run_id)
    answer = {
        "run": found, "why": why.word, "why_sentence": why.sentence, "stuck": why.stuck,
        "effects": stories.list_effects(run_id=run_id, limit=_EFFECTS), "story": stories.story(run_id),
        "budget": budget.as_dict(),
    }  # fmt: skip
    emit(answer, as_json=as_json, show=lambda: _show(found, why.sentence, budget))
    if not as_json:
        tell_of_run(run_id)


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
    *,
    reason: Reason = "no reason given",
    compensate: Annotated[
        bool, typer.Option("--compensate", help="And undo what it did; says before what that is.")
    ] = False,
    by: By = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Stop a run for good. Steps in the air end first; completed ones stay."""
    run_id = find_run(run)
    if compensate:
        _consent(undoing.preview(run_id), yes=yes, as_json=as_json)
    done = client.cancel(run_id, by=actor(by), reason=reason, compensate=compensate)
    told = (
        f"Run {run_id} is being cancelled ({done.cancellation_id})."
        if done.first
        else f"Run {run_id} was cancelled before by {done.cancelled_by}: {done.reason} ({done.cancellation_id})."
    )
    emit(done, as_json=as_json, show=lambda: say(told))


@app.command("compensate")
def compensate(
    run: RunArgument,
    *,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="KEY",
            help="Only this effect; repeatable. Of a completed run as well.",
        ),
    ] = None,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Cancel the run first if it is not at rest.")
    ] = False,
    reason: Reason = "no reason given",
    by: By = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Undo what a run did, the last effect first. Says before what that is, and what cannot be undone.

    Once more, it tries again what could not be undone.
    """
    if only and cancel:
        raise UsageProblem(
            "--only undoes effects beside a run, --cancel ends it: give one of them."
        )
    run_id = find_run(run)
    plan, asked = undoing.preview(run_id, only=only or ()), None
    if dry_run:
        if not as_json:
            _show_undoing(plan)
    else:
        _consent(plan, yes=yes, as_json=as_json)
        if cancel and plan.state in _MOVING:
            client.cancel(run_id, by=actor(by), reason=reason, compensate=True)
        asked = client.compensate(run_id, by=actor(by), reason=reason, only=only or ())
    answer = {"preview": plan, "requested": asked}
    emit(answer, as_json=as_json, show=lambda: say(_asked_for(run_id, asked)))


@app.command("verify")
def verify_run(run: RunArgument, as_json: Json = False) -> None:
    """Hold everything recorded of a run against itself. Exit code 1 when something does not hold."""
    run_id = find_run(run)
    verdict = look(run_id)
    findings = verdict.findings

    def show_findings() -> None:
        for line in (*verdict.left_over, *verdict.recovery):
            say(line)
        for finding in findings:
            say(str(finding))
        say(f"{run_id}: {len(findings) or 'no'} findings.")

    answer = {
        "run_id": run_id, "verified": not findings, "findings": findings,
        "not_asked_again": verdict.left_over, "recovery": verdict.recovery,
    }  # fmt: skip
    emit(answer, as_json=as_json, show=show_findings)
    if findings:
        raise typer.Exit(1)


def _consent(plan: undoing.Preview, *, yes: bool, as_json: bool) -> None:
    if not as_json:
        _show_undoing(plan)
    confirm("Undo this?", yes=yes, as_json=as_json)


def _show_undoing(plan: undoing.Preview) -> None:
    groups = (
        ("undone, in this order", plan.undo), ("asked first whether it happened", plan.asked_first),
        ("CANNOT be undone, left to a person", plan.cannot), ("undone or given up before", plan.undone),
    )  # fmt: skip
    say(f"Of run {plan.run_id} ({plan.state}):")
    for title, lines in groups:
        if lines:
            say(f"{title}:")
        for number, line in enumerate(lines, start=1):
            remark = f"  ({line.remark})" if line.remark else ""
            say(f"  {number}. {line.tool} of step {line.step_key}: {line.key}{remark}")
    if plan.unseen:
        say(
            f"not seen by Onward, look yourself: what {', '.join(plan.unseen)} did outside its tools"
        )
    if plan.is_empty:
        say("  nothing is left to be undone")


def _asked_for(run_id: str, asked: Requested | None) -> str:
    if asked is None:
        return "Nothing was done (--dry-run)."
    if asked.state == "done":
        return f"{run_id}: everything asked for is undone or given up."
    before = "" if asked.changed else "was asked for before and "
    return f"{run_id}: its undoing {before}goes on; `onward runs show {run_id}` tells how."


def _list(found: list[RunView], limit: int) -> None:
    columns = ("run", "workflow", "state", "steps", "reason", "batch", "key", "created")
    table(columns, (
        (run.run_id, f"{run.workflow}@{run.version}", run.state, f"{run.completed_steps}/{run.step_count}",
         run.reason, run.batch_id, run.submission_key, run.created_at)
        for run in found
    ))  # fmt: skip
    if len(found) == limit:
        note(f"The newest {limit} runs; --limit shows more.")


def _show(run: RunView, why: str, budget: Report) -> None:
    cancelled = f"by {run.cancelled_by}: {run.cancel_reason}" if run.cancelled_by else None
    facts((
        ("run", run.run_id), ("why", why), ("state", run.state),
        ("workflow", f"{run.workflow} version {run.version}"),
        ("steps", f"{run.completed_steps} of {run.step_count} completed"), ("reason", run.reason),
        ("detail", run.detail), ("cancelled", cancelled), ("batch", run.batch_id),
        ("key", run.submission_key), ("priority", run.priority or None),
        ("duplicates dropped", run.duplicates or None), ("submitted", run.created_at),
        ("started", run.started_at), ("finished", run.finished_at), *budget.facts(),
    ))  # fmt: skip


def _show_preview(plan: Preview) -> None:
    facts((
        ("run", f"{plan.run_id} ({plan.state})"), ("reused", _keys(plan.reused)),
        ("run again", _keys(plan.again)), ("asked first", _keys(plan.asked)),
        ("under way", _keys(plan.moving)), ("left stopped", _keys(plan.left)),
        ("not reached yet", f"{plan.ahead} steps"),
    ))  # fmt: skip
    for question in plan.questions:
        say(f"  asks {question}")


def _show_sent_back(keys: list[str], *, dry_run: bool) -> None:
    say("Nothing was done (--dry-run)." if dry_run else f"Goes on with {', '.join(keys)}.")


def _keys(keys: tuple[str, ...], limit: int = 12) -> str:
    shown = ", ".join(keys[:limit])
    return f"{shown} and {len(keys) - limit} more" if len(keys) > limit else shown or "nothing"
