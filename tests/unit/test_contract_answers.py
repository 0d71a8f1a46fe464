"""What the model is asked, what is said back to it, and what the rules answer."""

import json
from typing import Any

import pytest

from examples.contract_review import prompts, work
from examples.contract_review.llm import asker
from examples.contract_review.model_rules import NotUnderstood, answer
from examples.contract_review.prompts import Prompt
from examples.contract_review.values import Conclusion, Summary
from tasks import Context
from tasks.llm import Question
from tests.support.contracts import CHINESE, ENGLISH, GOOD_SUMMARY, prepared


def by_rules(kind: Any, prompt: Prompt, /, *, check: Any) -> Any:
    found = kind.model_validate(answer(prompt.user))
    assert check(found) == ""
    return found


def review(text: str, *, complete: bool = True) -> Conclusion:
    material, skeleton = prepared(text, complete=complete)
    found = work.find_obligations(material, skeleton, ask=by_rules)
    return work.conclude(work.summarise(work.find_risks(found, ask=by_rules), ask=by_rules))


def test_an_answer_that_fails_its_check_is_said_back_with_every_problem() -> None:
    material, skeleton = prepared(ENGLISH)
    found = work.find_obligations(material, skeleton, ask=by_rules)
    weighed = work.find_risks(found, ask=by_rules)
    bad = GOOD_SUMMARY.model_copy(update={"summary": " ", "conditions": ("",)})
    asked: list[Question] = []

    def model(question: Question) -> Any:
        asked.append(question)
        return bad if len(asked) == 1 else answer(question.messages[0]["content"])

    work.summarise(weighed, ask=asker(Context.for_test(llm=model), {}))
    assert len(asked) == 2
    told = asked[1].messages[-1]["content"]
    assert "the summary is empty; " in told
    assert "a condition is empty" in told


def test_labels_are_for_our_own_server_only() -> None:
    asked: list[Question] = []

    def model(question: Question) -> Any:
        asked.append(question)
        return GOOD_SUMMARY

    ctx = Context.for_test(run_id="run-1", step_key="summary", llm=model)
    for environ in ({}, {"ONWARD_LLM_LABELS": "1"}):
        asker(ctx, environ)(Summary, Prompt("system", "user"), check=lambda _: "")
    assert [dict(one.headers) for one in asked] == [
        {}, {"X-Onward-Run": "run-1", "X-Onward-Step": "summary"},
    ]  # fmt: skip


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
