"""Which passages of a document resemble which standard clause: BM25 over its own passages.

No index and no embedding service: a contract has some hundred passages, and scoring them takes
milliseconds. Chinese is scored by overlapping pairs of characters, which need no word list.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from examples.contract_review.clause_library import CLAUSES, StandardClause
from examples.contract_review.documents import recorded_size
from examples.contract_review.passages import CJK, split_passages
from examples.contract_review.values import Document, Match, Material, Passage

PER_CLAUSE = 2  #: best passages kept for each standard clause
OPENING = 3  #: first passages, always kept: they name the parties
BUDGET = 24_000  #: characters of passages; about 6,000 tokens a call
RECORDED_BUDGET = (
    96 * 1024
)  #: bytes as recorded; the later values hold passages and answers together
K1, B = 1.5, 0.75  #: BM25's usual saturation and length normalisation
CUE_WEIGHT = 3  #: a clause's cues say more than the words of its description

_WORD = re.compile(rf"[a-z]{{2,}}|[{CJK}]+")
_STOP = frozenset(
    """the of and or to in any for by with this that is are be as on it its not you your such other
    from at an all will may shall has have which under if no do does than only was were their they
    he she we our us one""".split()  # noqa: SIM905  # a list of words reads better as words
)


@dataclass(frozen=True, slots=True)
class Index:
    """Term counts of a document's passages."""

    counts: tuple[Counter[str], ...]
    lengths: tuple[int, ...]
    idf: dict[str, float]
    average: float


def retrieve(document: Document) -> Material:
    """What an analysis needs: the opening, the best for each standard clause, and what fits."""
    texts = split_passages(document.text)
    matches = match_clauses(texts)
    kept = _select(texts, matches)
    coverage = sum(len(texts[number]) for number in kept) / max(1, sum(map(len, texts)))
    source = document.source
    if len(kept) < len(texts):
        seen = f"{len(kept)} of {len(texts)} passages, {coverage:.0%} of the text that was read"
        note = f"The analysis saw {seen}."
        source = source.model_copy(update={"notes": (*source.notes, note)})
    return Material(
        source=source,
        passages=tuple(Passage(number=number + 1, text=texts[number]) for number in kept),
        matches=tuple(match for match in matches if match.passage - 1 in kept),
        coverage=round(coverage, 3),
    )


def match_clauses(texts: Sequence[str]) -> list[Match]:
    """For each standard clause its best passages, best first; none for a clause without a cue."""
    index = build_index(texts)
    lowered = [text.lower() for text in texts]
    found: list[Match] = []
    for clause in CLAUSES:
        candidates = [number for number, text in enumerate(lowered) if clause.cues_in(text)]
        scores = sorted(
            ((score(index, number, _query(clause)), -number) for number in candidates), reverse=True
        )
        found += [
            Match(clause=clause.kind, passage=1 - number, score=round(value, 2))
            for value, number in scores[:PER_CLAUSE]
            if value > 0
        ]
    return found


def build_index(texts: Sequence[str]) -> Index:
    """Count the terms of every passage."""
    counts = tuple(Counter(terms(text)) for text in texts)
    lengths = tuple(sum(count.values()) for count in counts)
    frequency = Counter(term for count in counts for term in count)
    total = len(counts)
    idf = {
        term: math.log(1 + (total - seen + 0.5) / (seen + 0.5)) for term, seen in frequency.items()
    }
    return Index(counts, lengths, idf, max(1.0, sum(lengths) / max(1, total)))


def score(index: Index, number: int, query: Counter[str]) -> float:
    """BM25 of one passage."""
    count = index.counts[number]
    norm = K1 * (1 - B + B * index.lengths[number] / index.average)
    return sum(
        weight * index.idf[term] * count[term] * (K1 + 1) / (count[term] + norm)
        for term, weight in query.items()
        if term in count
    )


def terms(text: str) -> list[str]:
    """Latin words without their plural s, and overlapping pairs of Chinese characters."""
    result: list[str] = []
    for word in _WORD.findall(text.lower()):
        if word[0].isascii():
            if word not in _STOP:
                result.append(word.removesuffix("s") if len(word) > 3 else word)
        else:
            result += [word[at : at + 2] for at in range(max(1, len(word) - 1))]
    return result


@cache
def _query(clause: StandardClause) -> Counter[str]:
    query = Counter(terms(clause.usual))
    for term in terms(" ".join((*clause.cues, *clause.zh_cues))):
        query[term] += CUE_WEIGHT
    return query


def _select(texts: Sequence[str], matches: Sequence[Match]) -> list[int]:
    """Passage numbers from 0 that fit the budget, in document order, the most useful first."""
    by_score = sorted(matches, key=lambda match: -match.score)
    wanted = [
        *range(min(OPENING, len(texts))),
        *(match.passage - 1 for match in by_score),
        *range(len(texts)),
    ]
    kept: set[int] = set()
    characters = recorded = 0
    for number in dict.fromkeys(wanted):
        size, bytes_ = len(texts[number]), recorded_size(texts[number])
        if characters + size <= BUDGET and recorded + bytes_ <= RECORDED_BUDGET:
            kept.add(number)
            characters, recorded = characters + size, recorded + bytes_
    return sorted(kept)
