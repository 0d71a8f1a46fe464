"""Answers that were paid for once: how the journal gives them again, and what the model server counts of it."""

import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from examples.contract_review.model_server import MODEL
from models import database
from models.failpoints import FailPoint
from ops.demo.records import Replays

#: USD per million tokens: about those of a mid-sized hosted model, so that what is saved has a figure.
PRICES = {MODEL: {"input": 2.5, "output": 10.0}}

_WHERE = FailPoint.L4  #: an answer is on record and accepted, and the step not done

_ON_RECORD = """
SELECT c.run_id, c.step_key, min(c.attempt), count(*), sum(coalesce(c.cost, 0)),
       count(*) FILTER (WHERE s.token > c.token),
       sum(coalesce(c.tokens_in, 0) + coalesce(c.tokens_out, 0)) FILTER (WHERE s.token > c.token),
       sum(coalesce(c.cost, 0)) FILTER (WHERE s.token > c.token)
FROM recorded_call c JOIN run r USING (run_id)
LEFT JOIN step s ON s.run_id = c.run_id AND s.step_key = c.step_key AND s.state = 'completed'
WHERE r.batch_id = %(batch_id)s AND c.kind = 'model' GROUP BY c.run_id, c.step_key"""


def armed(directory: Path) -> Mapping[str, str]:
    """What lets workers stop there; not yet wanted."""
    directory.mkdir(parents=True, exist_ok=True)
    marker(directory).touch()
    return {
        "ONWARD_FAILPOINTS": f"{_WHERE}:stop",
        "ONWARD_FAILPOINT_DIR": str(directory),
        "ONWARD_PRICES": json.dumps(PRICES),
    }


def replays(batch_id: str, counted: Iterable[Mapping[str, Any]]) -> Replays:
    """What was given again, and, by the model server's counts of each step, what was asked for again."""
    asked = {(one["run"], one["step"]): int(one["calls"]) for one in counted}
    rows = database.fetch(_ON_RECORD, {"batch_id": batch_id})
    again = [row for row in rows if row[5]]
    return Replays(
        calls=sum(row[5] for row in again),
        tokens=sum(int(row[6]) for row in again),
        cost=sum((row[7] for row in again), Decimal(0)),
        # Each attempt before the one that had the answer may have lost one in the air.
        asked_again=sum(max(0, asked.get(row[:2], 0) - (row[2] - 1) - row[3]) for row in again),
        spent=sum((row[4] for row in rows), Decimal(0)),
    )


def marker(directory: Path) -> Path:
    """While it is there, nobody stops; who stops makes it."""
    return directory / _WHERE.value
