"""The bare loop: a Celery task that sends the floor's statements itself, one after the other, and does nothing else.

What Celery, psycopg and one commit a step cost, whoever keeps the journal.
"""

import json
import os
from functools import lru_cache
from typing import Any, Final, LiteralString

import psycopg

from benchmarks.apps import mark_finished, plain_app
from benchmarks.least import CLAIM, COMPLETE, THEN_TAKEN, WAITING
from benchmarks.work import RESULT

_SUBMIT: Final[LiteralString] = WAITING.format(run="nextval('run')", seq="0") + " RETURNING run_id"
_CLAIM: Final[LiteralString] = CLAIM.format(run="%(run)s", seq="0") + " RETURNING attempt"
_COMPLETE: Final[LiteralString] = (
    COMPLETE.format(run="%(run)s", seq="%(seq)s", result="%(result)s::jsonb") + " RETURNING seq"
)
_THEN_TAKEN: Final[LiteralString] = (
    THEN_TAKEN.format(run="%(run)s", seq="%(seq)s", next="%(next)s", result="%(result)s::jsonb")
    + " RETURNING seq"
)

app = plain_app("bare")


def body() -> dict[str, object]:
    """A step."""
    return RESULT


@app.task(name="bare.run")  # type: ignore[untyped-decorator]
def run_steps(run: int, steps: int) -> None:
    """All steps of one run, each recorded before the next begins."""
    link = _link(os.getpid())
    done = link.execute(_CLAIM, {"run": run}).fetchone()
    for seq in range(steps):
        given = {"run": run, "seq": seq, "next": seq + 1, "result": json.dumps(body())}
        done = (
            done and link.execute(_COMPLETE if seq == steps - 1 else _THEN_TAKEN, given).fetchone()
        )
    if done:
        mark_finished(run)


def submit(_run: int, steps: int) -> None:
    """Record one run, and send its message."""
    row = _link(os.getpid()).execute(_SUBMIT).fetchone()
    assert row is not None  # noqa: S101 - it was made
    run_steps.delay(row[0], steps)


@lru_cache(maxsize=2)
def _link(_pid: int) -> "psycopg.Connection[tuple[Any, ...]]":
    return psycopg.connect(os.environ["BENCH_DATABASE_URL"], autocommit=True, prepare_threshold=0)
