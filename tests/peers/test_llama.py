"""A real inference server: grammars, token usage, streams, its own errors, and each answer asked for once."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from models.journal import calls as recorded
from tests.agents.talking import Risk
from tests.support.peers import llama
from tests.support.world import World


@pytest.fixture(scope="module")
def world(
    make_world: Callable[..., AbstractContextManager[World]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[World]:
    with llama(tmp_path_factory.mktemp("llama")) as url:
        env = {"ONWARD_LLM_BASE_URL": url, "ONWARD_LLM_MODEL": "tiny"}
        with make_world(agents="tests.agents.talking", env=env) as world:
            world.cluster.up(workers=1, concurrency=2)
            yield world


def calls(run_id: str) -> list[tuple[str, str | None, int, int]]:
    """(state, verdict, tokens in, tokens out) of what a run has asked."""
    return [
        (one.state, one.verdict, one.tokens_in or 0, one.tokens_out or 0)
        for one in recorded.of_run(run_id)
    ]


def test_a_schema_holds_for_what_a_model_of_random_weights_says(world: World) -> None:
    runs = [world.start("assessing", question=f"contract {number}") for number in range(5)]
    world.wait_runs(runs, timeout=60)
    found = [Risk.model_validate(world.value(run_id, "assess")) for run_id in runs]
    assert len({one.model_dump_json() for one in found}) > 1
    for run_id in runs:
        *rejected, (state, verdict, tokens_in, tokens_out) = calls(run_id)
        assert (state, verdict) == ("complete", "accepted")
        assert all(one[1] == "rejected" for one in rejected), "nonsense may run into its limit"
        assert tokens_in > 0
        assert tokens_out > 0


def test_an_answer_at_its_length_limit_is_not_taken_for_a_whole_one(world: World) -> None:
    run_id = world.start("saying", question="say something")
    world.wait_run(run_id, "completed", "failed", timeout=60)
    found = calls(run_id)
    lengths = [one for one in found if one[0] == "length"]
    assert all(verdict == "rejected" and out == 24 for _, verdict, _, out in lengths)
    assert world.state(run_id) == ("failed" if len(lengths) == 3 else "completed")


def test_a_question_beyond_the_context_is_the_servers_own_error(world: World) -> None:
    run_id = world.start("saying", question="word " * 3000)
    world.wait_run(run_id, "failed", timeout=60)
    assert "context" in str(world.step(run_id, "say").error).lower()
    assert calls(run_id) == [("failed", None, 0, 0)], (
        "kept as what it is, so that replay goes the same way"
    )
