"""A worker killed at each instant of a model call: how often the models were asked, and what that cost."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from models.journal import calls, wallets
from models.settings import settings
from tests.agents.documents import QUESTIONS
from tests.support.invariants import check_invariants
from tests.support.models import ModelService, models_service
from tests.support.world import World

#: Answers that were lost, by the instant of the kill: the first question's at most.
LOST = {"P1": 0, "L1": 0, "L2": 1, "L3": 0, "L4": 0, "P4": 0}
#: Whether the request was sent, and what it cost, nobody knows afterwards.
UNDECIDED = ("L1", "L2")
ARMED = ",".join(f"{point}:kill@dying.dies_at_{point.lower()}" for point in LOST)
GOOD = '{"answer": "as it should be"}'


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelService]:
    with models_service(tmp_path_factory.mktemp("models")) as service:
        service.script("doc-", GOOD)
        yield service


@pytest.fixture(scope="module", params=[False, True], ids=["hop", "sticky"])
def world(
    request: pytest.FixtureRequest,
    make_world: Callable[..., AbstractContextManager[World]],
    service: ModelService,
) -> Iterator[World]:
    env = {
        "ONWARD_STICKY": str(request.param), "ONWARD_LLM_BASE_URL": service.url,
        "ONWARD_LLM_MODEL": "gpt-x",
    }  # fmt: skip
    with make_world(agents="tests.agents.documents", env=env) as world:
        world.cluster.recovery()
        world.cluster.worker(env={"ONWARD_FAILPOINTS": ARMED})
        yield world


@pytest.mark.parametrize("point", LOST)
def test_a_kill_costs_at_most_the_answer_that_was_in_the_air(
    world: World, service: ModelService, point: str, request: pytest.FixtureRequest
) -> None:
    number = 100 * (1 + request.node.callspec.indices["world"]) + list(LOST).index(point)
    run_id = world.submit("dying", {"number": number, "point": point}).run_id
    world.wait_run(run_id)
    assert world.fired(point)
    step_key = f"dies_at_{point.lower()}"
    asked = Counter(call.text.splitlines()[-1] for call in service.calls(f"doc-{number}-"))
    first, *others = (asked[f"doc-{number}-{question}"] for question in QUESTIONS)
    assert first == 1 + LOST[point]
    assert others == [1, 1]
    assert world.attempts(run_id)[step_key] == 2
    recorded = [(one.state, one.verdict) for one in calls.of_run(run_id)]
    assert recorded == [("complete", "accepted")] * 3, "and none of them twice"
    check_invariants(settings().database_url, run_id)

    billed, standing = service.billed(f"doc-{number}-"), wallets.standing(run_id)
    assert standing.held_tokens == 0
    if point in UNDECIDED:
        assert (
            standing.spent_tokens - standing.recovery_tokens == billed.tokens // asked.total() * 3
        )
        assert standing.spent_tokens >= billed.tokens, "what was in doubt is charged at its worst"
        assert standing.recovery_tokens > 0
    else:
        assert (standing.spent_tokens, standing.recovery_tokens) == (billed.tokens, 0)
