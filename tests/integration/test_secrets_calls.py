"""What a model is told in confidence, and repeats piece by piece, is in no record of the call."""

import json
from collections.abc import Iterator

import pytest

from models import redaction
from models.journal.values import Claimed
from models.settings import settings
from tests.support.intents import at_work
from tests.support.journal import Journal
from tests.support.models import Answer, ModelService
from tests.support.recording import attempt, chat, next_attempt

CANARY = "CANARY-0123456789-abc"


@pytest.fixture
def claimed(
    journal: Journal, models: ModelService, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Claimed]:
    monkeypatch.setenv("ONWARD_MODEL_ENDPOINTS", models.url)
    settings.cache_clear()
    yield at_work()
    monkeypatch.undo()
    settings.cache_clear()


def _said(stream: bytes) -> str:
    datas = [line[5:] for line in stream.decode().splitlines() if line.startswith("data: {")]
    choices = [choice for data in datas for choice in json.loads(data)["choices"]]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


def test_a_streamed_answer_is_recorded_without_the_secret_that_its_events_make_up(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    redaction.register("CODE", CANARY)
    told = f"you said {CANARY} to me"
    models.script("repeat it", Answer(text=told))
    live: list[bytes] = []
    for context in (attempt(claimed), next_attempt(journal, claimed)):
        with context as ctx, ctx.httpx_client() as client:
            url, body = f"{models.url}/chat/completions", chat("repeat it", stream=True)
            live.append(client.post(url, json=body).content)
    assert live[0] == live[1], "replayed as it was given"
    assert _said(live[0]) == "you said [secret CODE] to me"
    assert models.count("repeat it") == 1
    rows = [row for table in journal.image().values() for row in table]
    assert not any(CANARY in row or "CANARY" in row for row in rows)
