"""The work of each step as a plain function; ``agent.py`` and ``naive.py`` wrap it."""

from examples.contract_review import checks, prompts
from examples.contract_review.documents import open_document
from examples.contract_review.errors import ConclusionRefused
from examples.contract_review.llm import Ask
from examples.contract_review.outlining import outline
from examples.contract_review.retrieval import retrieve
from examples.contract_review.values import (
    Conclusion,
    Material,
    Obligations,
    ObligationsFound,
    Outline,
    Reviewed,
    Risks,
    RisksFound,
    Summary,
)

__all__ = [
    "conclude",
    "find_obligations",
    "find_risks",
    "open_document",
    "outline",
    "retrieve",
    "summarise",
]


def find_obligations(material: Material, skeleton: Outline, *, ask: Ask) -> ObligationsFound:
    """Who is bound to what: one LLM call."""
    answer = ask(
        Obligations,
        prompts.ask_for_obligations(material, skeleton),
        check=lambda found: checks.told(checks.problems_of_obligations(found, material)),
    )
    return ObligationsFound(material=material, outline=skeleton, obligations=answer)


def find_risks(found: ObligationsFound, *, ask: Ask) -> RisksFound:
    """What departs from the usual: one LLM call."""
    answer = ask(
        Risks,
        prompts.ask_for_risks(found),
        check=lambda listed: checks.told(checks.problems_of_risks(listed, found.material)),
    )
    return RisksFound(
        material=found.material, outline=found.outline, obligations=found.obligations, risks=answer
    )


def summarise(found: RisksFound, *, ask: Ask) -> Reviewed:
    """The overall judgement: one LLM call."""
    answer = ask(
        Summary,
        prompts.ask_for_summary(found),
        check=lambda judged: checks.told(
            checks.problems_of_summary(judged, found.risks, source=found.material.source)
        ),
    )
    return Reviewed(
        material=found.material, obligations=found.obligations, risks=found.risks, summary=answer
    )


def conclude(reviewed: Reviewed) -> Conclusion:
    """Put the answers together and hold them against each other and the document."""
    material, summary = reviewed.material, reviewed.summary
    conclusion = Conclusion(
        source=material.source,
        coverage=material.coverage,
        parties=reviewed.obligations.parties,
        term=reviewed.obligations.term,
        obligations=reviewed.obligations.obligations,
        risks=reviewed.risks.risks,
        rating=summary.rating,
        recommendation=summary.recommendation,
        summary=summary.summary,
        conditions=summary.conditions,
    )
    if problems := checks.told(checks.problems_of_conclusion(conclusion, material)):
        raise ConclusionRefused(
            f"the conclusion about {material.source.title} was not filed: {problems}"
        )
    return conclusion
