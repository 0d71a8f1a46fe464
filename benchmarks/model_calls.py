"""What recording costs a model call: the same requests by a plain client, recorded, and from the record."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2

from models import database
from models.ids import new_nonce
from models.journal import steps, submitting
from models.journal.effect_values import Sender
from models.journal.values import Carrier, Claimed
from models.plan import ROOT_BRANCH
from ops.testing.outside.models import ModelService
from tasks import registry
from tasks.effects import Ledger
from tasks.llm import declare_endpoint
from tasks.recorder.recorder import Recorder
from tasks.starting import prepare

CALLS = 1000
WARM_UP = 20

PLAIN, RECORDED, REPLAYED = "plain client", "recorded", "from the record"

Ask = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCost:
    """Milliseconds of one call, of many after one another in one step."""

    name: str
    calls: int
    wall: float
    cpu: float  #: of the calling process
    commits: float  #: of the journal's database


def measure(place: Path, *, calls: int = CALLS) -> list[CallCost]:
    """One step's calls in a row, against a model that answers at once and keeps its ledger in ``place``."""
    with ModelService(place) as models:
        declare_endpoint(models.url)
        url = f"{models.url}/chat/completions"
        with httpx2.Client() as client:
            plain = _measured(PLAIN, _asking(client, url), calls)
        claimed = _claimed()
        with _client(claimed) as client:
            recorded = _measured(RECORDED, _asking(client, url), calls)
        asked = models.count()
        with _client(replace(claimed, attempt=2)) as client:  # as the next attempt would find it
            replayed = _measured(REPLAYED, _asking(client, url), calls)
        assert models.count() == asked  # noqa: S101 - the record has them all
    return [plain, recorded, replayed]


def lines(costs: list[CallCost]) -> list[str]:
    """Rows of the page of results."""
    plain, recorded, replayed = costs
    table = [
        "| | wall, ms | processor of the caller, ms | commits |", "|---|---|---|---|",
        *(f"| {one.name} | {one.wall:.2f} | {one.cpu:.2f} | {one.commits:.2f} |" for one in costs),
    ]  # fmt: skip
    return [
        f"A model that answers at once, asked {plain.calls:,} times in a row by one step; per call:",
        "",
        *table,
        "",
        f"Recording a call costs {recorded.wall - plain.wall:.1f} ms of waiting, two commits (the reservation "
        "before it is sent, the answer with its settlement after it), and "
        f"{recorded.cpu - plain.cpu:.1f} ms of processor time. One from the record takes {replayed.wall:.2f} ms.",
    ]


def _asking(client: Any, url: str) -> Ask:
    def ask(number: int) -> None:
        message = {"role": "user", "content": f"question {number}"}
        body = {"model": "bench", "messages": [message], "max_tokens": 100}
        client.post(url, json=body).raise_for_status()

    return ask


def _measured(name: str, ask: Ask, calls: int) -> CallCost:
    for number in range(WARM_UP):
        ask(number)
    commits, began, used = _commits(), time.monotonic(), time.process_time()
    for number in range(WARM_UP, WARM_UP + calls):
        ask(number)
    wall, cpu = time.monotonic() - began, time.process_time() - used
    return CallCost(
        name=name, calls=calls, wall=1000 * wall / calls, cpu=1000 * cpu / calls,
        commits=(_commits() - commits - 1) / calls,
    )  # fmt: skip


def _commits() -> int:
    """Transactions that wrote something have a number each, and so has this look."""
    row = database.fetch_one("SELECT txid_current()", {})
    assert row is not None  # noqa: S101 - it has a row
    return int(row[0])


@contextmanager
def _client(claimed: Claimed) -> Iterator[Any]:
    """The client that ``ctx.httpx_client`` gives to one attempt."""
    sender = Sender("start-bench", "bench", 1, 1, "bench")
    ledger = Ledger(claimed, sender, require_trust=lambda: None)
    recorder = Recorder(claimed, sender, ledger, require_trust=lambda: None)
    with recorder.entered(), recorder.client({}) as client:
        yield client


def _claimed() -> Claimed:
    registry.load_agents()
    owner = Carrier("start-bench", "bench", "bench", 1, 0)
    submitted = submitting.submit(prepare("bench", {"steps": 1}))
    claimed = steps.claim(
        submitted.run_id, ROOT_BRANCH, "first", workflow="bench", versions=("1",), carrier=owner,
        nonce=new_nonce(),
    )  # fmt: skip
    assert claimed is not None  # noqa: S101 - nobody else claims here
    return claimed
