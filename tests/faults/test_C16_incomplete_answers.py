"""C16: an answer that violates its schema, or is cut off, is never taken and never asked for without end."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from models import database
from models.journal import calls, wallets
from models.settings import settings
from recovery.watch import why
from tests.support.in_the_air import disarm, kill_holder, rearm, start_armed
from tests.support.invariants import check_invariants
from tests.support.models import Answer, ModelService, models_service
from tests.support.world import World

INVALID = Answer(value={"order": "things"})  # `servers` is missing
WHOLE = Answer(value={"order": "things", "servers": 2})
CALL = Answer(
    tool_calls=({"name": "ledgered_place", "arguments": {"name": "half-a-call"}, "id": "t1"},),
    ends="half",
)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelService]:
    with models_service(tmp_path_factory.mktemp("models")) as service:
        yield service


@pytest.fixture(scope="module")
def world(
    make_world: Callable[..., AbstractContextManager[World]], service: ModelService
) -> Iterator[World]:
    env = {"ONWARD_LLM_BASE_URL": service.url, "ONWARD_LLM_MODEL": "gpt-x"}
    with make_world(agents="tests.agents.conversing", env=env) as world:
        disarm("L3")
        start_armed(world, "L3:kill@choosing.choose")
        yield world


def on_record(run_id: str) -> list[tuple[str, str | None]]:
    return [(one.state, one.verdict) for one in calls.of_run(run_id)]


def refused_for_good(world: World, run_id: str, word: str) -> None:
    """The step has failed at once for this reason, and nothing after it has seen anything."""
    world.wait_run(run_id, "failed")
    assert why(run_id).word == word
    assert world.bodies(run_id, "order") + world.bodies(run_id, "report") == 0
    assert wallets.standing(run_id).held_tokens == 0
    check_invariants(settings().database_url, run_id)


def test_C16_a_the_limit_on_asking_survives_a_crash(world: World, service: ModelService) -> None:
    """The second answer is on record and has no verdict yet when the process is killed: three asks in all."""
    service.script("limit-kept", INVALID, Answer(value={"order": "things"}, hold="second"), INVALID)
    run_id = world.start("choosing", name="limit-kept")
    service.wait_held("second")
    rearm("L3")
    service.release("second")
    world.wait_fired("L3")

    refused_for_good(world, run_id, "schema_invalid")
    assert service.count("limit-kept") == 3
    assert on_record(run_id) == [("complete", "rejected")] * 3
    standing = wallets.standing(run_id)
    assert (standing.spent_tokens, standing.recovery_tokens) == (
        service.billed("limit-kept").tokens,
        0,
    )
    assert world.bodies(run_id, "choose") == 2, "and no attempt after the failure"


def test_C16_a_an_answer_to_a_second_ask_that_was_lost_is_paid_for_and_counts(
    world: World, service: ModelService
) -> None:
    """Killed while the second answer is on its way: three requests in all reach the models, and all are charged."""
    service.script("limit-lost", INVALID, Answer(value={"order": "things"}, hold="lost"), INVALID)
    run_id = world.start("choosing", name="limit-lost")
    service.wait_held("lost")
    kill_holder(world, run_id)
    service.release("lost")
    refused_for_good(world, run_id, "schema_invalid")
    assert service.count("limit-lost") == 3
    assert on_record(run_id) == [("complete", "rejected")] * 2
    standing = wallets.standing(run_id)
    assert standing.recovery_tokens > 0
    assert standing.spent_tokens >= service.billed("limit-lost").tokens


def test_C16_a_crashes_alone_use_no_ask_up(world: World, service: ModelService) -> None:
    """Killed twice before there is any answer: what comes then is judged, and asked for again, as ever."""
    held = Answer(value={"order": "others"}, hold="crashes")
    other = Answer(value={"order": "others", "servers": 1})
    service.script("crashes-alone", held, held, INVALID, other)
    run_id = world.start("choosing", name="crashes-alone")
    for number in range(2):
        service.wait_held("crashes", count=number + 1)
        kill_holder(world, run_id)
    world.wait_run(run_id)
    service.release("crashes")
    assert service.count("crashes-alone") == 4
    assert on_record(run_id) == [("complete", "rejected"), ("complete", "accepted")]


@pytest.mark.parametrize(
    ("workflow", "answer", "state"),
    [
        ("listening", CALL, "cut"),
        ("saying-on", Answer(text="It ends with a whole sentence.", ends="unfinished"), "cut"),
        ("choosing", Answer(value={"order": "things", "servers": 1}, finish="length"), "length"),
        ("choosing", Answer(text="", finish="length"), "empty"),
        ("saying-on", Answer(text=""), "empty"),
        ("choosing", Answer(refusal="I will not."), "refused"),
        ("choosing", Answer(malformed=True), "malformed"),
        ("choosing", Answer(value={"order": "a", "servers": 1}, model="gpt-y"), "other_model"),
    ],
    ids=[
        "b-half-call",
        "c-no-end",
        "d-length",
        "e-length-empty",
        "empty",
        "refused",
        "malformed",
        "other",
    ],
)
def test_C16_what_is_not_whole_is_evidence_and_no_answer(
    world: World, service: ModelService, *, workflow: str, answer: Answer, state: str,
    request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    name = f"never-{request.node.callspec.id}"
    service.script(name, answer)
    run_id = world.start(workflow, name=name)
    refused_for_good(world, run_id, f"answer_{state}")
    assert service.count(name) == 3
    assert on_record(run_id) == [(state, "rejected")] * 3
    assert world.fx.calls("half-a-call") == 0
    assert wallets.standing(run_id).spent_tokens >= service.billed(name).tokens
    assert evidence(run_id)


def evidence(run_id: str) -> bool:
    """Whether what came is kept."""
    rows = database.fetch("SELECT answer FROM recorded_call WHERE run_id = %(id)s", {"id": run_id})
    return all(row[0] for row in rows)


def test_C16_a_whole_answer_after_incomplete_ones_is_taken(
    world: World, service: ModelService
) -> None:
    short = Answer(value={"order": "things", "servers": 1}, finish="length")
    service.script("at-last", short, INVALID, WHOLE)
    run_id = world.start("choosing", name="at-last")
    world.wait_run(run_id)
    assert service.count("at-last") == 3
    assert on_record(run_id) == [
        ("length", "rejected"), ("complete", "rejected"), ("complete", "accepted"),
    ]  # fmt: skip
    assert world.fx.made("things") == 1
