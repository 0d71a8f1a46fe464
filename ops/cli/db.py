"""``onward db``: the journal's schema, and a journal that went back in time."""

from datetime import datetime
from typing import Annotated

import typer

from models.journal import overview, rewinds
from models.journal.rewinds import Rewind
from models.settings import settings
from ops import schema
from ops.cli.asking import By, actor
from ops.cli.output import Json, emit, say, table
from ops.cli.problems import UsageProblem
from recovery import rewind

app = typer.Typer(no_args_is_help=True, help="The journal's schema, and restores of it.")


@app.command("upgrade")
def upgrade(as_json: Json = False) -> None:
    """Bring the journal's schema to the version this code wants. Does nothing when it is there."""
    from models.migrations import upgrade as migrate  # noqa: PLC0415 - half a second for one command

    before = overview.schema_revision()
    migrate(settings().database_url)
    after = schema.look()
    answer = {"before": before, "after": after.found}
    emit(answer, as_json=as_json, show=lambda: say(after.sentence))


@app.command("check")
def check(as_json: Json = False) -> None:
    """Say whether the journal's schema fits this code. Exit code 1 when it does not."""
    found = schema.look()
    answer = {"found": found.found, "wanted": found.wanted, "fits": found.fits}
    emit(answer, as_json=as_json, show=lambda: say(found.sentence))
    if not found.fits:
        raise typer.Exit(1)


@app.command("declare-rewind")
def declare_rewind(
    moment: Annotated[
        str,
        typer.Argument(
            metavar="T", help="To when, in ISO 8601 with its zone: 2026-03-01T02:30:00Z."
        ),
    ],
    by: By = None,
    reason: Annotated[str, typer.Option(help="Why, for the history.")] = "a restore",
    as_json: Json = False,
) -> None:
    """Say that the journal was restored to its state at T: what it does not know of may have happened.

    Every run that is older than this declaration then looks before it sends for the first time; effects that
    can neither be repeated nor asked about wait for a person. Declare it before the workers start.
    """
    schema.require()
    found = rewinds.declare(_moment(moment), actor=actor(by), reason=reason)
    rewind.acknowledge()
    told = (
        f"Declared: the journal went back to {found.rewound_to.isoformat()}. {found.runs} unfinished runs that "
        "are older than this look before they send for the first time."
    )
    emit(found, as_json=as_json, show=lambda: say(told))


@app.command("rewinds")
def list_rewinds(as_json: Json = False) -> None:
    """Every rewind that was declared or noticed."""
    schema.require()
    found = rewinds.list_rewinds()
    emit(found, as_json=as_json, show=lambda: _show(found))


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise UsageProblem(
            f"{text!r} is no moment in ISO 8601: write it like 2026-03-01T02:30:00Z."
        ) from None


def _show(found: list[Rewind]) -> None:
    columns = ("back to", "declared", "by", "older runs unfinished", "reason")
    table(columns, (
        (one.rewound_to, one.declared_at, one.actor, one.runs, one.reason) for one in found
    ))  # fmt: skip
