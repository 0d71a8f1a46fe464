"""An answer is suggested, checked, accepted, or asked for again: with a test's answers in the model's place."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic import BaseModel, Field

from models.settings import settings
from tasks import Context
from tasks.errors import AnswerIncomplete, DefinitionError
from tasks.llm import NotConfigured, Question, SchemaInvalid, make
from tasks.llm.forms import form_of, parse
from tasks.llm.values import Reply

pytestmark = pytest.mark.unit


class Risk(BaseModel):
    clause: str
    severity: int = Field(ge=0, le=10)
    note: str = ""


def answering(*answers: Any) -> tuple[Callable[[Question], Any], list[Question]]:
    """Answers in order, and what was asked."""
    asked: list[Question] = []
    left = iter(answers)

    def answer(question: Question) -> Any:
        asked.append(question)
        said = next(left)
        if isinstance(said, Exception):
            raise said
        return said

    return answer, asked


GOOD = {"clause": "fees", "severity": 3}


def test_an_answer_that_fits_is_a_value() -> None:
    answer, asked = answering(GOOD)
    risk = Context.for_test(llm=answer).llm.ask(Risk, "Which?", system="Judge.", temperature=0.1)
    assert risk == Risk(clause="fees", severity=3)
    (question,) = asked
    assert question.messages == [{"role": "user", "content": "Which?"}]
    assert (question.system, question.sampling) == ("Judge.", {"temperature": 0.1})


def test_a_misfit_is_said_back_with_the_reason_and_asked_again() -> None:
    answer, asked = answering({"clause": "fees", "severity": 99}, GOOD)
    assert Context.for_test(llm=answer).llm.ask(Risk, "Which?").severity == 3
    assert [one["role"] for one in asked[1].messages] == ["user", "assistant", "user"]
    assert "$.severity" in asked[1].messages[-1]["content"]


def test_the_check_of_the_caller_rejects_in_several_ways() -> None:
    def raises(risk: Risk) -> None:
        raise ValueError(f"{risk.clause} is no clause")

    def asserts(risk: Risk) -> None:
        if risk.clause == "fees":
            raise AssertionError("fees are no risk")

    checks: list[tuple[Callable[[Risk], object], str]] = [
        (raises, "fees is no clause"),
        (lambda _: False, "the check rejects it"),
        (lambda _: "not that one", "not that one"),
        (lambda _: ["not this", "nor that"], "not this; nor that"),
        (asserts, "fees are no risk"),
    ]
    for check, reason in checks:
        answer, asked = answering(GOOD, GOOD)
        with pytest.raises(SchemaInvalid, match=reason) as caught:
            Context.for_test(llm=answer).llm.ask(Risk, "Which?", check=check, max_asks=2)
        assert (caught.value.asks, len(asked)) == (2, 2)
        assert caught.value.error_type == "schema_invalid"


def test_a_check_that_nobody_awaits_is_no_consent() -> None:
    async def check(_: Risk) -> bool:
        return False

    answer, _ = answering(GOOD)
    with pytest.raises(DefinitionError, match="plain function"):
        Context.for_test(llm=answer).llm.ask(Risk, "Which?", check=check)


def test_what_an_answer_cannot_be_typed_by_is_refused_before_anything_is_asked() -> None:
    output: Any = list[str]
    answer, asked = answering(GOOD)
    with pytest.raises(DefinitionError, match="pydantic model"):
        Context.for_test(llm=answer).llm.ask(output, "Which?")
    assert not asked


def test_whoever_gives_up_says_which_step_of_which_run() -> None:
    ctx = Context.for_test(llm=lambda _: "no JSON")
    with pytest.raises(SchemaInvalid) as caught:
        ctx.llm.ask(Risk, "Which?")
    assert ctx.run_id in str(caught.value)
    assert ctx.step_key in str(caught.value)


def test_incomplete_and_rejected_answers_share_one_limit() -> None:
    answer, asked = answering(
        AnswerIncomplete("cut", state="cut"), "no JSON", AnswerIncomplete("cut", state="cut")
    )
    with pytest.raises(AnswerIncomplete):
        Context.for_test(llm=answer).llm.ask(Risk, "Which?")
    assert len(asked) == 3
    assert asked[1].messages == asked[0].messages, "nothing was said that could be said back"


class Judged:
    """An answer on record with its verdict."""

    place = None
    replayed = True
    counts = True
    state = "complete"
    lost = 0

    def __init__(self, verdict: str, reason: str | None = None) -> None:
        self.verdict: str | None = verdict
        self.reason = reason

    def accept(self) -> None:
        assert self.verdict == "accepted"

    def reject(self, reason: str, /) -> None:
        assert self.verdict == "rejected", reason


def reply(text: str, taken: Any) -> Reply:
    return Reply(text=text, message={"role": "assistant", "content": text}, taken=taken)


def test_a_verdict_on_record_stands_whatever_the_check_says_now() -> None:
    good = Risk.model_validate(GOOD).model_dump_json()
    answer, asked = answering(
        reply(good, Judged("rejected", "as worded then")), reply(good, Judged("accepted"))
    )
    found = Context.for_test(llm=answer).llm.ask(
        Risk, "Which?", check=lambda _: "worded otherwise now"
    )
    assert found.severity == 3
    assert "as worded then" in asked[1].messages[-1]["content"]


def test_rejections_before_a_persons_retry_do_not_count() -> None:
    pardoned = Judged("rejected", "once")
    pardoned.counts = False
    answer, _ = answering(reply("x", pardoned), reply("x", pardoned), GOOD)
    assert Context.for_test(llm=answer).llm.ask(Risk, "Which?", max_asks=1).severity == 3


def test_text_and_the_async_variants() -> None:
    answer, _ = answering("plain", "awaited", GOOD)
    llm = Context.for_test(llm=answer).llm
    assert llm.text("Say it") == "plain"
    assert asyncio.run(llm.atext("Say it")) == "awaited"
    assert asyncio.run(llm.aask(Risk, "Which?")).clause == "fees"


def test_a_listener_hears_the_text() -> None:
    heard: list[str] = []
    answer, _ = answering("word")
    assert Context.for_test(llm=answer).llm.text("Say it", on_chunk=heard.append) == "word"
    assert heard == ["word"]


def test_a_prompt_or_messages_and_not_both() -> None:
    llm = make(Context.for_test(), answer=lambda _: "never")
    with pytest.raises(TypeError, match="a prompt or messages"):
        llm.text()
    with pytest.raises(TypeError, match="a prompt or messages"):
        llm.text("a", messages=[{"role": "user", "content": "b"}])


@pytest.fixture
def unconfigured(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("ONWARD_LLM_MODEL", raising=False)
    settings.cache_clear()
    yield
    settings.cache_clear()


def test_no_model_is_said_before_anything_is_asked(unconfigured: None) -> None:
    with pytest.raises(NotConfigured, match="ONWARD_LLM_MODEL"):
        make(Context.for_test()).text("Hello")


def test_json_in_a_fence_or_between_sentences_is_read() -> None:
    for text in (
        '```json\n{"clause": "a", "severity": 1}\n```',
        'Sure: {"clause": "a", "severity": 1} Done.',
    ):
        assert parse(Risk, text) == Risk(clause="a", severity=1)


class Loose(BaseModel):
    extra: dict[str, int]


def test_a_schema_is_strict_where_the_provider_can_enforce_it() -> None:
    form = form_of(Risk)
    assert form.strict
    assert form.schema["required"] == ["clause", "severity", "note"]
    assert form.schema["additionalProperties"] is False
    assert not form_of(Loose).strict
    assert Risk.model_json_schema()["required"] == ["clause", "severity"], (
        "the class itself is as it was"
    )
