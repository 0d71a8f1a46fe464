"""What many commands share: how runs are named, who acts, and the question before something is done."""

import getpass
import os
import sys
from typing import Annotated, TypeAlias

import typer

from models.ids import check_identifier
from models.journal import history
from ops import schema
from ops.cli.problems import UsageProblem

RunArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="RUN", help="A run's id, or the key it was submitted under.")
]
BatchArgument: TypeAlias = Annotated[str, typer.Argument(metavar="BATCH", help="A batch's id.")]
By: TypeAlias = Annotated[
    str | None, typer.Option("--by", help="Who acts, for the history. Default: you.")
]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Act without asking.")]
DryRun: TypeAlias = Annotated[
    bool, typer.Option("--dry-run", help="Say what would happen, and do nothing.")
]


def find_run(reference: str) -> str:
    """A run's id from an argument, in a journal that fits. Raises ``UnknownRun``."""
    schema.require()
    return history.find(check_identifier("run", reference))


def find_batch(batch_id: str) -> str:
    """A batch's id from an argument, in a journal that fits."""
    schema.require()
    return check_identifier("batch", batch_id)


def actor(by: str | None) -> str:
    """The name under which something is done."""
    if by is None:
        by = os.environ.get("USER") or getpass.getuser()
    return check_identifier("--by", by)


def confirm(question: str, *, yes: bool, as_json: bool) -> None:
    """Go on only with consent. A program, which cannot be asked, has to give it beforehand."""
    if yes:
        return
    if as_json or not sys.stdin.isatty():
        raise UsageProblem("Nobody can be asked here: add --yes to act without a question.")
    typer.confirm(question, abort=True, err=True)
