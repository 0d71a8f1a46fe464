"""The values that travel from step to step, and the three answers asked of the LLM.

Every one is recorded in the journal, so each stays far below its limit of 256 KiB: the text of a
document appears once, in the first step's result; what follows carries selected passages only.
"""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from examples.contract_review.clause_library import ClauseKind


class Severity(StrEnum):
    """How much a finding should worry whoever signs."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"

    @property
    def rank(self) -> int:
        return list(Severity).index(self)


class Recommendation(StrEnum):
    """What to do with the contract."""

    SIGN = "sign"
    NEGOTIATE = "negotiate"
    ESCALATE = "escalate"  #: to a lawyer, before anything else


class Value(BaseModel):
    """Frozen, and closed to fields nobody asked for: a renamed field is an error, not a loss."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Source(Value):
    """Which document a finding is about, without its text."""

    uri: str
    title: str
    digest: str  #: sha256 of the text as it was read
    complete: bool  #: False when the text was cut; such a contract is never recommended for signing
    notes: tuple[str, ...] = ()  #: what a reader of the conclusion must know about the reading


class Document(Value):
    """A document as it was read."""

    source: Source
    text: str


class Passage(Value):
    """A verbatim piece of the document; numbered from 1 in the document's order."""

    number: int
    text: str


class Match(Value):
    """A passage that resembles a standard clause of the library."""

    clause: ClauseKind
    passage: int
    score: float


class Material(Value):
    """What the analysing steps see of the document."""

    source: Source
    passages: tuple[Passage, ...]
    matches: tuple[Match, ...]
    coverage: float  #: share of the document's text that the passages hold, 0 to 1


class Outline(Value):
    """The document's skeleton."""

    language: str  #: ``en``, ``zh`` or ``other``
    headings: tuple[str, ...]
    defined_terms: tuple[str, ...]


class Obligation(Value):
    """Something a party has to do or to leave undone."""

    party: str
    duty: str
    quote: str  #: verbatim from a passage


class Obligations(Value):
    """First answer: who is bound to what, and for how long."""

    parties: tuple[str, ...]
    term: str
    obligations: tuple[Obligation, ...]


class Risk(Value):
    """A clause that departs from what is usual."""

    clause: ClauseKind
    severity: Severity
    reason: str
    quote: str  #: verbatim from a passage


class Risks(Value):
    """Second answer: what should worry the reader."""

    risks: tuple[Risk, ...]


class Summary(Value):
    """Third answer: the overall judgement."""

    summary: str
    rating: Severity
    recommendation: Recommendation
    conditions: tuple[str, ...]


class ObligationsFound(Value):
    """After the first analysis."""

    material: Material
    outline: Outline
    obligations: Obligations


class RisksFound(Value):
    """After the second analysis."""

    material: Material
    outline: Outline
    obligations: Obligations
    risks: Risks


class Reviewed(Value):
    """After the third analysis: all answers, not yet checked against each other."""

    material: Material
    obligations: Obligations
    risks: Risks
    summary: Summary


class Conclusion(Value):
    """The checked result, as it is filed."""

    source: Source
    coverage: float
    parties: tuple[str, ...]
    term: str
    obligations: tuple[Obligation, ...]
    risks: tuple[Risk, ...]
    rating: Severity
    recommendation: Recommendation
    summary: str
    conditions: tuple[str, ...]
