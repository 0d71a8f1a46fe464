"""Every command in one place: its name, and the function that is it."""

import typer
import typer.main

from ops.cli import (
    artifacts,
    batches,
    budgets,
    calls,
    certify,
    db,
    effects,
    health,
    journal,
    metrics,
    review,
    runs,
    stack,
)

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Agent runs on Celery that continue from the last confirmed step.",
)

app.command("up")(stack.up)
app.command("down")(stack.down)
app.command("review")(review.review)
app.command("submit")(journal.submit)
app.command("result")(journal.result)
app.command("steps")(journal.steps)
app.command("history")(journal.show_history)
app.command("sweep")(health.sweep)
app.command("workers")(health.workers)
app.command("certify")(certify.certify)
app.command("doctor")(health.examine)
app.command("health")(health.health)
runs.app.command("budget")(budgets.of_run)
runs.app.command("calls")(calls.show_calls)
batches.app.command("budget")(budgets.of_batch)
app.add_typer(runs.app, name="runs")
app.add_typer(batches.app, name="batch")
app.add_typer(batches.app, name="batches", hidden=True)
app.add_typer(effects.app, name="effects")
app.add_typer(artifacts.app, name="artifacts")
app.add_typer(db.app, name="db")
app.add_typer(metrics.app, name="metrics")


@app.command(
    "demo",
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def demo(context: typer.Context) -> None:
    """Watch 137 real contracts being reviewed while workers are killed."""
    from ops.demo.command import demo_command  # noqa: PLC0415 - loads the whole example

    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    alone.command()(demo_command)
    typer.main.get_command(alone)(args=context.args, prog_name="onward demo")
