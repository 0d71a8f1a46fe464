"""The rows of docs/results/performance.md about model calls and artifacts: each is measured once, briefly."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import artifacts, model_calls
from models.settings import settings
from tasks import registry
from tests.support.journal import Journal

CALLS = 40
SIZE = 3_000_000


@pytest.fixture
def bench(journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where a benchmark keeps what it makes, with its agent loaded."""
    monkeypatch.setenv("ONWARD_AGENTS", "benchmarks.agent")
    monkeypatch.setenv("ONWARD_ARTIFACTS", str(tmp_path / "artifacts"))
    settings.cache_clear()
    registry.load_agents()
    yield tmp_path
    settings.cache_clear()


def test_what_recording_costs_a_model_call_is_told_in_counts_and_times(bench: Path) -> None:
    plain, recorded, replayed = costs = model_calls.measure(bench / "models", calls=CALLS)
    assert plain.commits < 1
    assert 2 <= recorded.commits < 3, "the reservation, and the answer with its settlement"
    assert replayed.commits < 1, "an answer from the record writes nothing"
    assert all(one.calls == CALLS and one.wall > 0 for one in costs)
    told = "\n".join(model_calls.lines(costs))
    assert f"asked {CALLS} times in a row" in told
    for name in (model_calls.PLAIN, model_calls.RECORDED, model_calls.REPLAYED):
        assert f"| {name} |" in told


def test_what_a_large_artifact_costs_is_told_by_kind_of_content(bench: Path) -> None:
    text, dense, result = costs = artifacts.artifact_costs(size=SIZE, times=1)
    assert text.stored < SIZE / 2, "words are compressed"
    assert SIZE <= dense.stored < 1.01 * SIZE, "dense bytes are not"
    assert result.stored < SIZE / 2
    assert not list((bench / "artifacts").rglob("*.tmp"))
    told = "\n".join(artifacts.table(costs))
    assert "3 MB beside the journal" in told
    assert artifacts.SIZE == 50_000_000
    assert told.count("\n| ") == 5
