"""C08, the model's half: who is told to wait waits without a worker, and they do not all come back at once."""

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from models import database
from models.journal import endpoints, wallets
from models.settings import settings
from tests.support.in_the_air import pause
from tests.support.invariants import check_invariants
from tests.support.models import ModelCall, ModelService, Ways, models_service
from tests.support.waiting import wait_until
from tests.support.world import World

RUNS = 160
RATE = 10  #: requests a second that are answered
RETRY_AFTER = 4.0  #: seconds that the others are told to wait
MOST = 0.05  #: of those who wait come back within one second
SLACK = 0.05  #: seconds between the models' clock and the journal's


@pytest.fixture
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelService]:
    with models_service(tmp_path_factory.mktemp("models")) as service:
        service.behave(Ways(requests_per_second=RATE, retry_after=RETRY_AFTER, retry_form="mixed"))
        yield service


@pytest.fixture
def world(
    make_world: Callable[..., AbstractContextManager[World]], service: ModelService
) -> Iterator[World]:
    env = {"ONWARD_MODEL_ENDPOINTS": service.url}
    with make_world(agents="tests.agents.recorded", env=env) as world:
        yield world


def held_steps() -> int:
    row = database.fetch_one("SELECT count(*) FROM live WHERE owner IS NOT NULL", {})
    return int(row[0]) if row else 0


def due_instants() -> list[float]:
    """When each of those who were told to wait comes back, in order."""
    rows = database.fetch(
        "SELECT extract(epoch FROM due_at)::float8 FROM live"
        " WHERE step_key = 'once' AND state = 'pending' AND attempt > 0 ORDER BY 1",
        {},
    )
    return [row[0] for row in rows]


def all_were_told(service: ModelService) -> bool:
    """But for a few: under load the first come back before the last has asked."""
    return len(due_instants()) + len(service.calls(outcome="answered")) >= RUNS * 0.9


def lose_idle_worker(world: World, name: str) -> None:
    """SIGKILL; who is already back then may first end what it holds, and nobody else begins."""
    pause(world.cluster.pids[name])
    wait_until(lambda: held_steps() == 0, what="those who came back are done")
    os.kill(world.cluster.pids[name], signal.SIGKILL)
    wait_until(lambda: not world.cluster.is_running(name), what="the worker is gone")


def check_nobody_was_early(told: ModelCall, asked: list[ModelCall]) -> None:
    assert told.not_before is not None
    early = [
        call.text
        for call in asked
        # whatever was on its way when the answer came could not know of it
        if told.at + 1.0 < call.at < told.not_before - SLACK
    ]
    assert early == [], f"asked although told to wait until {told.not_before}"
    own = [call.at for call in asked if call.text == told.text and call.id > told.id]
    assert all(at >= told.not_before - SLACK for at in own)


def test_C08_nobody_asks_before_the_time_and_waiting_costs_nothing(
    world: World, service: ModelService
) -> None:
    runs = [world.start("limited", text=f"question {number:02}") for number in range(RUNS)]
    world.cluster.up(workers=1, concurrency=4)  # a crowd: all of them are there when it comes
    wait_until(lambda: bool(service.calls(outcome="limited")), what="the limit is met")
    wait_until(lambda: all_were_told(service), what="all are answered or told to wait")
    wait_until(lambda: held_steps() == 0, what="no step is held while they wait")
    waiting = endpoints.standing(service.url)
    assert waiting.wait > 0
    assert "429" in (waiting.reason or "")
    due = due_instants()
    assert len(due) > RUNS // 2
    until = min(call.not_before or 0.0 for call in service.calls(outcome="limited"))
    assert due[0] >= until - SLACK
    assert max(Counter(int(at) for at in due).values()) <= MOST * len(due)
    lose_idle_worker(world, "worker-1")  # the wait is in the journal
    world.cluster.worker("worker-2", concurrency=4)
    world.wait_runs(runs, timeout=150)

    asked = service.calls("question")
    limited = [call for call in asked if call.outcome == "limited"]
    assert {call.text: 1 for call in asked} == Counter(
        call.text for call in asked if call.outcome == "answered"
    )
    for told in limited:
        check_nobody_was_early(told, asked)
    for run_id in runs:
        step = world.step(run_id, "once")
        ended = world.ended(run_id, "once")
        assert (step.state, {outcome for outcome, _ in ended} - {"interrupted"}) == (
            "completed",
            set(),
        )
        standing = wallets.standing(run_id)
        assert (standing.spent_calls, standing.held_calls, standing.recovery_tokens) == (1, 0, 0)
    assert service.billed("question").calls == RUNS
    check_invariants(settings().database_url, runs[0])
