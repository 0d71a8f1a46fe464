"""Graphs whose nodes run side by side, on the recorder itself."""

from collections.abc import Iterator

import pytest

from models.journal.values import Claimed
from models.settings import settings
from tests.adapters.langgraph.killed import ask_both
from tests.support.intents import at_work
from tests.support.journal import Journal
from tests.support.models import ModelService
from tests.support.recording import attempt, next_attempt


@pytest.fixture
def claimed(
    journal: Journal, models: ModelService, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Claimed]:
    monkeypatch.setenv("ONWARD_MODEL_ENDPOINTS", models.url)
    monkeypatch.setenv("OPENAI_BASE_URL", models.url)
    monkeypatch.setenv("ONWARD_SECRET_OPENAI_API_KEY", "sk-of-a-test")
    settings.cache_clear()
    yield at_work()
    monkeypatch.undo()
    settings.cache_clear()


def test_a_graph_that_runs_several_times_in_a_step_gets_its_own_answers_again(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    rounds = (
        4  # each on the threads of another pool; the model answers the same question differently
    )
    with attempt(claimed) as ctx:
        first = [ask_both(ctx, "it") for _ in range(rounds)]
    with next_attempt(journal, claimed) as ctx:
        again = [ask_both(ctx, "it") for _ in range(rounds)]

    assert again == first
    assert len(set(first)) == rounds
    assert models.count() == 3 * rounds
