"""``onward demo``: options in, verdict out."""

import json
import os
import secrets
import sys
from subprocess import SubprocessError
from typing import Annotated

import typer
from rich.console import Console

from examples.contract_review.corpus import SIZE
from examples.contract_review.errors import ReviewError
from models.errors import OnwardError
from ops.demo.evidence import progress
from ops.demo.memory import Memory
from ops.demo.naive import Comparison, NaiveResult
from ops.demo.report import Report, violations
from ops.demo.schedule import FaultKind, PlannedFault, fitting, plan_faults
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
        int, typer.Option(min=1, max=SIZE, help="How many of the 137 contracts to review.")
    ] = SIZE,
    seed: Annotated[
        int | None, typer.Option(help="Decides which fault comes when, and nothing else.")
    ] = None,
    kills: Annotated[bool, typer.Option(help="Kill processes while the batch runs.")] = True,
    faults: Annotated[
        str, typer.Option(help="Only these faults, comma-separated: " + ", ".join(FaultKind))
    ] = "",
    naive: Annotated[
        bool, typer.Option("--naive", help="Afterwards the same on plain Celery chains.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="End with one JSON object on standard output.")
    ] = False,
) -> None:
    """Review real contracts while processes are killed, and prove that nothing was lost or doubled."""
    home = Home.at(os.environ.get("ONWARD_HOME") or DEFAULT_HOME)
    known = Memory.unfinished(home)
    memory = known or Memory.begin(
        documents=documents,
        seed=secrets.randbelow(10_000) if seed is None else seed,
        kinds=_kinds(faults, documents) if kills else (),
    )
    view = choose(plain=as_json)
    try:
        with view:
            found = _perform(home, memory, view, continued=known is not None, naive=naive)
    except (StackError, OnwardError, ReviewError, OSError, SubprocessError) as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(
            f"onward demo: {error}", markup=False
        )
        raise typer.Exit(1) from None
    if found is None:
        say = "stopped; nothing is lost, and the next `onward demo` goes on with this batch"
        Console(stderr=True, highlight=False, soft_wrap=True).print(say)
        raise typer.Exit(INTERRUPTED)
    report, other = found
    show(_console(stderr=as_json), report, other)
    if as_json:
        compared = {} if other is None else {"naive": other.to_json()}
        sys.stdout.write(json.dumps({**report.to_json(), "seed": memory.seed, **compared}) + "\n")
        sys.stdout.flush()
    if violations(report):
        raise typer.Exit(1)


def _perform(
    home: Home, memory: Memory, view: View, *, continued: bool, naive: bool
) -> tuple[Report, NaiveResult | None] | None:
    """Everything between the first process and the last. None: someone asked to stop."""
    _announce(view, memory, continued=continued)
    with (
        StopRequests(home.log("onward")) as stop,
        Stage(home, memory, stop=stop, on_event=lambda event: _tell(view, event)) as stage,
    ):
        session = begin(stage, view, stop)
        report = session.run(_planned(memory, continued=continued))
        if report is None:
            return None
        other = None
        if naive:
            other = Comparison(stage, view, stop, memory.documents, report.faults).run()
        view.say("stopping the processes")
        return report, other


def _announce(view: View, memory: Memory, *, continued: bool) -> None:
    if continued:
        view.say(
            f"going on with {memory.batch_id}, which an earlier demo did not finish: "
            f"{memory.documents} contracts, seed {memory.seed}; options of this start are not used"
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


def _kinds(asked: str, documents: int) -> tuple[str, ...]:
    if not asked:
        return fitting(documents)
    names = [name.strip() for name in asked.split(",") if name.strip()]
    unknown = [name for name in names if name not in set(FaultKind)]
    if unknown:
        raise typer.BadParameter(
            f"there is no fault {unknown[0]!r}; there are {', '.join(FaultKind)}",
            param_hint="--faults",
        )
    return tuple(names)


def _console(*, stderr: bool) -> Console:
    """Wide enough for the tables where nobody has set a width."""
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=_WIDTH)


def _tell(view: View, event: ProcessEvent) -> None:
    if is_news(event):
        view.say(str(event))
