"""``ctx.llm`` over a real journal and a real model service: what another attempt gets, asks and counts."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from models.journal import calls as journal_calls
from models.journal.values import Claimed
from models.settings import settings
from models.states import BlockReason
from tasks import Context
from tasks.errors import AnswerIncomplete, EffectBlocked
from tasks.llm import SchemaInvalid
from tasks.recorder.scopes import new_loop
from tests.support.intents import again, at_work
from tests.support.journal import Journal
from tests.support.models import Answer, ModelService
from tests.support.recording import attempt, calls, configured, next_attempt

pytestmark = pytest.mark.integration

PROVIDERS = ("openai", "anthropic")


class Verdict(BaseModel):
    rating: str
    score: int


GOOD = Answer(value={"rating": "good", "score": 3})


@pytest.fixture
def claimed(journal: Journal, models: ModelService) -> Iterator[Claimed]:
    with configured(ONWARD_LLM_BASE_URL=models.url, ONWARD_LLM_MODEL="gpt-x"):
        yield at_work()


def verdicts(journal: Journal) -> list[tuple[str, str | None]]:
    return [(state, verdict) for _, _, state, verdict in calls(journal)]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("streamed", [False, True])
def test_an_accepted_answer_is_given_again_and_asked_for_once(
    journal: Journal, models: ModelService, claimed: Claimed, *, provider: str, streamed: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("ONWARD_LLM_PROVIDER", provider)
    settings.cache_clear()
    heard: list[str] = []
    listen = heard.append if streamed else None
    with attempt(claimed) as ctx:
        first = ctx.llm.ask(Verdict, "judge this", on_chunk=listen)
    live = "".join(heard)
    with next_attempt(journal, claimed) as ctx:
        assert ctx.llm.ask(Verdict, "judge this", check=lambda _: False, on_chunk=listen) == first
    assert models.count("judge this") == 1
    assert verdicts(journal) == [("complete", "accepted")]
    if streamed:
        assert Verdict.model_validate_json(live) == first
        assert "".join(heard) == live, "what is replayed is not heard again"


def test_rejected_answers_stay_rejected_and_the_limit_holds_over_attempts(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    models.script("judge this", Answer(value={"rating": "good"}))
    with attempt(claimed) as ctx, pytest.raises(SchemaInvalid) as first:
        ctx.llm.ask(Verdict, "judge this")
    assert first.value.asks == 3
    assert models.count("judge this") == 3
    with next_attempt(journal, claimed) as ctx, pytest.raises(SchemaInvalid) as second:
        ctx.llm.ask(Verdict, "judge this")
    assert str(second.value) == str(first.value)
    assert models.count("judge this") == 3
    assert verdicts(journal) == [("complete", "rejected")] * 3


def test_after_a_persons_retry_it_is_asked_anew(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    models.script("judge this", *[Answer(value={"rating": "good"})] * 3, GOOD)
    with attempt(claimed) as ctx, pytest.raises(SchemaInvalid):
        ctx.llm.ask(Verdict, "judge this")
    after = again(journal, claimed)
    journal_calls.pardon(
        claimed.run_id, claimed.step_key, actor="ada@example.org", reason="schema corrected"
    )
    with next_attempt(journal, after) as ctx:
        assert ctx.llm.ask(Verdict, "judge this").score == 3
    assert verdicts(journal)[:3] == [("complete", "rejected")] * 3
    assert verdicts(journal)[3:] == [("complete", "accepted")]


def test_the_wording_of_a_rejection_is_kept_for_the_next_question(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    models.script("judge this", GOOD, Answer(value={"rating": "better", "score": 4}))
    reasons = iter(["said at first", None, "said otherwise"])
    check: Callable[[Verdict], object] = lambda _: next(reasons)  # noqa: E731
    with attempt(claimed) as ctx:
        first = ctx.llm.ask(Verdict, "judge this", check=check)
    with next_attempt(journal, claimed) as ctx:
        assert ctx.llm.ask(Verdict, "judge this", check=check) == first
    assert models.count("judge this") == 2
    assert models.count("said at first") == 1


def test_incomplete_answers_are_evidence_and_asked_for_again(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    short = Answer(value={"rating": "g", "score": 1}, finish="length")
    models.script("judge this", short, Answer(refusal="No."), GOOD)
    with attempt(claimed) as ctx:
        assert ctx.llm.ask(Verdict, "judge this").score == 3
    assert verdicts(journal) == [
        ("length", "rejected"),
        ("refused", "rejected"),
        ("complete", "accepted"),
    ]


def test_an_answer_at_its_length_limit_can_be_taken_on_purpose(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    models.script("say it", Answer(text="As far as it goes", finish="length"))
    with attempt(claimed) as ctx, pytest.raises(AnswerIncomplete) as caught:
        ctx.llm.text("say it", max_asks=1)
    assert caught.value.error_type == "answer_length"
    with attempt(again(journal, claimed)) as ctx, ctx.scope("second"):
        assert ctx.llm.text("say it", accept_length=True) == "As far as it goes"
    assert verdicts(journal)[-1] == ("length", "accepted")


def test_another_model_is_not_taken_for_the_one_that_was_asked(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    models.script("say it", Answer(text="Hello", model="gpt-x-2026-01-01"))
    with attempt(claimed) as ctx, pytest.raises(AnswerIncomplete) as caught:
        ctx.llm.text("say it", max_asks=1)
    assert caught.value.error_type == "answer_other_model"
    assert "ONWARD_LLM_PIN" in str(caught.value)
    with attempt(again(journal, claimed)) as ctx, ctx.scope("second"):
        assert ctx.llm.text("say it", pin="gpt-x-*") == "Hello"


def test_a_changed_question_does_not_get_the_former_answer(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    with attempt(claimed) as ctx:
        ctx.llm.text("say it", temperature=0.1)
    with next_attempt(journal, claimed) as ctx, pytest.raises(EffectBlocked) as blocked:
        ctx.llm.text("say it", temperature=0.2)
    assert blocked.value.reason is BlockReason.REPLAY_MISMATCH
    assert models.count("say it") == 1


def test_concurrent_questions_keep_their_answers(
    journal: Journal, models: ModelService, claimed: Claimed
) -> None:
    async def body(ctx: Context) -> list[str]:
        ctx.enter_task()
        return await asyncio.gather(*(ctx.llm.atext("same words") for _ in range(4)))

    with attempt(claimed) as ctx:
        first = run(body(ctx))
    with next_attempt(journal, claimed) as ctx:
        assert run(body(ctx)) == first
    assert len(set(first)) > 1
    assert models.count("same words") == 4


def run(body: Coroutine[Any, Any, list[str]]) -> list[str]:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(body)
