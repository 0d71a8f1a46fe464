"""Naming every run that does not move, and the health of recovery itself."""

import itertools
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from models import database
from models.journal import reads, workers
from models.journal.errors import UnknownRun
from models.settings import settings
from recovery import rewind
from recovery.reasons import BranchFacts, DoubtFacts, Reason, UndoFacts, explain

_log = logging.getLogger("onward.watch")
_STUCK_LIMIT = 10_000  #: branches looked at in one pass
_last_said = ""


def why(run_id: str) -> Reason:
    """Why this run does not move (or that it does). Raises ``UnknownRun``."""
    for _, reason in _explained(reads.branch_rows(run_id)):
        return reason
    raise UnknownRun(f"There is no run {run_id!r}; `onward runs list` shows those that exist.")


def stuck_runs() -> dict[str, Reason]:
    """Every unfinished run that nothing but a person or a new worker can get going, by run id."""
    rows = reads.stuck_rows(_served(), limit=_STUCK_LIMIT)
    return {run_id: reason for run_id, reason in _explained(rows) if reason.stuck}


def watch_once() -> dict[str, Reason]:
    """Take the journal's pulse; log what is stuck and why, when that changes. A pass, so silence shows."""
    global _last_said  # noqa: PLW0603 - one process watches, and says a thing once
    started = time.monotonic()
    workers.begin_pass("watch")
    rewind.beat_once()
    stuck = stuck_runs()
    counts = Counter(reason.word for reason in stuck.values())
    detail = (
        ", ".join(f"{word} {count}" for word, count in sorted(counts.items())) or "nothing stuck"
    )
    workers.end_pass("watch", seconds=time.monotonic() - started, detail=detail)
    if detail != _last_said and (stuck or _last_said):
        _log.warning("Stuck runs: %s", detail)
        _last_said = detail
    return stuck


def sweep_health() -> tuple[bool, str]:
    """Whether recovery is alive, judged by the age of the last complete sweep, and a sentence."""
    age = reads.pass_age("sweep")
    limit = 4 * settings().sweep_period + 5
    if age is None:
        return (
            False,
            "No sweep has ever completed: is beat running, and a worker on onward.control?",
        )
    if age > limit:
        return (
            False,
            f"The last complete sweep is {age:.0f} s old (limit {limit:.0f} s): start beat and the control worker.",
        )
    return True, f"The last complete sweep is {age:.1f} s old."


def _explained(rows: Sequence[database.Row]) -> Iterator[tuple[str, Reason]]:
    served, run_ids = _served(), {row[0] for row in rows}
    doubts = defaultdict(list)
    for run_id, *doubt in reads.doubt_rows(run_ids):
        doubts[run_id].append(_doubt(doubt))
    undoing = {run_id: _undo(undo) for run_id, *undo in reads.undoing_rows(run_ids)}
    for head, group in itertools.groupby(rows, key=lambda row: row[:5]):
        run_id, state, hold, reason, detail = head
        branches = [_facts(row) for row in group if row[5] is not None]
        yield (
            run_id,
            explain(
                state=state, hold=hold, reason=reason, detail=detail, branches=branches, served=served,
                doubts=doubts[run_id], undoing=undoing.get(run_id),
            ),
        )  # fmt: skip


def _served() -> set[str]:
    return reads.served_queues(silent_after=4 * settings().heartbeat)


def _facts(row: database.Row) -> BranchFacts:
    done, total, note = row[18:21]
    shown = (
        None
        if done is None
        else f"{done:g}{f' of {total:g}' if total else ''}{f', {note}' if note else ''}"
    )
    return BranchFacts(
        step_key=row[5], state=row[6], missing=row[7], queue=row[8], attempt=row[9], failures=row[10],
        due_in=row[11], lease_left=row[12], held_for=row[13], worker=row[14], publications=row[15],
        block_reason=row[16], error=row[17], progress=shown, untracked=row[21], error_type=row[22],
    )  # fmt: skip


def _doubt(row: Sequence[Any]) -> DoubtFacts:
    return DoubtFacts(
        key=row[0], step_key=row[1], tool=row[2], is_undo=row[3], person=row[4], since=row[5],
        lasts=row[6], due_in=row[7], looking=row[8], checks=row[9], last=row[10], queue=row[11],
    )  # fmt: skip


def _undo(row: Sequence[Any]) -> UndoFacts:
    return UndoFacts(state=row[0], doing=row[1], due_in=row[2], queue=row[3], error=row[4])
