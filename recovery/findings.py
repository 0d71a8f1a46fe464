"""What verification finds."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that does not hold: a word to search for, where, and a sentence."""

    word: str
    where: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.word} ({self.where}): {self.sentence}"
