"""``onward review PATH``: the user's own documents, reviewed by the example agent."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress, TaskID

from examples.contract_review import registry_client
from examples.contract_review.corpus import SIZE
from examples.contract_review.documents import Listing
from examples.contract_review.estimate import Estimate
from models.journal.errors import JournalUnavailable
from models.states import RunState
from ops import reviewing, schema
from ops.cli import local, target
from ops.cli.asking import Yes, actor, confirm
from ops.cli.batches import progress
from ops.cli.output import Json, emit, note, say, table
from ops.cli.problems import UsageProblem
from ops.reviewing import Review, Reviewed
from ops.stack.state import running
from ops.stack.stopping import StopRequests
from recovery import watch

_LOOK_PERIOD = 0.5  #: seconds between two looks at the documents
_POLL_PERIOD = 0.1  #: seconds between two looks at our own processes
_PATIENCE = 20.0  #: seconds a review may wait for a worker before the reason is told
INTERRUPTED = 130


def review(
    path: Annotated[
        Path | None, typer.Argument(help="A folder, or one .txt .md .html .pdf .docx file.")
    ] = None,
    *,
    corpus: Annotated[
        int | None,
        typer.Option(min=1, max=SIZE, help=f"Instead: so many of the demo's {SIZE} contracts."),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Review unchanged documents anew.")
    ] = False,
    workers: Annotated[int, typer.Option(min=1, help="If a stack has to be started.")] = 2,
    concurrency: Annotated[int, typer.Option(min=1, help="Steps at a time in each worker.")] = 4,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Review your own contracts. Run it again to go on, or after a change to review what changed."""
    listing, expected = _documents(path, corpus)
    _announce(listing, f"{expected}, with {_model()}.")
    confirm("Start?", yes=yes, as_json=as_json)
    with _deployment(workers=workers, concurrency=concurrency) as (poll, requests):
        submitted = reviewing.submit(listing.uris, again=again, by=actor(None))
        _watch(submitted, poll, requests)
        found = reviewing.with_results(reviewing.look(submitted))
    registry = None if corpus is None else registry_client.counts()
    answer = {**_answer(submitted, found, listing), "registry": registry}
    emit(answer, as_json=as_json, show=lambda: _show(found, registry))
    if any(one.moves for one in found):
        note("Interrupted: nothing is lost. The same command goes on from here.")
        raise typer.Exit(INTERRUPTED)
    if any(one.state != RunState.COMPLETED for one in found):
        raise typer.Exit(1)


def _documents(path: Path | None, corpus: int | None) -> tuple[Listing, Estimate]:
    if path is not None and corpus is None:
        return reviewing.expand(path)
    if path is None and corpus is not None:
        return reviewing.expand_corpus(corpus)
    raise UsageProblem("Say what to review: either a path, or --corpus and a number.")


@contextmanager
def _deployment(
    *, workers: int, concurrency: int
) -> Iterator[tuple[Callable[[], None], StopRequests]]:
    """The servers and workers to use: named ones, a stack that runs, else one of our own meanwhile."""
    home = target.home()
    with ExitStack() as held:
        requests = held.enter_context(StopRequests(home.log("onward")))
        # Not a demo's stack: its verdict counts what everybody files there.
        if target.is_explicit() or running(home):
            schema.require()
            yield _nothing, requests
            return
        layout = local.prepare(
            workers=workers, concurrency=concurrency, agents=reviewing.AGENT, flower=False
        )
        note(f"Starting a stack in {home.path} for this review.")
        stack = held.enter_context(local.start(home, layout, requests))
        stack.adopt()
        yield stack.poll, requests


def _watch(review: Review, poll: Callable[[], None], requests: StopRequests) -> None:
    """Show progress until no document's review moves, or somebody asks to stop."""
    last = started = time.monotonic()
    told = False
    with progress() as shown:
        row = shown.add_task("reviewed", total=len(review.uris))
        while not requests.requested:
            poll()
            if time.monotonic() - last >= _LOOK_PERIOD:
                last = time.monotonic()
                found = _look(review, shown, row)
                if found and not any(one.moves for one in found):
                    return
                if not told and last - started > _PATIENCE:
                    told = _tell_why(found)
            time.sleep(_POLL_PERIOD)


def _look(review: Review, shown: Progress, row: TaskID) -> Sequence[Reviewed]:
    try:
        found = reviewing.look(review)
    except JournalUnavailable:
        return ()  # restarting; the next look finds it
    shown.update(row, completed=sum(not one.moves for one in found))
    return found


def _tell_why(found: Sequence[Reviewed]) -> bool:
    """Say once what keeps the whole review from beginning."""
    moving = [one for one in found if one.moves]
    if len(moving) < len(found) or not moving:
        return False
    reason = watch.why(moving[0].run_id)
    if reason.stuck:
        note(reason.sentence)
    return reason.stuck


def _announce(listing: Listing, expected: str) -> None:
    """Before the start, also with ``--json``: what it will cost."""
    note(expected)
    for skipped in listing.skipped:
        note(f"Left out {skipped.path}: {skipped.reason}.")


def _model() -> str:
    base_url = os.environ.get("ONWARD_LLM_BASE_URL")
    if base_url:
        return f"{os.environ.get('ONWARD_LLM_MODEL') or 'no model (set ONWARD_LLM_MODEL)'} at {base_url}"
    return "what the running stack is set to, or the example's rule-based model server"


def _answer(review: Review, found: Sequence[Reviewed], listing: Listing) -> dict[str, object]:
    return {
        "batch_id": review.batch_id,
        "documents": found,
        "skipped": [{"path": str(one.path), "reason": one.reason} for one in listing.skipped],
        "completed": sum(one.state == RunState.COMPLETED for one in found),
        "failed": sum(one.state != RunState.COMPLETED and not one.moves for one in found),
        "reused": sum(one.reused for one in found),
    }


def _show(found: Sequence[Reviewed], registry: Mapping[str, int] | None) -> None:
    table(("document", "state", "filed as", "run", "why"), (
        (one.name, f"{one.state}{' (before)' * one.reused}", one.result, one.run_id, one.problem)
        for one in found
    ))  # fmt: skip
    completed = sum(one.state == RunState.COMPLETED for one in found)
    say(f"{completed} of {len(found)} documents reviewed.")
    if registry is not None:
        say(
            f"The registry holds {registry['filings']} filings about "
            f"{registry['distinct_documents']} documents, {registry['duplicate_filings']} of them duplicates."
        )


def _nothing() -> None:
    """Somebody else looks after the processes."""
