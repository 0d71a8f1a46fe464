"""Faults as llmock plays them: waits, cut streams and nonsense, and never a request more than the rules say."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import pairwise

import pytest

from tests.support.peers import LlmMock, llmock
from tests.support.world import World


@pytest.fixture(scope="module")
def mock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlmMock]:
    directory = tmp_path_factory.mktemp("llmock")
    with llmock(directory, "--response-style", "echo", "--tool-mode", "off") as running:
        yield running


@pytest.fixture(scope="module")
def world(
    make_world: Callable[..., AbstractContextManager[World]], mock: LlmMock
) -> Iterator[World]:
    env = {
        "ONWARD_LLM_BASE_URL": mock.openai, "ONWARD_LLM_MODEL": "gpt-4o", "ONWARD_LLM_TIMEOUT": "3",
        "ONWARD_SECRET_LLM_KEY": "no-secret",
    }  # fmt: skip
    with make_world(agents="tests.agents.talking", env=env) as world:
        world.cluster.up(workers=1, concurrency=2)
        yield world


@pytest.fixture(autouse=True)
def _fresh(mock: LlmMock) -> None:
    mock.reset()


def outcomes(mock: LlmMock) -> list[tuple[int, bool]]:
    """(status, whether all of it was sent) of each request."""
    return [(one["status"], one["completed"]) for one in mock.requests()]


@pytest.mark.parametrize("flow", ["saying", "posting"])
def test_a_retry_after_is_waited_for_without_an_attempt(
    world: World, mock: LlmMock, flow: str
) -> None:
    mock.script({"type": "fail", "status": 429, "retry_after": 2, "times": 2})
    run_id = world.start(flow, question=f"wait before {flow}")
    world.wait_run(run_id, timeout=60)
    assert outcomes(mock) == [(429, True), (429, True), (200, True)]
    for refused, following in pairwise(mock.requests()):
        assert following["started_at"] - refused["ended_at"] >= 2.0
    (claims,) = world.attempts(run_id).values()
    assert claims == 3
    key = "say" if flow == "saying" else "post"
    assert [outcome for outcome, _ in world.ended(run_id, key)] == ["interrupted"] * 2


def test_a_server_error_is_waited_out(world: World, mock: LlmMock) -> None:
    mock.script({"type": "fail", "status": 500, "times": 2})
    run_id = world.start("saying", question="and if it breaks")
    world.wait_run(run_id, timeout=60)
    assert outcomes(mock) == [(500, True), (500, True), (200, True)]


def test_an_answer_slower_than_the_time_out_is_asked_for_again(world: World, mock: LlmMock) -> None:
    mock.script({"type": "delay", "seconds": 6})
    run_id = world.start("saying", question="slowly now")
    world.wait_run(run_id, timeout=60)
    assert len(mock.requests()) == 2


@pytest.mark.parametrize("kind", ["disconnect", "truncate", "malformed"])
def test_a_stream_that_breaks_or_ends_too_early_is_never_an_answer(
    world: World, mock: LlmMock, kind: str
) -> None:
    mock.script({"type": "stream_fault", "kind": kind, "after_chunks": 2})
    question = f"tell me all of it, whatever {kind} does to the stream between us"
    run_id = world.start("telling", question=question)
    world.wait_run(run_id, timeout=60)
    assert len(mock.requests()) == 2
    assert question in world.value(run_id, "tell")


def test_an_answer_that_is_no_json_is_asked_for_again_and_then_given_up(
    world: World, mock: LlmMock
) -> None:
    mock.script({"type": "reply", "text": '{"level": "low", "final": tr', "times": 3})
    run_id = world.start("assessing", question="how risky is it")
    world.wait_run(run_id, "failed", timeout=60)
    assert len(mock.requests()) == 3
    assert "schema" in str(world.step(run_id, "assess").error).lower()
    mock.reset()
    good = {"level": "low", "final": True, "parties": [{"name": "Acme", "share": 7}]}
    mock.script(
        {"type": "reply", "text": '{"level": "low"}'},
        {"type": "reply", "text": json.dumps(good)},
    )
    second = world.start("assessing", question="how risky is the other")
    world.wait_run(second, timeout=60)
    assert world.value(second, "assess") == good
    assert len(mock.requests()) == 2


def test_a_quota_is_obeyed_by_all_runs_together(
    make_world: Callable[..., AbstractContextManager[World]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The bucket of a provider: 30 requests a minute, of which the first 30 come at once."""
    directory = tmp_path_factory.mktemp("quota")
    with llmock(directory, "--response-style", "echo", "--rpm", "30") as mock:
        env = {"ONWARD_LLM_BASE_URL": mock.openai, "ONWARD_LLM_MODEL": "gpt-4o"}
        with make_world(agents="tests.agents.talking", env=env) as world:
            world.cluster.up(workers=1, concurrency=4)
            runs = [world.start("posting", question=f"question {n}") for n in range(34)]
            world.wait_runs(runs, timeout=90)
        answered = [one for one in mock.requests() if one["status"] == 200]
        assert len(answered) == len(runs)
        refused = [one for one in mock.requests() if one["status"] == 429]
        early = {
            later["seq"]
            for one in refused
            for later in mock.requests()
            if one["ended_at"] < later["started_at"] < one["ended_at"] + one["retry_after"] - 0.05
        }
        in_the_air = 4  #: requests that had left when the first refusal came
        assert len(early) <= in_the_air
