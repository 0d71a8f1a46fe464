"""Requests of a step over a real journal and a real model service, which counts what reaches it."""

import json
from collections.abc import Iterator

import httpx2
import pytest

from models.journal.values import Claimed
from models.states import BlockReason
from tasks import Context
from tasks.errors import EffectBlocked, UndeclaredEffect
from tests.support.intents import at_work
from tests.support.journal import Journal
from tests.support.meter import meter
from tests.support.models import Answer, ModelService
from tests.support.recording import (
    attempt,
    calls,
    chat,
    configured,
    next_attempt,
    recorder_of,
    said,
)

DIFFERENCE = r"position 0 of scope '' differs in 'messages', 'temperature' \(was 0.1, is 0.2\)"


@pytest.fixture
def claimed(journal: Journal, models: ModelService) -> Iterator[Claimed]:
    with configured(ONWARD_MODEL_ENDPOINTS=models.url):
        yield at_work()


def ask(ctx: Context, models: ModelService, text: str, **fields: object) -> httpx2.Response:
    with ctx.httpx_client() as client:
        response: httpx2.Response = client.post(
            f"{models.url}/chat/completions", json=chat(text, **fields)
        )
        return response


def test_an_answer_is_recorded_and_given_again_without_a_request(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    with attempt(claimed) as ctx:
        first = ask(ctx, models, "how are you")
    with next_attempt(journal, claimed) as ctx:
        again = ask(ctx, models, "how are you")

    assert first.status_code == again.status_code == 200
    assert first.content == again.content
    assert dict(first.headers) == dict(again.headers)
    assert (first.extensions["onward"].replayed, again.extensions["onward"].replayed) == (
        False,
        True,
    )
    assert models.count("how are you") == 1
    assert calls(journal) == [("", 0, "complete", None)]
    (row,) = journal.rows("SELECT * FROM recorded_call")
    assert json.loads(row["request"]) == chat("how are you")
    assert (row["model"], row["dialect"], row["endpoint"]) == ("gpt-x", "openai.chat", models.url)
    assert row["tokens_in"] > 0
    assert row["tokens_out"] > 0


def test_a_call_is_two_commits_and_its_replay_none(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    with attempt(claimed) as ctx:
        ask(ctx, models, "first")  # statements are prepared, the wallet is opened
        with meter(journal) as live:
            ask(ctx, models, "second")
    with next_attempt(journal, claimed) as ctx:
        ask(ctx, models, "first")
        with meter(journal) as replayed:
            ask(ctx, models, "second")
    assert live.durable == 2
    assert replayed.durable == 0


def test_identical_prompts_are_calls_of_their_own(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    models.script("a sample", "a", "b", "c")
    with attempt(claimed) as ctx:
        live = [said(ask(ctx, models, "a sample")) for _ in range(2)]
        live += [said(ask(ctx, models, "a sample", temperature=0.9))]
    with next_attempt(journal, claimed) as ctx:
        again = [said(ask(ctx, models, "a sample")) for _ in range(2)]
        again += [said(ask(ctx, models, "a sample", temperature=0.9))]
    assert live == again == ["a", "b", "c"]
    assert models.count("a sample") == 3


def test_another_question_at_the_place_of_a_recorded_one_stops_the_step(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    with attempt(claimed) as ctx:
        ask(ctx, models, "as it was", temperature=0.1)
    with next_attempt(journal, claimed) as ctx:
        with pytest.raises(EffectBlocked, match=DIFFERENCE) as stopped:
            ask(ctx, models, "as it is", temperature=0.2)
        assert stopped.value.reason is BlockReason.REPLAY_MISMATCH
        assert recorder_of(ctx).ledger.close() is stopped.value
    assert models.count("as it is") == 0
    (event,) = journal.rows("SELECT * FROM event WHERE kind = 'replay_mismatch'")
    assert "position 0" in event["detail"]


def test_answers_that_are_not_asked_for_again_stop_the_step_at_its_end(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    with attempt(claimed) as ctx:
        ask(ctx, models, "one")
        ask(ctx, models, "two")
    with next_attempt(journal, claimed) as ctx:
        ask(ctx, models, "one")
        stop = recorder_of(ctx).left_over()
    assert isinstance(stop, EffectBlocked)
    assert "the first at position 1" in str(stop)


def test_what_changes_the_world_is_refused_with_the_way_out(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    with attempt(claimed) as ctx, ctx.httpx_client() as client:
        with pytest.raises(
            UndeclaredEffect, match=r"make it a Tool.*declare_endpoint.*untracked=True"
        ):
            client.post("http://127.0.0.1:1/orders", json={})
        with pytest.raises(UndeclaredEffect, match="only requests for answers"):
            client.post(f"{models.url}/files", json={})
        with pytest.raises(UndeclaredEffect):
            client.delete(f"{models.url}/models/gpt-x")
    assert models.calls() == []
    assert calls(journal) == []


def test_an_incomplete_answer_is_recorded_rejected_and_asked_again(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    models.script("long", Answer(text="half of it", finish="length"), "all of it")
    with attempt(claimed) as ctx:
        assert said(ask(ctx, models, "long")) == "all of it"
    assert calls(journal) == [("", 0, "length", "rejected"), ("", 1, "complete", None)]
    with next_attempt(journal, claimed) as ctx:
        assert said(ask(ctx, models, "long")) == "all of it"
    assert models.count("long") == 2
