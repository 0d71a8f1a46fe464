"""``onward artifacts``: what is kept outside the journal, whether it is whole, and what nobody needs."""

from pathlib import Path
from typing import Annotated

import typer

from models.artifacts.packing import CHUNK
from models.artifacts.store import current
from models.journal import artifacts
from models.journal.artifacts import Known
from ops import artifacts as keeping
from ops import schema
from ops.artifacts import Collected, Verified
from ops.cli.asking import DryRun, find_run
from ops.cli.output import Json, emit, say, table
from ops.cli.problems import REFUSED, UsageProblem

app = typer.Typer(no_args_is_help=True, help="Content that is kept outside the journal.")

_DAY = 86_400.0
_UNITS = ("bytes", "KB", "MB", "GB")

OfRun = Annotated[str | None, typer.Option("--run", help="Only of this run, by its id or key.")]


@app.command("list")
def list_artifacts(
    run: OfRun = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000)] = 50,
    as_json: Json = False,
) -> None:
    """The newest artifacts, and whether anything needs them."""
    schema.require()
    run_id = None if run is None else find_run(run)
    found = artifacts.known(run_id=run_id, limit=limit)
    emit(found, as_json=as_json, show=lambda: _list(found))


@app.command("verify")
def verify(run: OfRun = None, as_json: Json = False) -> None:
    """Read every artifact that is needed to its end. Exits with 1 when one is not what was recorded."""
    schema.require()
    found = keeping.verify(run_id=None if run is None else find_run(run))
    emit(found, as_json=as_json, show=lambda: _verified(found))
    if found.wrong:
        raise typer.Exit(REFUSED)


@app.command("get")
def get(
    digest: Annotated[str, typer.Argument(help="sha256:... as `list` shows it.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")],
    as_json: Json = False,
) -> None:
    """Write the content of an artifact to a file, checked, and neither compressed nor encrypted."""
    if output.exists():
        raise UsageProblem(f"{output} exists already: name another file.")
    size = 0
    with current().open(digest) as content, output.open("xb") as file:
        try:
            while piece := content.read(CHUNK):
                size += file.write(piece)
        except BaseException:
            output.unlink()
            raise
    answer = {"digest": digest, "size": size, "file": str(output)}
    emit(answer, as_json=as_json, show=lambda: say(f"{output}: {size:,} bytes."))


@app.command("collect")
def collect(
    older_than: Annotated[
        float, typer.Option(min=0, help="Seconds since it was written; what is younger stays.")
    ] = _DAY,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Remove what nothing refers to, and what killed uploads left behind."""
    schema.require()
    found = keeping.collect(older_than=older_than, dry_run=dry_run)
    emit(found, as_json=as_json, show=lambda: _collected(found, dry_run=dry_run))


def _list(found: list[Known]) -> None:
    table(("digest", "size", "stored as", "needed", "uses", "noted at"), (
        (one.digest, _size(one.size), _form(one), "yes" if one.needed else "no", one.uses, one.created_at)
        for one in found
    ))  # fmt: skip


def _form(one: Known) -> str:
    sealed = ", encrypted" if one.encrypted else ""
    return f"{one.encoding}, {_size(one.stored_size)}{sealed}"


def _verified(found: Verified) -> None:
    for wrong in found.wrong:
        say(f"{wrong.problem}: {wrong.sentence}")
    say(f"{found.whole} artifacts are what was recorded, {len(found.wrong)} are not.")


def _collected(found: Collected, *, dry_run: bool) -> None:
    for name in [*found.orphans, *found.unknown, *found.temporary]:
        say(name)
    did = "would be removed" if dry_run else "were removed"
    say(
        f"{len(found.orphans)} artifacts that nothing needs, {len(found.unknown)} that the journal never knew and "
        f"{len(found.temporary)} unfinished files {did}: {_size(found.bytes)}."
    )


def _size(count: int) -> str:
    size = float(count)
    for unit in _UNITS:
        if size < 1000 or unit == _UNITS[-1]:
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == _UNITS[0] else f"{size:.1f} {unit}"
