"""The library of standard clauses, read from ``clauses.toml`` beside this file."""

import tomllib
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any


class ClauseKind(StrEnum):
    """The clauses the library knows; ``other`` is for findings that fit none."""

    LICENCE_SCOPE = "licence_scope"
    USE_RESTRICTIONS = "use_restrictions"
    FEES = "fees"
    RENEWAL = "renewal"
    TERMINATION = "termination"
    LIABILITY_CAP = "liability_cap"
    INDEMNITY = "indemnity"
    WARRANTY = "warranty"
    CONFIDENTIALITY = "confidentiality"
    DATA_PROTECTION = "data_protection"
    OWNERSHIP = "ownership"
    FEEDBACK = "feedback"
    UNILATERAL_CHANGE = "unilateral_change"
    AUDIT = "audit"
    SERVICE_LEVEL = "service_level"
    EXPORT = "export"
    ASSIGNMENT = "assignment"
    EXCLUSIVITY = "exclusivity"
    GOVERNING_LAW = "governing_law"
    DISPUTES = "disputes"
    FORCE_MAJEURE = "force_majeure"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class StandardClause:
    """One entry of the library; ``clauses.toml`` explains the fields."""

    kind: ClauseKind
    weight: int
    usual: str
    cues: tuple[str, ...]
    zh_cues: tuple[str, ...]
    concern: str
    zh_concern: str
    remedy: str
    zh_remedy: str

    def cues_in(self, text: str) -> int:
        """How many of the clause's cues ``text`` (lower case) holds; none is another clause."""
        return sum(cue in text for cue in self.cues) + sum(cue in text for cue in self.zh_cues)


def _clause(row: dict[str, Any]) -> StandardClause:
    kind, cues, zh_cues = ClauseKind(row.pop("kind")), row.pop("cues"), row.pop("zh_cues")
    return StandardClause(kind=kind, cues=tuple(cues), zh_cues=tuple(zh_cues), **row)


def _load() -> tuple[StandardClause, ...]:
    with Path(__file__).with_name("clauses.toml").open("rb") as file:
        return tuple(_clause(row) for row in tomllib.load(file)["clause"])


CLAUSES = _load()
BY_KIND = {clause.kind: clause for clause in CLAUSES}
