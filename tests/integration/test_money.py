"""What services say that their answers took, and what is charged: never less than they may have billed."""

import json
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx2
import pytest

from models.journal import wallets
from models.journal.call_values import Limits
from models.journal.values import Claimed
from models.settings import settings
from models.states import BlockReason
from tasks import Context
from tasks.errors import AnswerIncomplete, CallPostponed, EffectBlocked
from tasks.recorder.declared import declare_endpoint
from tests.support.calling import WRONG_BOOKS
from tests.support.journal import Journal, Worker, row_of, submit_run
from tests.support.liar import Liar, answer, liar
from tests.support.recording import attempt, chat, configured

PRICES = {
    "gpt-x": {"input": 1, "output": 10},
    "gpt-dear": {"input": 2, "output": 20},
    "gpt-cheap": {"output": 1},
}
LIMIT = 1000  #: tokens of an answer


@pytest.fixture
def server() -> Iterator[Liar]:
    with liar() as server:
        yield server


@pytest.fixture
def claimed(journal: Journal, server: Liar) -> Iterator[Claimed]:
    with configured(ONWARD_MODEL_ENDPOINTS=server.url, ONWARD_PRICES=json.dumps(PRICES)):
        yield Worker().take(submit_run(row_of("a"), budget=Limits(cost=Decimal(1))), "a")


def ask(ctx: Context, server: Liar, path: str = "chat/completions", **fields: Any) -> None:
    body = {**chat("well?"), "max_tokens": LIMIT, **fields}
    with ctx.httpx_client(max_asks=1) as client, suppress(AnswerIncomplete):
        client.post(f"{server.url}/{path}", json=body)


def whole(usage: object, **fields: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": "yes"}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return {"id": "c1", "model": "gpt-x", "choices": [choice], "usage": usage, **fields}


def events(*values: object) -> bytes:
    told = "".join(f"data: {json.dumps(value)}\n\n" for value in values)
    return answer(told.encode(), content_type="text/event-stream")


def spent(claimed: Claimed) -> tuple[int, Decimal]:
    standing = wallets.standing(claimed.run_id)
    assert standing.held_tokens == standing.held_calls == 0
    assert standing.held_cost == 0
    return standing.spent_tokens, standing.spent_cost


def usd(tokens_in: int, tokens_out: int, model: str = "gpt-x") -> Decimal:
    price = PRICES[model]
    return (tokens_in * Decimal(price.get("input", 0)) + tokens_out * price["output"]) / 1_000_000


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}, (7, 5)),
        ({"prompt_tokens": 0, "completion_tokens": 0}, (0, 0)),
        # Thinking that is counted in the total only is billed as output.
        ({"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 112}, (7, 105)),
        ({"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 3}, (7, 5)),
        # More than was set aside is what it took: the next request is refused for it.
        ({"prompt_tokens": 7, "completion_tokens": 90_000}, (7, 90_000)),
    ],
)
def test_what_an_answer_took_is_what_it_says(
    server: Liar, claimed: Claimed, usage: object, tokens: tuple[int, int]
) -> None:
    server.says(answer(whole(usage)))
    with attempt(claimed) as ctx:
        ask(ctx, server)
    assert spent(claimed) == (sum(tokens), usd(*tokens))


@pytest.mark.parametrize(
    "said",
    [
        answer(whole(None)),
        answer(whole({})),
        answer(whole({"prompt_tokens": 7})),
        answer(whole({"prompt_tokens": -1, "completion_tokens": 10**30})),
        answer(whole({"prompt_tokens": "7", "completion_tokens": float("nan")})),
        events(
            {"model": "gpt-x", "choices": [{"index": 0, "delta": {"content": "yes"}}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        ),
        events(  # it counts as it goes, and then broke
            {
                "choices": [{"index": 0, "delta": {"content": "ye"}}],
                "usage": {"prompt_tokens": 7, "completion_tokens": 1},
            },
        ),
    ],
    ids=["none", "empty", "half", "absurd", "texts", "stream", "broken-stream"],
)
def test_an_answer_that_does_not_say_is_charged_as_was_set_aside(
    journal: Journal, server: Liar, claimed: Claimed, said: bytes
) -> None:
    server.says(said)
    with attempt(claimed) as ctx:
        ask(ctx, server)
    tokens, cost = spent(claimed)
    assert tokens > LIMIT
    assert cost == usd(tokens - LIMIT, LIMIT)
    assert journal.rows(WRONG_BOOKS) == []


def test_a_message_that_broke_off_is_not_charged_by_its_first_event(
    server: Liar, claimed: Claimed
) -> None:
    begun = {"model": "gpt-x", "usage": {"input_tokens": 7, "output_tokens": 1}, "content": []}
    server.says(events({"type": "message_start", "message": begun}))
    with attempt(claimed) as ctx:
        ask(ctx, server, "messages")
    assert spent(claimed)[0] > LIMIT


@pytest.mark.parametrize(("answered", "billed"), [("gpt-dear", "gpt-dear"), ("gpt-cheap", "gpt-x")])
def test_another_model_than_was_asked_is_charged_at_the_dearer_price(
    server: Liar, claimed: Claimed, answered: str, billed: str
) -> None:
    server.says(answer(whole({"prompt_tokens": 100, "completion_tokens": 10}, model=answered)))
    with attempt(claimed) as ctx:
        ask(ctx, server)
    assert spent(claimed) == (110, usd(100, 10, billed))


def test_embeddings_are_charged_by_their_input(server: Liar, claimed: Claimed) -> None:
    vectors = {"data": [{"embedding": [0.5]}], "model": "gpt-x"}
    server.says(answer({**vectors, "usage": {"prompt_tokens": 7, "total_tokens": 7}}))
    with attempt(claimed) as ctx:
        ask(ctx, server, "embeddings", input="text")
    assert spent(claimed) == (7, usd(7, 0))


@pytest.mark.parametrize(
    ("status", "costs"),
    [
        *[(status, True) for status in (408, 500, 502, 504, 520, 521, 522, 523, 524)],
        *[(status, False) for status in (429, 503, 529)],
    ],
)
def test_a_service_that_breaks_over_a_request_does_not_make_it_free(
    server: Liar, claimed: Claimed, status: int, costs: bool
) -> None:
    server.says(answer({"error": {"message": "too slow"}}, status=status))
    with attempt(claimed) as ctx, pytest.raises(CallPostponed):
        ask(ctx, server)
    tokens, _ = spent(claimed)
    assert (tokens > LIMIT) is costs
    assert wallets.standing(claimed.run_id).recovery_tokens == tokens


def test_a_request_at_fault_is_free(server: Liar, claimed: Claimed) -> None:
    server.says(answer({"error": {"message": "which role?"}}, status=400))
    with attempt(claimed) as ctx:
        ask(ctx, server)
    assert spent(claimed) == (0, Decimal(0))
    assert wallets.standing(claimed.run_id).spent_calls == 0


LONG = whole({"prompt_tokens": 10, "completion_tokens": 60_000})


@pytest.mark.parametrize("limited", [Limits(cost=Decimal(1)), Limits(tokens=50_000)])
def test_an_answer_of_any_length_is_not_asked_for_under_a_limit(
    server: Liar, claimed: Claimed, limited: Limits
) -> None:
    """A limit of one dollar, and an answer for 0.60 of which 0.05 would have been reserved, twice."""
    server.says(answer(LONG))
    other = Worker().take(submit_run(row_of("a"), budget=limited), "a")
    with attempt(other) as ctx, pytest.raises(EffectBlocked) as stopped:
        ask(ctx, server, max_tokens=None)
    assert stopped.value.reason is BlockReason.BUDGET_EXCEEDED
    for part in ("how long an answer of model 'gpt-x' can get", f"runs resume {other.run_id}"):
        assert part in str(stopped.value)
    assert server.asked == []
    assert wallets.standing(other.run_id).spent_calls == 0


@pytest.mark.parametrize("bound", ["request", "price", "endpoint"])
def test_what_bounds_an_answer_lets_it_through(
    server: Liar, claimed: Claimed, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    server.says(answer(whole(None)))
    if bound == "price":
        bounded = {"gpt-x": {**PRICES["gpt-x"], "max_output": LIMIT}}
        monkeypatch.setenv("ONWARD_PRICES", json.dumps(bounded))
        settings.cache_clear()
    elif bound == "endpoint":
        declare_endpoint(server.url, max_output=LIMIT)
    with attempt(claimed) as ctx:
        ask(ctx, server, max_tokens=LIMIT if bound == "request" else None)
    assert LIMIT < spent(claimed)[0] < 2 * LIMIT


@pytest.mark.parametrize("limits", [None, Limits(calls=5)])
def test_where_neither_tokens_nor_cost_are_limited_answers_may_be_long(
    server: Liar, claimed: Claimed, limits: Limits | None
) -> None:
    server.says(answer(LONG))
    other = Worker().take(submit_run(row_of("a"), budget=limits), "a")
    with attempt(other) as ctx:
        ask(ctx, server, max_tokens=None)
    assert spent(other) == (60_010, usd(10, 60_000))


@pytest.mark.parametrize("path", ["chat/completions", "embeddings"])
def test_without_prices_that_can_be_read_nothing_is_sent(
    server: Liar, claimed: Claimed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, path: str
) -> None:
    monkeypatch.setenv("ONWARD_PRICES", str(tmp_path / "missing.toml"))
    settings.cache_clear()
    with attempt(claimed) as ctx, pytest.raises(EffectBlocked) as stopped:
        ask(ctx, server, path)
    assert stopped.value.reason is BlockReason.BUDGET_EXCEEDED
    said = str(stopped.value)
    for part in (
        "missing.toml",
        "step 'a'",
        f"onward runs resume {claimed.run_id}",
        "Nothing was sent.",
    ):
        assert part in said
    assert server.asked == []


@pytest.mark.parametrize("field", ["max_tokens", "n"])
@pytest.mark.parametrize("value", [10**30, 2**62])
def test_a_request_for_more_than_anybody_makes_is_refused_by_its_budget(
    server: Liar, claimed: Claimed, field: str, value: int
) -> None:
    more: dict[str, Any] = {field: value}
    with attempt(claimed) as ctx, pytest.raises(EffectBlocked, match="the next model call"):
        ask(ctx, server, **more)
    assert server.asked == []


def test_texts_of_any_language_are_set_aside_in_full(server: Liar, claimed: Claimed) -> None:
    """A service that takes each byte of Chinese for a token bills no more than was reserved for it."""
    text = "合同" * 2000
    server.says(answer(whole(None)))
    with attempt(claimed) as ctx, ctx.httpx_client() as client:
        body = json.dumps({**chat(text), "max_tokens": LIMIT}, ensure_ascii=False).encode()
        client.post(f"{server.url}/chat/completions", content=body)
    assert spent(claimed)[0] >= len(text.encode()) + LIMIT


def test_a_legacy_request_of_many_prompts_is_set_aside_for_each(
    server: Liar, claimed: Claimed
) -> None:
    server.says(answer({"choices": [{"text": "yes", "finish_reason": "stop"}]}))
    with attempt(claimed) as ctx, ctx.httpx_client() as client:
        asked = {"model": "gpt-x", "prompt": ["a", "b", "c"], "best_of": 2, "max_tokens": 100.0}
        sent: httpx2.Response = client.post(f"{server.url}/completions", json=asked)
    assert sent.status_code == 200
    assert spent(claimed)[0] >= 600
