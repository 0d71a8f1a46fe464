"""Answers that were paid for once: how often the journal gave them again, and what the model server billed for them."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from examples.contract_review.model_server import MODEL
from models import database
from models.failpoints import FailPoint
from ops.demo.records import Replays
from tasks.prices import Price

#: About that of a mid-sized hosted model, so that what is saved has a figure.
PRICE = Price(input=Decimal("2.5"), output=Decimal(10))

_WHERE = FailPoint.L4  #: an answer is on record and accepted, and the step not done

_ON_RECORD = """
SELECT c.run_id, c.step_key, coalesce(c.response_id, ''), coalesce(s.token > c.token, false), s.attempt
FROM recorded_call c JOIN run r USING (run_id)
LEFT JOIN step s ON s.run_id = c.run_id AND s.step_key = c.step_key AND s.state = 'completed'
WHERE r.batch_id = %(batch_id)s AND c.kind = 'model'"""


@dataclass(frozen=True, slots=True)
class OnRecord:
    """One answer in the journal."""

    run: str
    step: str
    id: str  #: that the model server gave it
    replayed: bool  #: its step was completed by a later claim than the one that had asked
    attempts: int | None  #: of its step; None while it is not completed


def armed(directory: Path) -> Mapping[str, str]:
    """What lets workers stop there; not yet wanted."""
    directory.mkdir(parents=True, exist_ok=True)
    marker(directory).touch()
    price = {"input": float(PRICE.input), "output": float(PRICE.output)}
    return {
        "ONWARD_FAILPOINTS": f"{_WHERE}:stop",
        "ONWARD_FAILPOINT_DIR": str(directory),
        "ONWARD_PRICES": json.dumps({MODEL: price}),
    }


def marker(directory: Path) -> Path:
    """While it is there, nobody stops; who stops makes it."""
    return directory / _WHERE.value


def on_record(batch_id: str) -> list[OnRecord]:
    """Every answer of a model that the journal has of a batch."""
    return [OnRecord(*row) for row in database.fetch(_ON_RECORD, {"batch_id": batch_id})]


def compare(recorded: Iterable[OnRecord], counted: Iterable[Mapping[str, Any]]) -> Replays:
    """The journal's answers beside those that the model server counts, step by step. Pure."""
    given = {(one["run"], one["step"]): one["answers"] for one in counted}
    bill = {answer["id"]: answer for answers in given.values() for answer in answers}
    steps: dict[tuple[str, str], list[OnRecord]] = {}
    for one in recorded:
        steps.setdefault((one.run, one.step), []).append(one)
    known = [one for records in steps.values() for one in records if one.id in bill]
    replayed = [bill[one.id] for one in known if one.replayed]
    return Replays(
        calls=sum(one.replayed for records in steps.values() for one in records),
        tokens=sum(one["tokens_in"] + one["tokens_out"] for one in replayed),
        cost=_cost(replayed),
        asked_again=sum(
            _asked_again([one["id"] for one in given.get(step, ())], records)
            for step, records in steps.items()
        ),
        never_given=sum(map(len, steps.values())) - len(known),
        spent=_cost(bill.values()),
    )


def _asked_again(given: Sequence[str], records: Collection[OnRecord]) -> int:
    """Requests of one step for what was on record.

    An answer that was lost in the air comes before the one on record in its place, and an attempt loses
    one at most: what comes after the last one on record, or is more than that, was asked for needlessly.
    """
    attempts = next(iter(records)).attempts
    if attempts is None:
        return 0  # it may be asking now
    ids = {one.id for one in records}
    until = max((at + 1 for at, id_ in enumerate(given) if id_ in ids), default=0)
    lost = sum(id_ not in ids for id_ in given[:until])
    return len(given) - until + max(0, lost - (attempts - 1))


def _cost(answers: Iterable[Mapping[str, int]]) -> Decimal:
    return sum((PRICE.of(one["tokens_in"], one["tokens_out"]) for one in answers), Decimal(0))
