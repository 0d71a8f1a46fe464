"""``onward certify``: a user's own workflow through the fault matrix."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from ops.cli.journal import read_input
from ops.cli.output import Json, emit, note, say, table
from ops.testing.certify import tables
from ops.testing.certify.faults import FaultKind, parse_kinds
from ops.testing.certify.report import Report
from ops.testing.certify.runner import Options
from ops.testing.certify.runner import certify as play
from ops.testing.certify.target import Target, find_function, find_workflow

Workflow: TypeAlias = Annotated[
    str, typer.Argument(help="The workflow's function, as acme.review:contract_review.")
]
Input: TypeAlias = Annotated[
    str,
    typer.Option(
        "--input",
        help="The input of every run: a JSON object, a FILE, or - for standard input. {case} in a text of it is "
        "another word in each run.",
    ),
]
Points: TypeAlias = Annotated[
    str, typer.Option(help="Only these faults, comma-separated: " + ", ".join(FaultKind))
]
Only: TypeAlias = Annotated[list[str] | None, typer.Option(help="Only this step; may be repeated.")]
ByRun: TypeAlias = Annotated[
    str | None,
    typer.Option(help="module:function that is given a run's id and returns counts by effect."),
]
Setup: TypeAlias = Annotated[
    str | None,
    typer.Option(help="module:function that is given the address of the stack's own database."),
]
Reads: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(help="Beginning of an address where a POST only asks; may be repeated."),
]
Timeout: TypeAlias = Annotated[
    float, typer.Option(min=0.5, help="Seconds for one call of a tool that declares none.")
]
Patience: TypeAlias = Annotated[
    float | None, typer.Option(min=1.0, help="Seconds that one run may take.")
]
Keep: TypeAlias = Annotated[
    bool, typer.Option("--keep", help="Keep the stack's home and its logs.")
]


def certify(
    workflow: Workflow, *, given: Input = "{}", points: Points = "", only: Only = None,
    counter: ByRun = None, setup: Setup = None, reads: Reads = None, tool_timeout: Timeout = 10.0,
    patience: Patience = None, keep: Keep = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Kill and disturb a workflow at every instant and count what the outside world saw.

    It runs on a stack of its own, against the services that the environment names. Exit code 0 only when
    every fault fired and no effect was seen twice or not at all.
    """
    options = Options(
        kinds=parse_kinds(points), only=tuple(only or ()),
        counter=find_function(counter) if counter else None,
        setup=find_function(setup) if setup else None, reads=tuple(reads or ()),
        tool_timeout=tool_timeout, patience=patience, keep=keep,
    )  # fmt: skip
    target = Target(find_workflow(workflow), read_input(_source(given)))
    report = play(target, options, say=note)
    emit(report.to_json(), as_json=as_json, show=lambda: _show(report))
    if not report.ok:
        raise typer.Exit(1)


def _source(given: str) -> str:
    """A bare file name means the file."""
    is_file = not given.startswith(("{", "@", "-")) and Path(given).is_file()
    return f"@{given}" if is_file else given


def _show(report: Report) -> None:
    for found in (tables.by_step(report), tables.by_effect(report)):
        if found.rows:
            table(found.columns, found.rows)
            say("")
    for problem in report.problems:
        say(problem)
    for one in report.undeclared:
        say(f"Undeclared: {one}.")
    say(tables.verdict(report))
