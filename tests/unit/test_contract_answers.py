"""Structured output: what is read from a reply, what is refused, and what the rules answer."""

import json
from typing import Any

import pytest

from examples.contract_review import prompts, work
from examples.contract_review.errors import AnswerRefused, EndpointRefused
from examples.contract_review.llm import endpoint, parse_answer
from examples.contract_review.model_rules import NotUnderstood, answer
from examples.contract_review.prompts import Prompt
from examples.contract_review.values import Conclusion, Summary
from tests.support.contracts import CHINESE, ENGLISH, GOOD_SUMMARY, prepared

REPLY = GOOD_SUMMARY.model_dump_json()


def by_rules(kind: Any, prompt: Prompt, /) -> Any:
    return parse_answer(kind, json.dumps(answer(prompt.user), ensure_ascii=False))


def review(text: str, *, complete: bool = True) -> Conclusion:
    material, skeleton = prepared(text, complete=complete)
    found = work.find_obligations(material, skeleton, ask=by_rules)
    return work.conclude(work.summarise(work.find_risks(found, ask=by_rules), ask=by_rules))


@pytest.mark.parametrize(
    "reply",
    [REPLY, f"```json\n{REPLY}\n```", f"Here it is:\n{REPLY}\nHope that helps.", f"  {REPLY}\n"],
)
def test_json_is_read_bare_fenced_or_between_sentences(reply: str) -> None:
    assert parse_answer(Summary, reply) == GOOD_SUMMARY


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("I cannot do that.", "the whole: Invalid JSON"),
        (REPLY.replace('"high"', '"severe"'), "rating: Input should be"),
        (REPLY.replace('"rating"', '"grade"'), "rating: Field required"),
        (REPLY[:40], "the whole: Invalid JSON"),
        ("[]", "the whole: "),
    ],
)
def test_an_answer_that_does_not_fit_says_where(reply: str, reason: str) -> None:
    with pytest.raises(AnswerRefused) as refused:
        parse_answer(Summary, reply)
    assert reason in str(refused.value)
    assert "does not fit Summary" in str(refused.value)


def test_without_an_endpoint_the_message_says_what_to_set() -> None:
    with pytest.raises(EndpointRefused, match="set ONWARD_LLM_BASE_URL"):
        endpoint({})


def test_the_key_is_taken_from_either_variable() -> None:
    base = {"ONWARD_LLM_BASE_URL": "http://127.0.0.1:1/v1"}
    assert endpoint({**base, "OPENAI_API_KEY": "a"}).api_key == "a"
    assert endpoint({**base, "OPENAI_API_KEY": "a", "ONWARD_LLM_API_KEY": "b"}).api_key == "b"
    assert endpoint(base).api_key == "none"
    assert not endpoint(base).labelled
    assert "sk-secret" not in repr(endpoint({**base, "ONWARD_LLM_API_KEY": "sk-secret"}))


@pytest.mark.parametrize("text", [ENGLISH, CHINESE])
def test_the_rules_give_answers_that_pass_every_check(text: str) -> None:
    for _ in range(20):
        conclusion = review(text)
        assert conclusion.risks
        assert conclusion.obligations


def test_the_rules_answer_in_the_language_of_the_contract() -> None:
    conclusion = review(CHINESE)
    assert (
        "风险" in conclusion.summary or "问题" in conclusion.summary or "偏离" in conclusion.summary
    )
    assert set(conclusion.parties) == {"甲方", "乙方"}


def test_the_rules_never_recommend_signing_what_was_cut() -> None:
    assert review(ENGLISH, complete=False).recommendation != "sign"
    assert (
        review("Bonjour monsieur Dupont, merci. " * 5, complete=False).recommendation == "negotiate"
    )


def test_asked_again_the_rules_word_it_differently() -> None:
    material, skeleton = prepared()
    prompt = prompts.ask_for_obligations(material, skeleton)
    assert len({json.dumps(answer(prompt.user)) for _ in range(20)}) > 10


def test_the_rules_refuse_what_they_do_not_understand() -> None:
    with pytest.raises(NotUnderstood, match="by rules"):
        answer("Write me a poem.")
    with pytest.raises(NotUnderstood, match="no task 'poem'"):
        answer("TASK: poem")
