"""``onward demo``: options in, verdict out."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from subprocess import SubprocessError
from typing import Annotated

import typer
from rich.console import Console

from examples.contract_review.corpus import SIZE
from examples.contract_review.errors import ReviewError
from models.errors import OnwardError
from ops.demo.asked import Asked, refusal
from ops.demo.evidence import progress
from ops.demo.memory import Memory
from ops.demo.naive import Comparison, NaiveResult
from ops.demo.picture import draw
from ops.demo.report import Report, violations
from ops.demo.schedule import FaultKind, PlannedFault, plan_faults
from ops.demo.session import begin
from ops.demo.stage import Stage, is_news
from ops.demo.tables import show
from ops.demo.view import View, choose
from ops.stack import Home, ProcessEvent, StackError
from ops.stack.stopping import StopRequests

DEFAULT_HOME = ".onward/demo"
INTERRUPTED = 130
_WIDTH = 120  #: columns of a log


def demo_command(  # noqa: PLR0917 - typer calls it by keyword
    documents: Annotated[
        int | None,
        typer.Option(min=1, max=SIZE, help=f"How many contracts to review. Default: all {SIZE}."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Decides which fault comes when, and nothing else.")
    ] = None,
    kills: Annotated[
        bool | None,
        typer.Option("--kills/--no-kills", help="Kill processes meanwhile. Default: yes."),
    ] = None,
    faults: Annotated[
        str, typer.Option(help="Only these faults, comma-separated: " + ", ".join(FaultKind))
    ] = "",
    naive: Annotated[
        bool, typer.Option("--naive", help="Afterwards the same on plain Celery chains.")
    ] = False,
    new: Annotated[
        bool, typer.Option("--new", help="Drop a batch that was cut short instead of finishing it.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="End with one JSON object on standard output.")
    ] = False,
    svg: Annotated[
        Path | None, typer.Option(dir_okay=False, hidden=True, help="Save the report as a picture.")
    ] = None,
) -> None:
    """Review real contracts while processes are killed, and prove that nothing was lost or doubled."""
    home = Home.at(os.environ.get("ONWARD_HOME") or DEFAULT_HOME)
    asked = Asked(documents=documents, seed=seed, kills=kills, faults=_kinds(faults))
    start = _start(asked, Memory.unfinished(home), new=new)
    report, other = _play(home, start, choose(plain=as_json), naive=naive)
    show(_console(stderr=as_json), report, other)
    if svg is not None:
        draw(report, other, svg)
    if as_json:
        compared = {} if other is None else {"naive": other.to_json()}
        told = {"seed": start.memory.seed, "continued": start.continued, **compared}
        sys.stdout.write(json.dumps({**report.to_json(), **told}) + "\n")
        sys.stdout.flush()
    if violations(report):
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class _Start:
    memory: Memory
    continued: bool = False
    dropped: Memory | None = None  #: an unfinished batch that this one takes the place of


def _start(asked: Asked, known: Memory | None, *, new: bool) -> _Start:
    if known is None or new:
        return _Start(asked.begin(), dropped=known)
    if asked.contradicts(known):
        _complain(f"onward demo: {refusal(known)}")
        raise typer.Exit(2)
    return _Start(known, continued=True)


def _play(
    home: Home, start: _Start, view: View, *, naive: bool
) -> tuple[Report, NaiveResult | None]:
    """The whole demo but for its report; what ends it early is one sentence and an exit code."""
    try:
        with view:
            found = _perform(home, start, view, naive=naive)
    except (StackError, OnwardError, ReviewError, OSError, SubprocessError) as error:
        _complain(f"onward demo: {error}")
        raise typer.Exit(1) from None
    if found is None:
        _complain("stopped; nothing is lost, and the next `onward demo` goes on with this batch")
        raise typer.Exit(INTERRUPTED)
    return found


def _perform(
    home: Home, start: _Start, view: View, *, naive: bool
) -> tuple[Report, NaiveResult | None] | None:
    """Everything between the first process and the last. None: someone asked to stop."""
    memory = start.memory
    _announce(view, start)
    with (
        StopRequests(home.log("onward")) as stop,
        Stage(
            home, memory, stop=stop, on_event=lambda event: _tell(view, event),
            dropped=start.dropped,
        ) as stage,
    ):  # fmt: skip
        session = begin(stage, view, stop)
        report = session.run(_planned(memory, continued=start.continued))
        if report is None:
            return None
        other = None
        if naive:
            other = Comparison(stage, view, stop, memory.documents, report.faults).run()
        view.say("stopping the processes")
        return report, other


def _announce(view: View, start: _Start) -> None:
    memory = start.memory
    if start.dropped is not None:
        view.say(f"{start.dropped.batch_id}, which an earlier demo did not finish, is dropped")
    if start.continued:
        view.say(
            f"going on with {memory.batch_id}, which an earlier demo did not finish: "
            f"{memory.documents} contracts, seed {memory.seed}"
        )
    else:
        view.say(f"{memory.documents} contracts, seed {memory.seed}; starting the processes")
    if os.environ.get("ONWARD_LLM_BASE_URL"):
        view.say("the demo asks its own rule-based model server, not ONWARD_LLM_BASE_URL")


def _planned(memory: Memory, *, continued: bool) -> list[PlannedFault]:
    """The faults that are still to come; what was due before a batch was cut short is left out."""
    completed = progress(memory.batch_id).completed if continued else 0
    kinds = [FaultKind(kind) for kind in memory.kinds]
    done = {fault["kind"] for fault in memory.faults}
    planned = plan_faults(memory.documents, seed=memory.seed, kinds=kinds)
    return [fault for fault in planned if fault.kind not in done and fault.document >= completed]


def _kinds(asked: str) -> tuple[FaultKind, ...] | None:
    if not asked:
        return None
    names = [name.strip() for name in asked.split(",") if name.strip()]
    unknown = [name for name in names if name not in set(FaultKind)]
    if unknown:
        raise typer.BadParameter(
            f"there is no fault {unknown[0]!r}; there are {', '.join(FaultKind)}",
            param_hint="--faults",
        )
    return tuple(map(FaultKind, names))


def _complain(sentence: str) -> None:
    Console(stderr=True, highlight=False, soft_wrap=True).print(sentence, markup=False)


def _console(*, stderr: bool) -> Console:
    """Wide enough for the tables where nobody has set a width."""
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=_WIDTH)


def _tell(view: View, event: ProcessEvent) -> None:
    if is_news(event):
        view.say(str(event))
