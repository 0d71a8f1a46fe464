"""The business checks refuse what fits its schema and is still worthless."""

from typing import Any

import pytest

from examples.contract_review import work
from examples.contract_review.errors import ConclusionRefused
from examples.contract_review.llm import asker
from examples.contract_review.values import Obligations, Reviewed, Risks, Severity, Summary
from tasks import Context
from tasks.llm import Question, SchemaInvalid
from tests.support.contracts import GOOD_OBLIGATIONS, GOOD_RISKS, GOOD_SUMMARY, prepared


def reviewed(*, complete: bool = True, **changes: Any) -> Reviewed:
    material, _ = prepared(complete=complete)
    answers = {"obligations": GOOD_OBLIGATIONS, "risks": GOOD_RISKS, "summary": GOOD_SUMMARY}
    return Reviewed(material=material, **{**answers, **changes})


def obligations(**changes: Any) -> Obligations:
    return GOOD_OBLIGATIONS.model_copy(update=changes)


def one_duty(**changes: Any) -> Obligations:
    return obligations(obligations=(GOOD_OBLIGATIONS.obligations[0].model_copy(update=changes),))


def risks(**changes: Any) -> Risks:
    return Risks(risks=(GOOD_RISKS.risks[0].model_copy(update=changes),))


def summary(**changes: Any) -> Summary:
    return GOOD_SUMMARY.model_copy(update=changes)


def test_answers_that_fit_become_a_conclusion() -> None:
    conclusion = work.conclude(reviewed())
    assert conclusion.rating is Severity.HIGH
    assert conclusion.parties == ("Northwind Traders", "Contoso")
    assert conclusion.source.title == "agreement.txt"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"obligations": one_duty(quote="The Customer owes ten million.")}, "does not say"),
        ({"obligations": one_duty(quote="shall")}, "could be found again"),
        ({"obligations": one_duty(duty=" ")}, "no party or no duty"),
        ({"obligations": obligations(obligations=())}, "no obligation was found"),
        ({"obligations": obligations(parties=("Contoso",))}, "2 to 12 parties"),
        ({"obligations": obligations(parties=("Contoso", "contoso"))}, "named twice"),
        ({"obligations": obligations(parties=("Fabrikam", "Adatum"))}, "none of the parties"),
        ({"obligations": obligations(parties=("Contoso", "x" * 300))}, "whole sentence"),
        ({"obligations": obligations(term="")}, "term is empty"),
        ({"risks": risks(quote="The Provider owns your house.")}, "does not say"),
        ({"risks": risks(reason="")}, "gives no reason"),
        ({"risks": Risks(risks=GOOD_RISKS.risks * 2)}, "listed twice"),
        ({"summary": summary(rating="low")}, "highest severity of a risk is high"),
        ({"summary": summary(recommendation="sign")}, "in spite of a high risk"),
        ({"summary": summary(conditions=())}, "without a condition"),
        ({"summary": summary(conditions=("a cap", " "))}, "a condition is empty"),
        ({"summary": summary(summary="  ")}, "summary is empty"),
    ],
)
def test_a_violated_check_is_a_clear_failure(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConclusionRefused, match=reason) as refused:
        work.conclude(reviewed(**changes))
    assert "agreement.txt was not filed" in str(refused.value)


def test_a_document_that_was_cut_is_never_recommended_for_signing() -> None:
    nothing: dict[str, Any] = {
        "risks": Risks(risks=()),
        "summary": summary(rating="low", recommendation="sign", conditions=()),
    }
    assert work.conclude(reviewed(**nothing)).recommendation == "sign"
    with pytest.raises(ConclusionRefused, match="not read in full"):
        work.conclude(reviewed(complete=False, **nothing))


def test_three_high_risks_call_for_escalation() -> None:
    quotes = (
        "All fees are non-refundable.",
        "without notice in its sole discretion",
        "laws of Norway",
    )
    three = Risks(risks=tuple(GOOD_RISKS.risks[0].model_copy(update={"quote": q}) for q in quotes))
    with pytest.raises(ConclusionRefused, match="3 high risks call for escalation"):
        work.conclude(reviewed(risks=three))
    escalated = work.conclude(reviewed(risks=three, summary=summary(recommendation="escalate")))
    assert escalated.recommendation == "escalate"


def test_a_bad_answer_is_refused_where_asking_again_may_help() -> None:
    material, skeleton = prepared()

    def model(question: Question) -> Obligations:
        assert question.messages[0]["content"].startswith("TASK: obligations")
        return one_duty(quote="The Customer owes ten million.")

    ask = asker(Context.for_test(llm=model))
    with pytest.raises(SchemaInvalid, match="obligation 1 quotes what the document does not say"):
        work.find_obligations(material, skeleton, ask=ask)
