"""Clients of the first httpx, which this environment has beside httpx2: recorded and replayed alike."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from models.journal.values import Claimed
from tests.support.intents import at_work
from tests.support.journal import Journal
from tests.support.models import ModelService
from tests.support.recording import attempt, calls, chat, configured, next_attempt, said

httpx: Any = pytest.importorskip("httpx")


@pytest.fixture
def claimed(journal: Journal, models: ModelService) -> Iterator[Claimed]:
    with configured(ONWARD_MODEL_ENDPOINTS=models.url):
        yield at_work()


def ask(ctx: Any, url: str) -> str:
    with httpx.Client(transport=ctx.transport(library="httpx")) as client:
        return said(client.post(url, json=chat("how are you")))


def ask_on_a_loop(ctx: Any, url: str) -> str:
    async def main() -> str:
        transport = ctx.transport(async_=True, library="httpx")
        async with httpx.AsyncClient(transport=transport) as client:
            return said(await client.post(url, json=chat("how are you")))

    return asyncio.run(main())


def hear(ctx: Any, url: str) -> str:
    with (
        httpx.Client(transport=ctx.transport(library="httpx")) as client,
        client.stream("POST", url, json=chat("how are you", stream=True)) as response,
    ):
        lines = [line[6:] for line in response.iter_lines() if line.startswith("data: {")]
    parts = [json.loads(line)["choices"] for line in lines]
    return "".join(one[0]["delta"].get("content") or "" for one in parts if one)


@pytest.mark.parametrize("way", [ask, ask_on_a_loop, hear])
def test_an_answer_is_recorded_and_given_again_without_a_request(
    journal: Journal, models: ModelService, claimed: Claimed, way: Any
) -> None:
    url = f"{models.url}/chat/completions"
    with attempt(claimed) as ctx:
        first = way(ctx, url)
    with next_attempt(journal, claimed) as ctx:
        assert way(ctx, url) == first != ""
    assert models.count("how are you") == 1
    assert [state for _, _, state, _ in calls(journal)] == ["complete"]
