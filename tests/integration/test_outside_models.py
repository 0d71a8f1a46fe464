"""The scripted models: what they count and bill, and every fault they play, seen through the real SDKs."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from email.utils import parsedate_to_datetime
from typing import Any, cast

import anthropic
import openai
import pytest
from pydantic import BaseModel

from ops.testing.outside.models.client import ModelsError
from tests.support.models import Answer, ModelService, Ways, models_service


class Clause(BaseModel):
    title: str
    pages: int
    tags: list[str]
    risk: float | None


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelService]:
    with models_service(tmp_path_factory.mktemp("models")) as service:
        yield service


@pytest.fixture
def service(running: ModelService) -> ModelService:
    running.clear()
    running.behave()
    return running


@pytest.fixture
def gpt(service: ModelService) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=service.url, api_key="key-1", max_retries=0) as client:
        yield client


@pytest.fixture
def claude(service: ModelService) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=service.root, api_key="key-1", max_retries=0) as client:
        yield client


def said(gpt: openai.OpenAI, text: str, model: str = "gpt-x") -> str | None:
    done = gpt.chat.completions.create(model=model, messages=[{"role": "user", "content": text}])
    return done.choices[0].message.content


def streamed(gpt: openai.OpenAI, text: str) -> tuple[str, str | None]:
    """(content, finish_reason) of a streamed completion."""
    parts, finish = [], None
    chunks = gpt.chat.completions.create(
        model="gpt-x", messages=[{"role": "user", "content": text}], stream=True
    )
    for chunk in chunks:
        parts.append(chunk.choices[0].delta.content or "")
        finish = chunk.choices[0].finish_reason or finish
    return "".join(parts), finish


def test_answers_come_in_the_order_of_the_newest_rule_that_fits(
    service: ModelService, gpt: openai.OpenAI
) -> None:
    service.script("order", "first", "second")
    service.script("order special", "other")
    service.fault("order", Answer(text="once"))
    assert [said(gpt, "order 7") for _ in range(4)] == ["once", "first", "second", "second"]
    assert said(gpt, "order special") == "other"
    assert service.count("order 7") == 4
    first, *others = service.calls("order 7")
    assert {call.digest for call in others} == {first.digest}
    assert first.outcome == "answered"


def test_without_a_rule_answers_fit_the_schema_and_are_others_each_time(
    service: ModelService, gpt: openai.OpenAI, claude: anthropic.Anthropic
) -> None:
    found = [
        gpt.chat.completions.parse(
            model="gpt-x", messages=[{"role": "user", "content": "clause"}], response_format=Clause
        ).choices[0].message.parsed
        for _ in range(2)
    ]  # fmt: skip
    assert all(isinstance(one, Clause) for one in found)
    assert found[0] != found[1]
    parsed = gpt.responses.parse(model="gpt-x", input="clause", text_format=Clause).output_parsed
    assert isinstance(parsed, Clause)
    forced = claude.messages.create(
        model="claude-x", max_tokens=50, messages=[{"role": "user", "content": "clause"}],
        tools=[{"name": "answer", "input_schema": Clause.model_json_schema()}],
        tool_choice={"type": "tool", "name": "answer"},
    )  # fmt: skip
    block = forced.content[0]
    assert block.type == "tool_use"
    assert Clause.model_validate(block.input).pages >= 0


def test_usage_and_cost_are_billed_when_an_answer_was_produced_and_only_then(
    service: ModelService, gpt: openai.OpenAI
) -> None:
    service.behave(Ways(prices={"gpt-x": {"input": 2.0, "output": 10.0, "call": 0.1}}))
    service.script("billed", Answer(text="yes", tokens=(1000, 50)))
    service.fault("billed", Answer(cut="after", tokens=(1000, 50)), Answer(status=503))
    for _ in range(2):
        with pytest.raises(openai.APIError):
            said(gpt, "billed")
    done = gpt.chat.completions.create(
        model="gpt-x", messages=[{"role": "user", "content": "billed"}]
    )
    assert done.usage is not None
    assert (done.usage.prompt_tokens, done.usage.completion_tokens) == (1000, 50)
    billed = service.billed("billed")
    assert (billed.calls, billed.tokens) == (2, 2100)
    assert billed.cost == 2 * (Decimal("0.1") + Decimal("0.0025"))
    assert [call.outcome for call in service.calls("billed")] == ["lost", "failed", "answered"]


def test_streams_break_end_too_early_or_end_well_and_can_be_told_apart(
    service: ModelService, gpt: openai.OpenAI
) -> None:
    text = "A grammatical sentence of some length."
    service.script("stream", text)
    service.fault(
        "stream", Answer(text=text, cut="half"), Answer(text=text, ends="half"),
        Answer(text=text, ends="unfinished"), Answer(text=text, finish="length"),
    )  # fmt: skip
    with pytest.raises(openai.APIError):
        streamed(gpt, "stream")
    half, finish = streamed(gpt, "stream")
    assert text.startswith(half)
    assert (half != text, finish) == (True, None)
    assert streamed(gpt, "stream") == (text, None)
    assert streamed(gpt, "stream") == (text, "length")
    assert streamed(gpt, "stream") == (text, "stop")
    assert service.billed("stream").calls == 5
    service.fault("stream", Answer(text=text, ends="error"))
    with pytest.raises(openai.APIError, match="ordered by the test"):
        streamed(gpt, "stream")


@pytest.mark.parametrize("dated", [False, True])
def test_a_retry_after_is_told_in_seconds_or_as_a_date(
    service: ModelService, gpt: openai.OpenAI, *, dated: bool
) -> None:
    service.fault(f"later {dated}", Answer(status=429, retry_after=120, dated=dated))
    with pytest.raises(openai.RateLimitError) as refused:
        said(gpt, f"later {dated}")
    header = refused.value.response.headers["retry-after"]
    (call,) = service.calls(f"later {dated}")
    assert call.not_before is not None
    assert call.not_before - call.at == pytest.approx(120, abs=5)
    if dated:
        early = parsedate_to_datetime(header).timestamp() - call.not_before
        assert 0 <= early <= 1, "a date is never before the instant that was ordered"
    else:
        assert header == "120"
    assert call.tokens_in is None


def test_other_faults_look_as_a_provider_makes_them(
    service: ModelService, gpt: openai.OpenAI, claude: anthropic.Anthropic
) -> None:
    service.behave(Ways(withdrawn=["gpt-old"]))
    with pytest.raises(openai.NotFoundError) as gone:
        said(gpt, "withdrawn", model="gpt-old")
    assert gone.value.code == "model_not_found"
    service.fault("faults", Answer(malformed=True), Answer(cut="before"), Answer(status=529))
    with pytest.raises(ValueError, match="Unterminated"):
        said(gpt, "faults")
    with pytest.raises(openai.APIConnectionError):
        said(gpt, "faults")
    with pytest.raises(anthropic.APIStatusError, match="overloaded_error"):
        claude.messages.create(
            model="claude-x", max_tokens=9, messages=[{"role": "user", "content": "faults"}]
        )
    outcomes = [(call.outcome, call.status) for call in service.calls("faults")]
    assert outcomes == [("lost", 200), ("cut", None), ("failed", 529)]
    service.behave(Ways(authorization="key-2"))
    with pytest.raises(openai.AuthenticationError):
        said(gpt, "who")
    with pytest.raises(anthropic.AuthenticationError):
        claude.messages.create(
            model="claude-x", max_tokens=9, messages=[{"role": "user", "content": "who"}]
        )


def test_more_requests_a_second_than_allowed_are_refused_in_both_forms(
    service: ModelService, gpt: openai.OpenAI
) -> None:
    service.behave(Ways(requests_per_second=3, retry_after=120, retry_form="mixed"))
    headers = []
    with ThreadPoolExecutor(12) as pool:
        for one in [pool.submit(said, gpt, "crowd") for _ in range(12)]:
            if isinstance(error := one.exception(), openai.RateLimitError):
                headers.append(error.response.headers["retry-after"])
    answered = len(service.calls("crowd", outcome="answered"))
    assert 3 <= answered <= 9, "three in each second that this took"
    assert len(service.calls("crowd", outcome="limited")) == len(headers) == 12 - answered
    assert {"120" in header for header in headers} == {True, False}


def test_unpaired_tool_calls_and_roles_out_of_turn_are_rejected(
    service: ModelService, gpt: openai.OpenAI, claude: anthropic.Anthropic
) -> None:
    called = ({"name": "t1", "arguments": {"n": 1}}, {"name": "t2", "arguments": {}})
    service.script("paired", Answer(tool_calls=called))
    service.script("result of t2", "well", last=True)
    user: Any = {"role": "user", "content": "paired"}
    asked = gpt.chat.completions.create(model="gpt-x", messages=[user]).choices[0]
    assert asked.finish_reason == "tool_calls"
    calls = asked.message.tool_calls or []
    turn: Any = asked.message.to_dict()
    results: list[Any] = [
        {"role": "tool", "tool_call_id": call.id, "content": f"result of t{number}"}
        for number, call in enumerate(calls, start=1)
    ]

    def ask(*messages: Any) -> str | None:
        done = gpt.chat.completions.create(model="gpt-x", messages=list(messages))
        return done.choices[0].message.content

    assert ask(user, turn, *results) == "well"
    wrong = [
        (user, turn), (user, turn, results[0]), (user, turn, *results, results[0]),
        (user, results[0]), (user, user), (user, turn, user),
    ]  # fmt: skip
    for messages in wrong:
        with pytest.raises(openai.BadRequestError):
            ask(*messages)
    item: Any = {"type": "function_call", "call_id": "c", "name": "t1", "arguments": "{}"}
    with pytest.raises(openai.BadRequestError, match="No tool output found"):
        gpt.responses.create(model="gpt-x", input=[user, item])
    spoken: Any = claude.messages.create(model="claude-x", max_tokens=9, messages=[user]).content
    blocks: Any = [block.to_dict() for block in spoken]
    told: Any = {"role": "assistant", "content": blocks}
    result = {"type": "tool_result", "tool_use_id": blocks[0]["id"], "content": "result of t2"}
    with pytest.raises(anthropic.BadRequestError, match="tool_result"):
        claude.messages.create(
            model="claude-x", max_tokens=9,
            messages=[user, told, cast("Any", {"role": "user", "content": [result]})],
        )  # fmt: skip
    assert len(service.rejected()) >= 8
    assert not service.billed("nothing of that").calls


def test_tool_calls_texts_and_refusals_are_streamed_in_every_dialect(
    service: ModelService, gpt: openai.OpenAI, claude: anthropic.Anthropic
) -> None:
    arguments = {"title": "a long enough title for several pieces"}
    service.script("tool", Answer(tool_calls=({"name": "file", "arguments": arguments},)))
    service.script("text", "some words that take more than one piece")
    message: Any = {"role": "user", "content": "tool"}
    with gpt.chat.completions.stream(model="gpt-x", messages=[message]) as stream:
        calls = stream.get_final_completion().choices[0].message.tool_calls or []
    assert [call.function.name for call in calls] == ["file"]
    assert "several pieces" in calls[0].function.arguments
    with gpt.responses.stream(model="gpt-x", input="tool") as events:
        (item,) = events.get_final_response().output
    assert item.type == "function_call"
    with claude.messages.stream(model="claude-x", max_tokens=9, messages=[message]) as turn:
        (block,) = turn.get_final_message().content
    assert block.type == "tool_use"
    assert block.input == arguments
    with gpt.responses.stream(model="gpt-x", input="text") as events:
        assert events.get_final_response().output_text == "some words that take more than one piece"
    service.script("never", Answer(refusal="I will not."))
    refused = gpt.chat.completions.create(
        model="gpt-x", messages=[{"role": "user", "content": "never"}]
    )
    assert refused.choices[0].message.refusal == "I will not."


def test_a_background_response_is_looked_at_and_billed_once(
    service: ModelService, gpt: openai.OpenAI
) -> None:
    service.script("slow", Answer(text="there", polls=2), Answer(forgotten=True))
    begun = gpt.responses.create(model="gpt-x", input="slow", background=True)
    states = [gpt.responses.retrieve(begun.id) for _ in range(3)]
    assert [begun.status, *(one.status for one in states)] == [
        "queued", "in_progress", "in_progress", "completed",
    ]  # fmt: skip
    assert states[-1].output_text == "there"
    assert (service.billed("slow").calls, service.count(begun.id, kind="poll")) == (1, 3)
    lost = gpt.responses.create(model="gpt-x", input="slow", background=True)
    with pytest.raises(openai.NotFoundError):
        gpt.responses.retrieve(lost.id)


def test_embeddings_depend_on_the_text_alone(service: ModelService, gpt: openai.OpenAI) -> None:
    both = gpt.embeddings.create(model="vectors", input=["one", "two"])
    again = gpt.embeddings.create(model="vectors", input="two", encoding_format="float")
    first, second = (one.embedding for one in both.data)
    assert first != second
    assert again.data[0].embedding == pytest.approx(second)
    assert service.count(kind="embeddings") == 2


def test_a_held_caller_is_billed_when_it_is_let_go_and_the_ledger_outlives_the_process(
    service: ModelService, gpt: openai.OpenAI
) -> None:
    service.script("held", Answer(text="late", hold="gate"))
    threads = [threading.Thread(target=said, args=(gpt, "held")) for _ in range(2)]
    for thread in threads:
        thread.start()
    service.wait_held("gate", count=2)
    assert (service.count("held"), service.billed("held").calls) == (2, 0)
    assert service.most_at_once() >= 2
    assert service.release("gate") == 2
    for thread in threads:
        thread.join()
    service.wait_idle()
    before = service.billed()
    service.kill()
    service.start()
    assert service.billed() == before
    assert service.count("held") == 2


def test_orders_that_are_none_are_refused(service: ModelService) -> None:
    with pytest.raises(ModelsError, match="no such order"):
        service._ask("POST", "script", {"match": "", "answers": [{"txet": "typo"}]})
    with pytest.raises(ModelsError, match="no such order"):
        service._ask("POST", "unknown", {})
