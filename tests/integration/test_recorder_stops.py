"""What stops one of several requests that are under way together: the answers of the others are not paid for twice."""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from decimal import Decimal
from threading import Thread
from typing import Any

import pytest
from billiard.exceptions import SoftTimeLimitExceeded

from models.journal import wallets
from models.journal.errors import LeaseLost
from models.journal.values import Claimed
from tasks import Context, step
from tasks.errors import CallPostponed, EffectBlocked
from tasks.recorder import declared, scopes
from tasks.step import bind_step
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

Ask = Callable[[str], Coroutine[Any, Any, str]]
SLOW = [f"slow {number}" for number in range(4)]


@pytest.fixture
def claimed(journal: Journal, models: ModelService) -> Iterator[Claimed]:
    with configured(ONWARD_MODEL_ENDPOINTS=models.url, ONWARD_PRICES='{"gpt-x": {"call": 0.3}}'):
        yield at_work()


@pytest.fixture
def limited(models: ModelService, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than one request in two seconds."""
    monkeypatch.setattr(declared, "_declared", {})
    declared.declare_endpoint(models.url, requests_per_minute=30)


def run(ctx: Context, models: ModelService, body: Callable[[Ask], Awaitable[Any]]) -> Any:
    """A step with an async body, as the engine runs it."""

    @step
    async def stopped(ctx: Context) -> Any:
        async with ctx.async_httpx_client() as client:

            async def ask(text: str) -> str:
                return said(await client.post(f"{models.url}/chat/completions", json=chat(text)))

            return await body(ask)

    return bind_step(stopped, workflow="toy", version="1").call(ctx, (), {})


@contextmanager
def stopping(
    claimed: Claimed, models: ModelService, *stops: type[BaseException]
) -> Iterator[Context]:
    """An attempt that ends so. Slow answers come when something has stopped it, and not before."""

    def release() -> None:
        deadline = time.monotonic() + 30
        while recorder_of(ctx).ledger.stopped is None and time.monotonic() < deadline:
            time.sleep(0.02)
        models.release("go")

    with attempt(claimed) as ctx:
        releasing = Thread(target=release)
        releasing.start()
        try:
            with pytest.raises(stops):
                yield ctx
        finally:
            releasing.join()


def paid(claimed: Claimed) -> tuple[Decimal, Decimal]:
    """(all that was spent, what of it was for answers that nobody has)."""
    standing = wallets.standing(claimed.run_id)
    return standing.spent_cost, standing.recovery_cost


def in_the_air(models: ModelService, count: int) -> Awaitable[None]:
    return asyncio.to_thread(models.wait_held, "go", count=count)


async def gathered(ask: Ask, models: ModelService) -> list[str]:
    async def busy() -> str:
        await in_the_air(models, len(SLOW))
        return await ask("busy")

    return await asyncio.gather(*map(ask, SLOW), busy())


async def grouped(ask: Ask, models: ModelService) -> list[str]:
    async with asyncio.TaskGroup() as group:
        slow = [group.create_task(ask(text)) for text in SLOW]
        await in_the_air(models, len(SLOW))
        last = group.create_task(ask("busy"))
    return [task.result() for task in [*slow, last]]


@pytest.mark.parametrize("together", [gathered, grouped])
def test_a_stop_lets_its_siblings_land_and_the_next_attempt_asks_for_what_is_missing(
    journal: Journal,
    models: ModelService,
    claimed: Claimed,
    together: Callable[[Ask, ModelService], Awaitable[list[str]]],
) -> None:
    for text in SLOW:
        models.script(text, Answer(text=f"answer to {text}", hold="go"))
    models.script("busy", Answer(status=429, retry_after=1))
    with stopping(claimed, models, CallPostponed, BaseExceptionGroup) as ctx:
        run(ctx, models, lambda ask: together(ask, models))
    assert isinstance(recorder_of(ctx).ledger.close(), CallPostponed)
    assert sorted(call[2:] for call in calls(journal)) == [("complete", None)] * len(SLOW)
    assert paid(claimed) == (Decimal("0.3") * len(SLOW), Decimal(0))
    assert wallets.standing(claimed.run_id).held_calls == 0

    models.clear()
    models.script("busy", "not any more")
    journal.look.execute("UPDATE endpoint SET not_before = NULL")

    async def again(ask: Ask) -> list[str]:
        return await asyncio.gather(*map(ask, SLOW), ask("busy"))

    with next_attempt(journal, claimed) as ctx:
        assert run(ctx, models, again) == [
            *(f"answer to {text}" for text in SLOW), "not any more",
        ]  # fmt: skip
        assert recorder_of(ctx).left_over() is None
    assert [models.count(text) for text in [*SLOW, "busy"]] == [1, 1, 1, 1, 2]


def test_a_budget_that_refuses_one_keeps_the_answers_of_the_others(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    wallets.raise_limits(claimed.run_id, by="ada", reason="as agreed", cost=Decimal("1.20"))
    for text in SLOW:
        models.script(text, Answer(hold="go"))
    with stopping(claimed, models, EffectBlocked) as ctx:
        run(ctx, models, lambda ask: gathered(ask, models))
    assert paid(claimed) == (Decimal("1.20"), Decimal(0))
    assert len(calls(journal)) == len(SLOW)
    assert models.count("busy") == 0


def test_a_broken_answer_is_not_asked_for_again_by_a_stopped_attempt(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    models.script("slow 0", Answer(text="", hold="go"))

    async def body(ask: Ask) -> Any:
        async def busy() -> str:
            await in_the_air(models, 1)
            return await ask("busy")

        return await asyncio.gather(ask("slow 0"), busy())

    models.script("busy", Answer(status=429, retry_after=1))
    with stopping(claimed, models, CallPostponed) as ctx:
        run(ctx, models, body)
    assert [call[2:] for call in calls(journal)] == [("empty", "rejected")]
    assert models.count("slow 0") == 1
    assert wallets.standing(claimed.run_id).held_calls == 0


def test_nobody_waits_for_answers_when_the_lease_is_lost(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    for text in SLOW:
        models.script(text, Answer(hold="go"))
    models.script("busy", Answer(status=429, retry_after=1))
    asked: list[Context] = []

    def trust() -> None:
        if asked and recorder_of(asked[0]).ledger.stopped is not None:
            raise LeaseLost("the lease was taken")

    with attempt(claimed, trust=trust) as ctx:
        asked.append(ctx)
        with pytest.raises(CallPostponed):
            run(ctx, models, lambda ask: gathered(ask, models))
    assert models.calls(outcome="answered") == [], "those in the air were not waited for"
    assert wallets.standing(claimed.run_id).recovery_cost == Decimal("0.3") * len(SLOW)


def test_nobody_waits_for_answers_when_the_time_of_the_body_is_over(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    def strike(*_: object) -> None:
        raise SoftTimeLimitExceeded

    def strike_while_waiting(ctx: Context) -> None:
        deadline, air = time.monotonic() + 30, recorder_of(ctx).air
        while not any(sent._is_watched for sent in list(air._sent)):
            if time.monotonic() > deadline:
                return
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGALRM)

    for text in SLOW:
        models.script(text, Answer(hold="go"))
    models.script("busy", Answer(status=429, retry_after=1))
    before = signal.signal(signal.SIGALRM, strike)
    try:
        with attempt(claimed) as ctx:
            striking = Thread(target=strike_while_waiting, args=(ctx,))
            striking.start()
            with pytest.raises(SoftTimeLimitExceeded):
                run(ctx, models, lambda ask: gathered(ask, models))
            striking.join()
            recorder_of(ctx).ledger.close()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert models.calls(outcome="answered") == [], "those in the air were not waited for"
    assert wallets.standing(claimed.run_id).held_calls == 0


def test_a_stop_within_a_loop_of_the_bodys_own_lets_its_siblings_land(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    """In a body that is a plain function, as agents' ``run_sync`` does it."""
    for text in SLOW:
        models.script(text, Answer(hold="go"))
    models.script("busy", Answer(status=429, retry_after=1))

    async def whole(ctx: Context) -> Any:
        async with ctx.async_httpx_client() as client:

            async def ask(text: str) -> str:
                return said(await client.post(f"{models.url}/chat/completions", json=chat(text)))

            return await gathered(ask, models)

    numbered = asyncio.Runner(loop_factory=scopes.new_loop)
    with stopping(claimed, models, CallPostponed) as ctx, numbered as runner:
        runner.run(whole(ctx))
    assert len(calls(journal)) == len(SLOW)
    assert wallets.standing(claimed.run_id).recovery_cost == 0


def test_a_stop_in_one_thread_lets_those_of_others_land(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    for text in SLOW:
        models.script(text, Answer(hold="go"))
    models.script("busy", Answer(status=429, retry_after=1))

    def body(ctx: Context) -> list[str]:
        def ask(text: str) -> str:
            with ctx.scope(text.replace(" ", "-")), ctx.httpx_client() as client:
                if text == "busy":
                    models.wait_held("go", count=len(SLOW))
                return said(client.post(f"{models.url}/chat/completions", json=chat(text)))

        with ThreadPoolExecutor(len(SLOW) + 1) as pool:
            return list(pool.map(ask, ["busy", *SLOW]))

    with stopping(claimed, models, CallPostponed) as ctx:
        body(ctx)
    assert len(calls(journal)) == len(SLOW)
    assert wallets.standing(claimed.run_id).recovery_cost == 0


@pytest.mark.usefixtures("limited")
def test_a_limit_of_its_own_does_not_send_a_step_back_while_others_of_it_have_a_place(
    journal: Journal,
    models: ModelService,
    claimed: Claimed,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tasks.recorder.waiting.WAIT_IN_PLACE", 3.0)
    texts = [f"question {number}" for number in range(4)]

    with attempt(claimed) as ctx:
        run(ctx, models, lambda ask: asyncio.gather(*map(ask, texts)))
    assert [models.count(text) for text in texts] == [1] * 4
    assert wallets.standing(claimed.run_id).recovery_cost == 0
    assert len(calls(journal)) == len(texts)
