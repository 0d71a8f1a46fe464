"""Requests of async bodies and of threads: none is made twice, and no two answers change places."""

import asyncio
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from openai import AsyncOpenAI

from models.journal import wallets
from models.journal.values import Claimed
from tasks import Context
from tasks.errors import CallScopeNeeded, EffectBlocked
from tasks.recorder import CallOptions, Freshness, asking, scopes
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


@pytest.fixture
def claimed(journal: Journal, models: ModelService) -> Iterator[Claimed]:
    with configured(ONWARD_MODEL_ENDPOINTS=models.url):
        yield at_work()


def run(ctx: Context, body: Any) -> Any:
    """As the engine runs an async body."""

    async def whole() -> Any:
        ctx.enter_task()
        return await body()

    with asyncio.Runner(loop_factory=scopes.new_loop) as runner:
        return runner.run(whole())


def gathering(ctx: Context, models: ModelService, *, members: int = 4) -> list[str]:
    """The same prompt from several tasks at once, on one client, twice each."""

    async def body() -> list[str]:
        async with ctx.async_httpx_client() as client:

            async def ask() -> str:
                answer = await client.post(f"{models.url}/chat/completions", json=chat("sample"))
                return said(answer)

            async def member() -> list[str]:
                return [await ask(), await ask()]

            first = await ask()
            found = await asyncio.gather(*(member() for _ in range(members)))
            return [first, *(text for texts in found for text in texts)]

    answers: list[str] = run(ctx, body)
    return answers


def test_gathered_calls_get_their_own_answers_again(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    delays = [Answer(text=f"answer {number}", delay=0.05 * (number % 3)) for number in range(9)]
    models.script("sample", *delays)
    with attempt(claimed) as ctx:
        live = gathering(ctx, models)
    with next_attempt(journal, claimed) as ctx:
        assert gathering(ctx, models) == live
        assert recorder_of(ctx).left_over() is None
    assert sorted(live) == sorted(f"answer {number}" for number in range(9))
    assert models.count("sample") == 9


def test_a_stream_is_handed_on_as_one_by_an_sdk_live_and_replayed(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    seen: list[bytes] = []

    async def stream(ctx: Context) -> str:
        async with AsyncOpenAI(
            base_url=models.url, api_key="k", http_client=ctx.async_httpx_client(), max_retries=0
        ) as sdk:
            with asking(CallOptions(on_chunk=seen.append)) as told:
                pieces = await sdk.chat.completions.create(**chat("tell me"), stream=True)
            text = "".join(
                [piece.choices[0].delta.content or "" async for piece in pieces if piece.choices]
            )
        assert told.incoming is not None
        return f"{text} {told.incoming.replayed}"

    models.script("tell me", "once upon a time")
    with attempt(claimed) as ctx:
        assert run(ctx, lambda: stream(ctx)) == "once upon a time False"
    live = len(seen)
    assert live > 0
    with next_attempt(journal, claimed) as ctx:
        assert run(ctx, lambda: stream(ctx)) == "once upon a time True"
    assert len(seen) == live
    assert models.count("tell me") == 1


def test_a_cut_stream_is_asked_again(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    models.script("tell me", Answer(text="All is well.", ends="half"), "All is well, really.")
    with attempt(claimed) as ctx, ctx.httpx_client() as client:
        answer = client.post(f"{models.url}/chat/completions", json=chat("tell me", stream=True))
    assert b"really" in answer.content
    assert calls(journal) == [("", 0, "cut", "rejected"), ("", 1, "complete", None)]


def test_parallel_threads_with_scopes_get_their_own_answers_again(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    def body(ctx: Context) -> list[str]:
        def member(name: str) -> str:
            with ctx.scope(name), ctx.httpx_client() as client:
                answers = [
                    client.post(f"{models.url}/chat/completions", json=chat("sample"))
                    for _ in range(2)
                ]
            return " ".join(map(said, answers))

        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(member, ["a", "b", "c", "d"]))

    models.script(
        "sample", *[Answer(text=f"{number}", delay=0.05 * (number % 3)) for number in range(8)]
    )
    with attempt(claimed) as ctx:
        live = body(ctx)
    with next_attempt(journal, claimed) as ctx:
        assert body(ctx) == live
    assert models.count("sample") == 8


def test_tasks_that_take_their_work_from_a_queue_name_it(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    """Which of them does what is another each time: a name is the same in all."""

    def body(ctx: Context) -> dict[int, str]:
        async def whole() -> dict[int, str]:
            waiting, found = list(range(6)), {}
            async with ctx.async_httpx_client() as client:

                async def worker() -> None:
                    while waiting:
                        number = waiting.pop(0)
                        with ctx.scope(f"item-{number}"):
                            answer = await client.post(
                                f"{models.url}/chat/completions", json=chat("sample")
                            )
                        found[number] = said(answer)

                await asyncio.gather(*(worker() for _ in range(3)))
            return found

        answers: dict[int, str] = run(ctx, whole)
        return answers

    delays = [0.4, 0.0, 0.2, 0.0, 0.0, 0.0]
    models.script("sample", *[Answer(text=f"{at}", delay=each) for at, each in enumerate(delays)])
    with attempt(claimed) as ctx:
        live = body(ctx)
    with next_attempt(journal, claimed) as ctx:
        assert body(ctx) == live
        assert recorder_of(ctx).left_over() is None
    assert models.count("sample") == 6


def test_one_name_in_two_tasks_is_refused_however_they_follow_each_other(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    async def member(ctx: Context, client: Any) -> str:
        with ctx.scope("the same"):
            return said(await client.post(f"{models.url}/chat/completions", json=chat("sample")))

    async def whole(ctx: Context) -> None:
        async with ctx.async_httpx_client() as client:
            await asyncio.create_task(member(ctx, client))
            await asyncio.create_task(member(ctx, client))

    with attempt(claimed) as ctx, pytest.raises(CallScopeNeeded, match="'/name:the same'"):
        run(ctx, lambda: whole(ctx))
    assert models.count("sample") == 1


def test_a_cancelled_request_is_paid_for_and_its_place_stays_its_own(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    models.script("slow", Answer(text="slow", delay=1.0))
    models.script("quick", "quick")

    async def body(ctx: Context) -> str:
        async with ctx.async_httpx_client() as client:
            url = f"{models.url}/chat/completions"
            try:
                await asyncio.wait_for(client.post(url, json=chat("slow")), 0.2)
            except TimeoutError:
                return said(await client.post(url, json=chat("quick")))
            return "in time"

    with attempt(claimed) as ctx:
        assert run(ctx, lambda: body(ctx)) == "quick"
    standing = wallets.standing(claimed.run_id)
    assert standing.held_tokens == 0
    assert standing.recovery_tokens > 0
    with next_attempt(journal, claimed) as ctx:
        assert run(ctx, lambda: body(ctx)) == "quick"
    models.wait_idle()
    assert models.count("quick") == 1


def test_reads_are_recorded_and_fresh_as_their_reader_wants_them(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    url = f"{models.url}/models"

    def read(ctx: Context, freshness: Freshness, seconds: float) -> Any:
        with ctx.httpx_client(freshness=freshness, max_age=timedelta(seconds=seconds)) as client:
            return client.get(url).extensions["onward"]

    with attempt(claimed) as ctx:
        assert not read(ctx, Freshness.MARK, 10).replayed
    with next_attempt(journal, claimed) as ctx:
        old = read(ctx, Freshness.MARK, 10)
        assert (old.replayed, old.stale) == (True, True)
        assert old.age > 30
    with next_attempt(journal, claimed) as ctx:
        plain = read(ctx, Freshness.REPLAY, 10)
        assert (plain.replayed, plain.stale) == (True, False)
    with next_attempt(journal, claimed) as ctx:
        young = read(ctx, Freshness.REFETCH, 1000)
        assert young.replayed
    with next_attempt(journal, claimed) as ctx:
        anew = read(ctx, Freshness.REFETCH, 10)
        assert (anew.replayed, anew.stale) == (False, False)
    with next_attempt(journal, claimed) as ctx:
        latest = read(ctx, Freshness.REFETCH, 100)
        assert latest.replayed
        assert latest.age < 60
        assert recorder_of(ctx).left_over() is None


def test_a_step_that_may_branch_sets_its_records_aside_and_asks_anew(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    def ask(ctx: Context, text: str) -> str:
        with ctx.httpx_client() as client:
            return said(client.post(f"{models.url}/chat/completions", json=chat(text)))

    with attempt(claimed) as ctx:
        ask(ctx, "old")
        ask(ctx, "old too")
    with next_attempt(journal, claimed, on_mismatch="branch") as ctx:
        first = ask(ctx, "new")
    with next_attempt(journal, claimed) as ctx:
        assert ask(ctx, "new") == first
        assert recorder_of(ctx).left_over() is None
    assert models.count("new") == 1
    with next_attempt(journal, claimed) as ctx, pytest.raises(EffectBlocked):
        ask(ctx, "newer")


def test_a_soft_time_limit_during_a_request_charges_it(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    from billiard.exceptions import SoftTimeLimitExceeded  # noqa: PLC0415 - as the pool raises it

    def strike(*_: object) -> None:
        raise SoftTimeLimitExceeded

    models.script("slow", Answer(delay=5.0))
    before = signal.signal(signal.SIGALRM, strike)
    try:
        with attempt(claimed) as ctx, ctx.httpx_client() as client:
            signal.setitimer(signal.ITIMER_REAL, 0.4)
            with pytest.raises(SoftTimeLimitExceeded):
                client.post(f"{models.url}/chat/completions", json=chat("slow"))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    standing = wallets.standing(claimed.run_id)
    assert (standing.held_calls, standing.spent_calls) == (0, 1)
    assert standing.recovery_tokens == standing.spent_tokens > 0
