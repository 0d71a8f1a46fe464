"""Which record a request meets in a later attempt, when something failed, was refused or was let go before it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from decimal import Decimal
from typing import Any

import httpx2
import pytest
from openai import BadRequestError, OpenAI
from pydantic import BaseModel

from models.journal import calls as journal_calls
from models.journal import wallets
from models.journal.values import Claimed
from tasks import Context
from tasks.errors import AnswerIncomplete, EffectBlocked, final_cause
from tasks.llm.errors import SchemaInvalid
from tests.support.desk import DESK, Idempotent, Wanted
from tests.support.intents import at_work
from tests.support.journal import Journal
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
from tests.support.site import Site

HALF = Answer(text="half", finish="length")


@pytest.fixture
def claimed(journal: Journal, models: ModelService) -> Iterator[Claimed]:
    DESK.reset()
    with configured(
        ONWARD_MODEL_ENDPOINTS=models.url,
        ONWARD_LLM_BASE_URL=models.url,
        ONWARD_LLM_MODEL="gpt-x",
        ONWARD_PRICES='{"gpt-x": {"call": 0.3}}',
    ):
        yield at_work()
    DESK.reset()


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.close()


def ask(ctx: Context, models: ModelService, text: str, **fields: object) -> httpx2.Response:
    with ctx.httpx_client() as client:
        response: httpx2.Response = client.post(
            f"{models.url}/chat/completions", json=chat(text, **fields)
        )
        return response


def let_go(claimed: Claimed) -> None:
    """As ``onward runs retry`` does."""
    journal_calls.pardon(claimed.run_id, claimed.step_key, actor="ada", reason="another prompt")


def test_a_read_that_failed_first_meets_its_own_record_when_it_does_not(
    journal: Journal, models: ModelService, claimed: Claimed, site: Site
) -> None:
    def body(ctx: Context) -> str:
        with ctx.httpx_client() as client:
            pages = (client.get(site.url) for _ in range(4))
            page = next(page for page in pages if page.is_success)
        return said(ask(ctx, models, f"about {page.text}"))

    site.statuses[:] = [500, 502]
    with attempt(claimed) as ctx:
        first = body(ctx)
    with next_attempt(journal, claimed) as ctx:
        assert body(ctx) == first
        assert recorder_of(ctx).left_over() is None
    assert [place for _, place, _, _ in calls(journal)] == [2, 3]
    assert models.count("about hello") == 1


def test_a_read_goes_over_a_gap_to_its_own_record_only(
    journal: Journal, models: ModelService, claimed: Claimed, site: Site
) -> None:
    site.statuses[:] = [500]
    with attempt(claimed) as ctx, ctx.httpx_client() as client:
        client.get(f"{site.url}/1")
        client.get(f"{site.url}/2")
        client.get(f"{site.url}/1")
    with next_attempt(journal, claimed) as ctx, ctx.httpx_client() as client:
        assert not client.get(f"{site.url}/1").extensions["onward"].replayed
        assert client.get(f"{site.url}/2").extensions["onward"].replayed
        assert client.get(f"{site.url}/1").extensions["onward"].replayed
    assert [place for _, place, _, _ in calls(journal)] == [1, 2, 0]


def test_a_conflict_that_an_sdk_gets_over_is_gone_over_in_the_next_attempt(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    def body(ctx: Context) -> Any:
        with OpenAI(base_url=models.url, api_key="k", http_client=ctx.httpx_client()) as sdk:
            return sdk.chat.completions.create(**chat("taken")).choices[0].message.content

    models.script("taken", Answer(status=409), Answer(text="yours"))
    with attempt(claimed) as ctx:
        assert body(ctx) == "yours"
    with next_attempt(journal, claimed) as ctx:
        assert body(ctx) == "yours"
        assert recorder_of(ctx).left_over() is None
    assert models.count("taken") == 2
    assert calls(journal) == [("", 1, "complete", None)]


def test_a_body_that_went_on_from_a_refusal_does_so_again(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    def body(ctx: Context) -> Any:
        with OpenAI(base_url=models.url, api_key="k", http_client=ctx.httpx_client()) as sdk:
            try:
                answer = sdk.chat.completions.create(**chat("too long"))
            except BadRequestError as refused:
                assert "400" in str(refused)  # noqa: PT017 - the SDK reads it from the record as from the wire
                answer = sdk.chat.completions.create(**chat("short"))
            return answer.choices[0].message.content

    models.script("too long", Answer(status=400), "it fits now")
    with attempt(claimed) as ctx:
        first = body(ctx)
    let_go(claimed)  # for whatever reason: what was answered after the refusal rests on it
    for _ in range(2):
        with next_attempt(journal, claimed) as ctx:
            assert body(ctx) == first
            assert recorder_of(ctx).left_over() is None
    assert (models.count("too long"), models.count("short")) == (1, 1)
    assert calls(journal) == [("", 0, "failed", None), ("", 1, "complete", None)]
    standing = wallets.standing(claimed.run_id)
    assert (standing.spent_cost, standing.held_calls) == (Decimal("0.3"), 0)


@pytest.mark.parametrize("second", ["wrong", "right"])
def test_a_refusal_that_was_the_end_is_asked_about_anew_once_a_person_says_so(
    journal: Journal, models: ModelService, claimed: Claimed, second: str
) -> None:
    models.script("wrong", Answer(status=422), "taken")
    with attempt(claimed) as ctx:
        assert ask(ctx, models, "wrong").status_code == 422
    with next_attempt(journal, claimed) as ctx:
        assert ask(ctx, models, "wrong").status_code == 422
    assert models.count("wrong") == 1
    let_go(claimed)
    with next_attempt(journal, claimed) as ctx:
        first = said(ask(ctx, models, second))
    with next_attempt(journal, claimed) as ctx:
        assert said(ask(ctx, models, second)) == first
        assert recorder_of(ctx).left_over() is None
    assert calls(journal) == [("", 0, "failed", None), ("", 1, "complete", None)]


def test_a_changed_prompt_takes_the_place_of_what_was_given_up_once_a_person_says_so(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    models.script("half", *[HALF] * 3)
    with attempt(claimed) as ctx, pytest.raises(AnswerIncomplete, match="onward runs retry"):
        ask(ctx, models, "half")
    with next_attempt(journal, claimed) as ctx, pytest.raises(EffectBlocked, match="position 0"):
        ask(ctx, models, "better")
    let_go(claimed)
    with next_attempt(journal, claimed) as ctx:
        better = said(ask(ctx, models, "better", max_tokens=4000))
    with next_attempt(journal, claimed) as ctx:
        assert said(ask(ctx, models, "better", max_tokens=4000)) == better
        assert recorder_of(ctx).left_over() is None
    assert models.count("better") == 1
    assert [place for _, place, _, _ in calls(journal)] == [0, 1, 2, 3]


def test_an_accepted_answer_is_not_gone_over_whoever_says_so(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    models.script("half", *[HALF] * 3)
    with attempt(claimed) as ctx:
        ask(ctx, models, "one")
        with pytest.raises(AnswerIncomplete):
            ask(ctx, models, "half")
    let_go(claimed)
    with next_attempt(journal, claimed) as ctx, pytest.raises(EffectBlocked, match="position 0"):
        ask(ctx, models, "another one")


class Rated(BaseModel):
    rating: str


def test_a_changed_prompt_of_ctx_llm_is_asked_once_a_person_says_so(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    models.script("bad", *["no json"] * 3)
    models.script("better", Answer(value={"rating": "a"}))
    with attempt(claimed) as ctx, pytest.raises(SchemaInvalid, match="onward runs retry"):
        ctx.llm.ask(Rated, "bad prompt")
    let_go(claimed)
    for _ in range(2):
        with next_attempt(journal, claimed) as ctx:
            assert ctx.llm.ask(Rated, "better prompt").rating == "a"
            assert recorder_of(ctx).left_over() is None
    assert models.count("better") == 1


def test_a_second_sample_is_asked_for_whatever_became_of_the_first(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    def body(ctx: Context) -> Any:
        with OpenAI(base_url=models.url, api_key="k", http_client=ctx.httpx_client()) as sdk:
            with pytest.raises(Exception) as failed:  # noqa: PT011 - the SDK's own
                sdk.chat.completions.create(**chat("sample"))
            assert isinstance(final_cause(failed.value), AnswerIncomplete)
            return sdk.chat.completions.create(**chat("sample")).choices[0].message.content

    models.script("sample", *[HALF] * 3, "whole")
    with attempt(claimed) as ctx:
        assert body(ctx) == "whole"
    with next_attempt(journal, claimed) as ctx:
        assert body(ctx) == "whole"
    assert models.count("sample") == 4


@pytest.mark.parametrize("named", [False, True])
def test_an_effect_rests_on_all_that_was_answered_where_it_stands(
    journal: Journal, models: ModelService, claimed: Claimed, named: bool
) -> None:
    def scope(ctx: Context) -> AbstractContextManager[None]:
        return ctx.scope("page-1") if named else nullcontext()

    with attempt(claimed) as ctx, scope(ctx):
        ask(ctx, models, "one")
        ask(ctx, models, "two")
    with next_attempt(journal, claimed) as ctx, scope(ctx):
        ask(ctx, models, "one")
        with pytest.raises(EffectBlocked, match="were not asked for again"):
            ctx.call(Idempotent(), Wanted())
    assert DESK.calls == []


def test_an_effect_does_not_wait_for_siblings_that_have_not_come_to_their_requests(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    def member(ctx: Context, name: str) -> None:
        with ctx.scope(name):
            ask(ctx, models, name)

    def effect(ctx: Context) -> None:
        member(ctx, "left")
        ctx.call(Idempotent(), Wanted(), name="left")

    with attempt(claimed) as ctx:
        for name in ("left", "right"):
            with ThreadPoolExecutor(1) as pool:
                pool.submit(member, ctx, name).result()
    with next_attempt(journal, claimed) as ctx:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(effect, ctx).result()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(member, ctx, "right").result()
        assert recorder_of(ctx).left_over() is None
    assert len(DESK.calls) == 1


def test_an_effect_of_a_thread_rests_on_what_was_answered_to_it(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    def member(ctx: Context, *texts: str) -> None:
        with ctx.scope("left"):
            for text in texts:
                ask(ctx, models, text)

    def effect(ctx: Context) -> None:
        member(ctx, "one")
        ctx.call(Idempotent(), Wanted(), name="left")

    with attempt(claimed) as ctx, ThreadPoolExecutor(1) as pool:
        pool.submit(member, ctx, "one", "two").result()
    with (
        next_attempt(journal, claimed) as ctx,
        ThreadPoolExecutor(1) as pool,
        pytest.raises(EffectBlocked, match="were not asked for again"),
    ):
        pool.submit(effect, ctx).result()
    assert DESK.calls == []
