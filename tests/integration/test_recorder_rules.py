"""What the recorder lets pass and what it stops: effects, limits, answers that are being made, secrets."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from models.journal import wallets
from models.journal.values import Claimed
from models.settings import settings
from models.states import BlockReason
from tasks import Context, Effect, Freshness, Tool
from tasks.errors import (
    CallPostponed,
    CallRefused,
    CallScopeNeeded,
    EffectBlocked,
    EffectPostponed,
    UndeclaredEffect,
)
from tasks.recorder import asking, declared
from tasks.recorder.declared import declare_endpoint
from tasks.recorder.options import CallOptions
from tests.support.desk import DESK, Idempotent, Queryable, Wanted
from tests.support.intents import again, at_work
from tests.support.journal import Journal
from tests.support.models import Answer, ModelService
from tests.support.recording import attempt, calls, chat, next_attempt, recorder_of, said
from tests.support.waiting import wait_until

READ: list[str] = []


class Weather(Tool[str, str]):
    """Something that is another each time it is read."""

    name, effect = "rules.weather", Effect.PURE
    max_age = timedelta(seconds=10)

    def execute(self, request: str, *, key: str) -> str:
        READ.append(request)
        return f"{request} {len(READ)}"


@pytest.fixture
def claimed(
    journal: Journal, models: ModelService, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Claimed]:
    monkeypatch.setenv("ONWARD_MODEL_ENDPOINTS", models.url)
    monkeypatch.setattr(declared, "_declared", {})
    settings.cache_clear()
    DESK.reset()
    READ.clear()
    yield at_work()
    DESK.reset()
    monkeypatch.undo()
    settings.cache_clear()


def ask(ctx: Context, models: ModelService, text: str, **fields: object) -> httpx2.Response:
    with ctx.httpx_client() as client:
        response: httpx2.Response = client.post(
            f"{models.url}/chat/completions", json=chat(text, **fields)
        )
        return response


def test_an_effect_never_rests_on_other_answers_than_are_on_record(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    with attempt(claimed) as ctx:
        ask(ctx, models, "whether to order")
    with next_attempt(journal, claimed) as ctx:
        with pytest.raises(EffectBlocked, match="were not asked for again") as stopped:
            ctx.call(Queryable(), Wanted())
        assert stopped.value.reason is BlockReason.REPLAY_MISMATCH
        assert recorder_of(ctx).ledger.close() is stopped.value
    assert DESK.calls == []


def test_an_effect_that_is_recalled_stops_nothing(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    def body(ctx: Context) -> None:
        ctx.call(Idempotent(), Wanted())
        ask(ctx, models, "what next")

    for made in (attempt(claimed), next_attempt(journal, claimed)):
        with made as ctx:
            body(ctx)
            assert recorder_of(ctx).left_over() is None
    assert len(DESK.calls) == models.count("what next") == 1


def test_records_are_not_set_aside_once_an_effect_has_happened(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    with attempt(claimed) as ctx:
        ask(ctx, models, "whether")
        ctx.call(Queryable(), Wanted())
    with (
        next_attempt(journal, claimed, on_mismatch="branch") as ctx,
        pytest.raises(EffectBlocked, match="differs in 'messages'"),
    ):
        ask(ctx, models, "whether not")
    assert models.count("whether not") == 0


def test_a_branch_after_some_answers_were_given_again_starts_anew(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    with attempt(claimed) as ctx:
        ask(ctx, models, "one")
        ask(ctx, models, "two")
    with next_attempt(journal, claimed, on_mismatch="branch") as ctx:
        ask(ctx, models, "one")
        with pytest.raises(CallPostponed) as stopped:
            ask(ctx, models, "three")
        assert stopped.value.delay == 0
    with next_attempt(journal, claimed) as ctx:
        ask(ctx, models, "one")
        ask(ctx, models, "three")
    assert (models.count("one"), models.count("three")) == (2, 1)


def test_an_untracked_step_sends_what_it_likes_and_nothing_of_it_is_recorded(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    with attempt(replace(claimed, untracked=True)) as ctx, ctx.httpx_client() as client:
        assert client.post(f"{models.url}/files", json={}).status_code in (400, 404, 405)
    with attempt(claimed) as ctx, ctx.httpx_client() as client, pytest.raises(UndeclaredEffect):
        client.post(f"{models.url}/files", json={})
    assert calls(journal) == []


def test_no_model_is_asked_once_the_body_has_ended(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    with attempt(claimed) as ctx:
        recorder_of(ctx).ledger.close()
        with pytest.raises(CallRefused, match="its body has ended"):
            ask(ctx, models, "late")
    assert models.calls() == []


def test_requests_of_threads_without_scopes_are_refused_before_anything_is_sent(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    with attempt(claimed) as ctx, ThreadPoolExecutor(2) as pool:
        sent = [pool.submit(ask, ctx, models, f"{number}") for number in range(2)]
        for one in sent:
            with pytest.raises(CallScopeNeeded, match=r"with ctx\.scope\(name\)"):
                one.result()
    assert models.calls() == []


def test_a_limit_of_requests_holds_and_a_short_wait_is_made_in_place(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    declare_endpoint(models.url, requests_per_minute=120)
    with attempt(claimed) as ctx:
        for _ in range(6):
            ask(ctx, models, "paced")
    at = sorted(call.at for call in models.calls("paced"))
    assert 1.0 <= at[-1] - at[0] <= 4.0  # two a second; a second's worth may leave at once


def test_a_long_wait_for_a_limit_gives_the_step_back(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    declare_endpoint(models.url, tokens_per_minute=100)
    with attempt(claimed) as ctx:
        ask(ctx, models, "first", max_tokens=400)
        started = time.monotonic()
        with pytest.raises(EffectPostponed, match="its limit is reached"):
            ask(ctx, models, "second", max_tokens=400)
    assert time.monotonic() - started < 5
    assert models.count("second") == 0
    assert wallets.standing(claimed.run_id).held_calls == 0


def test_an_answer_that_is_being_made_is_asked_for_once_and_looked_at_until_it_is_there(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    models.script("think long", Answer(text="forty-two", polls=3))
    asked = {"model": "gpt-x", "input": "think long", "background": True}

    def begin(client: Any) -> Any:
        return client.post(f"{models.url}/responses", json=asked)

    with attempt(claimed) as ctx, ctx.httpx_client() as client:
        begun = begin(client)
        incoming = begun.extensions["onward"]
        assert (incoming.state, incoming.replayed) == ("pending", False)
        look = client.get(f"{models.url}/responses/{begun.json()['id']}")
        assert look.extensions["onward"].state == "pending"
    assert wallets.standing(claimed.run_id).held_calls == 1
    with next_attempt(journal, claimed) as ctx, ctx.httpx_client() as client:
        assert begin(client).extensions["onward"].replayed
        for _ in range(5):
            look = client.get(f"{models.url}/responses/{begun.json()['id']}")
            if look.extensions["onward"].state != "pending":
                break
        assert "forty-two" in look.text
    assert calls(journal) == [("", 0, "pending", None), ("", 1, "complete", None)]
    standing = wallets.standing(claimed.run_id)
    billed = models.billed("think long")
    assert (standing.held_calls, standing.spent_calls) == (0, 1)
    assert standing.spent_tokens == billed.tokens
    with next_attempt(journal, claimed) as ctx, ctx.httpx_client() as client:
        begin(client)
        last = client.get(f"{models.url}/responses/{begun.json()['id']}")
        assert last.extensions["onward"].replayed
    assert models.count("think long", kind="responses") == 1


def test_options_of_one_request_go_with_it(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    models.script("cut short", Answer(text="part", finish="length"))
    with attempt(claimed) as ctx, ctx.httpx_client() as client:
        with asking(CallOptions(accept_length=True)) as told:
            assert (
                said(client.post(f"{models.url}/chat/completions", json=chat("cut short")))
                == "part"
            )
        assert told.incoming is not None
        assert told.incoming.verdict == "accepted"
        extension = {"onward": CallOptions(accept_length=True, give_verdict=True)}
        answer = client.post(
            f"{models.url}/chat/completions", json=chat("cut short"), extensions=extension
        )
        answer.extensions["onward"].reject("not what I wanted")
    assert [verdict for *_, verdict in calls(journal)] == ["accepted", "rejected"]


def test_a_tool_that_reads_says_how_old_its_answer_is(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    def read(ctx: Context, freshness: Freshness) -> Any:
        return ctx.read(Weather(), "Berlin", name="now", freshness=freshness)

    with attempt(claimed) as ctx:
        live = read(ctx, Freshness.MARK)
        assert (live.value, live.replayed, live.stale) == ("Berlin 1", False, False)
        with pytest.raises(CallRefused, match="tools that change nothing"):
            ctx.read(Queryable(), Wanted())
    with next_attempt(journal, claimed) as ctx:
        marked = read(ctx, Freshness.MARK)
        assert (marked.value, marked.replayed, marked.stale) == ("Berlin 1", True, True)
        assert marked.age > 30
    with next_attempt(journal, claimed) as ctx:
        plain = read(ctx, Freshness.REPLAY)
        assert (plain.value, plain.stale) == ("Berlin 1", False)
    with next_attempt(journal, claimed) as ctx:
        anew = read(ctx, Freshness.REFETCH)
        assert (anew.value, anew.replayed) == ("Berlin 2", False)
    with attempt(again(journal, claimed)) as ctx:
        latest = ctx.read(
            Weather(),
            "Berlin",
            name="now",
            freshness=Freshness.REFETCH,
            max_age=timedelta(minutes=1),
        )
        assert (latest.value, latest.replayed) == ("Berlin 2", True)
        assert ctx.call(Weather(), "Berlin") == "Berlin 3"
    assert len(READ) == 3


def test_connections_of_other_threads_are_closed(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    def backends() -> int:
        return int(
            journal.one("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        )

    with attempt(claimed) as ctx:
        ask(ctx, models, "own")
        before = backends()

        def other() -> None:
            with ctx.scope("other"):
                ask(ctx, models, "other")

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        # A server process ends a moment after its connection is closed.
        wait_until(lambda: backends() == before or None, what="the other thread's connection")
