"""Business checks: an answer can fit its schema and still be worthless.

Each function lists every problem it finds, in words that tell a person, or the LLM that is asked
again, what is wrong. The analysing steps check their own answer, where asking again may help; the
conclusion is checked as a whole once more, where it is final.
"""

from collections.abc import Iterable, Iterator, Sequence

from examples.contract_review.passages import comparable
from examples.contract_review.values import (
    Conclusion,
    Material,
    Obligations,
    Recommendation,
    Risks,
    Severity,
    Source,
    Summary,
)

LEAST_QUOTE = 8  #: comparable characters; shorter quotations are found anywhere and prove nothing
MOST_PARTIES = 12
LONGEST_NAME = 200  #: characters of a party's name
LONGEST_TERM = 400  #: characters
ESCALATING_RISKS = (
    3  #: high risks from which a contract cannot be recommended for signing or plain talks
)


def problems_of_obligations(answer: Obligations, material: Material) -> Iterator[str]:
    """Parties and term are plausible; there are obligations, each whole and quoting."""
    text = _text(material)
    yield from _implausible([party.strip() for party in answer.parties], text)
    if not 0 < len(answer.term.strip()) <= LONGEST_TERM:
        yield "the term is empty or too long; a contract without one says so"
    if not answer.obligations:
        yield "no obligation was found, and a contract without any is none"
    for number, obligation in enumerate(answer.obligations, 1):
        yield from _unfounded(f"obligation {number}", obligation.quote, text=text)
        if not obligation.duty.strip() or not obligation.party.strip():
            yield f"obligation {number} names no party or no duty"


def _implausible(names: Sequence[str], text: str) -> Iterator[str]:
    if not 2 <= len(names) <= MOST_PARTIES:
        yield f"a contract has 2 to {MOST_PARTIES} parties, and {len(names)} are named"
    if len({name.casefold() for name in names}) < len(names):
        yield "a party is named twice"
    if not all(0 < len(name) <= LONGEST_NAME for name in names):
        yield "a party's name is empty or is a whole sentence"
    if names and not any(_is_mentioned(name, text) for name in names):
        yield f"none of the parties ({', '.join(names)}) occurs in the document"


def problems_of_risks(answer: Risks, material: Material) -> Iterator[str]:
    """Every risk quotes the document and says why; none is listed twice; there may be none."""
    text = _text(material)
    for number, risk in enumerate(answer.risks, 1):
        yield from _unfounded(f"risk {number} ({risk.clause})", risk.quote, text=text)
        if not risk.reason.strip():
            yield f"risk {number} ({risk.clause}) gives no reason"
    seen = [(risk.clause, comparable(risk.quote)) for risk in answer.risks]
    if len(set(seen)) < len(seen):
        yield "the same risk is listed twice"


def problems_of_summary(answer: Summary, risks: Risks, *, source: Source) -> Iterator[str]:
    """The rating is the highest severity found, and the recommendation follows from it."""
    if not answer.summary.strip():
        yield "the summary is empty"
    severities = [risk.severity for risk in risks.risks]
    highest = max(severities, key=lambda severity: severity.rank, default=Severity.LOW)
    if answer.rating is not highest:
        yield f"the rating is {answer.rating}, but the highest severity of a risk is {highest}"
    yield from _unwise(answer.recommendation, severities, complete=source.complete)
    conditions = [condition.strip() for condition in answer.conditions]
    if answer.recommendation is Recommendation.NEGOTIATE and not any(conditions):
        yield "negotiating is recommended without a condition to negotiate for"
    if not all(conditions):
        yield "a condition is empty"


def _unwise(
    recommendation: Recommendation, severities: Sequence[Severity], *, complete: bool
) -> Iterator[str]:
    high = severities.count(Severity.HIGH)
    if recommendation is Recommendation.SIGN and high:
        yield "signing is recommended in spite of a high risk"
    if recommendation is Recommendation.SIGN and not complete:
        yield "signing is recommended although the document was not read in full"
    if high >= ESCALATING_RISKS and recommendation is not Recommendation.ESCALATE:
        yield f"{high} high risks call for escalation, not for {recommendation}"


def problems_of_conclusion(conclusion: Conclusion, material: Material) -> Iterator[str]:
    """Everything above over the assembled conclusion, and that it is about this document."""
    if conclusion.source != material.source:
        about, read = conclusion.source.uri, material.source.uri
        yield f"the conclusion is about {about}, the passages come from {read}"
    obligations = Obligations(
        parties=conclusion.parties, term=conclusion.term, obligations=conclusion.obligations
    )
    risks = Risks(risks=conclusion.risks)
    summary = Summary(
        summary=conclusion.summary,
        rating=conclusion.rating,
        recommendation=conclusion.recommendation,
        conditions=conclusion.conditions,
    )
    yield from problems_of_obligations(obligations, material)
    yield from problems_of_risks(risks, material)
    yield from problems_of_summary(summary, risks, source=conclusion.source)


def told(problems: Iterable[str]) -> str:
    """All problems as one sentence, or an empty text when there are none."""
    return "; ".join(problems)


def _text(material: Material) -> str:
    return comparable("\n".join(passage.text for passage in material.passages))


def _unfounded(subject: str, quote: str, *, text: str) -> Iterator[str]:
    wanted = comparable(quote)
    if len(wanted) < LEAST_QUOTE:
        yield f"{subject} quotes nothing that could be found again: {quote!r}"
    elif wanted not in text:
        yield f"{subject} quotes what the document does not say: {quote[:80]!r}"


def _is_mentioned(name: str, text: str) -> bool:
    """The whole name, or a word of it long enough to mean something."""
    words = [comparable(word) for word in name.replace("(", " ").replace(")", " ").split()]
    return comparable(name) in text or any(len(word) >= 3 and word in text for word in words)
