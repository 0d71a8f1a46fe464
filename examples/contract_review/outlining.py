"""The skeleton of a document: its language, its headings and the terms it defines."""

import re

from examples.contract_review.passages import collapse
from examples.contract_review.values import Document, Outline

MOST_HEADINGS = 40
MOST_TERMS = 25

_NUMBERED = re.compile(
    r"(?:(?:article|section|part|exhibit|schedule)\s+[\divxlc]+|\d{1,2}(?:\.\d{1,2}){0,2}[.)]?|[ivx]{1,5}[.)])\s+\S"
    r"|第[一二三四五六七八九十百零\d]+[条章节]|[一二三四五六七八九十]+、|#{1,4}\s",
    re.IGNORECASE,
)
_CHINESE = re.compile(r"[\u4e00-\u9fff]")
_DEFINED = re.compile(
    r"[(\"“](?:the\s+)?[\"“]([A-Z][\w &/-]{1,40})[\"”]|以下简称[\"“「]?([\u4e00-\u9fff]{1,12})"
)
_ENGLISH = re.compile(r"\b(?:the|of|and|shall|this|you|agreement)\b", re.IGNORECASE)


def outline(document: Document) -> Outline:
    """Outline a document by its typography; no LLM is asked."""
    text = document.text
    headings = [collapse(line) for line in text.split("\n") if _is_heading(line.strip())]
    defined = [first or second for first, second in _DEFINED.findall(text)]
    return Outline(
        language=_language(text),
        headings=tuple(dict.fromkeys(headings))[:MOST_HEADINGS],
        defined_terms=tuple(dict.fromkeys(defined))[:MOST_TERMS],
    )


def _language(text: str) -> str:
    sample = text[:20_000]
    if len(_CHINESE.findall(sample)) > len(sample) / 10:
        return "zh"
    return "en" if len(_ENGLISH.findall(sample)) > len(sample) / 200 else "other"


def _is_heading(line: str) -> bool:
    if not 2 <= len(line) <= 90 or line.endswith((".", "。", ";", "；", ",")):
        return False
    letters = [char for char in line if char.isalpha()]
    shouted = len(letters) >= 4 and all(char.isupper() for char in letters)
    return shouted or _NUMBERED.match(line) is not None
