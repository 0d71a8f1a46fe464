"""What a batch will ask of the LLM, told before it starts."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from examples.contract_review import corpus
from examples.contract_review.errors import UnreadableDocument
from examples.contract_review.retrieval import BUDGET

CALLS_PER_DOCUMENT = 3
STEPS_PER_DOCUMENT = 8
_BYTES_PER_TOKEN = 4  #: in English; Chinese has three bytes a character, each about a token
_QUESTIONS = 2_950  #: tokens a document beside its passages: instructions, schemas, findings so far
_ANSWERS = 1_650  #: tokens a document: three answers


@dataclass(frozen=True, slots=True)
class Estimate:
    """Expected calls and tokens; answers refused by a check are asked again and come on top."""

    documents: int
    llm_calls: int
    tokens_in: int
    tokens_out: int

    def __str__(self) -> str:
        return (
            f"{self.documents} documents: about {self.llm_calls:,} LLM calls, "
            f"{self.tokens_in:,} tokens in and {self.tokens_out:,} tokens out"
        )


def estimate(uris: Sequence[str]) -> Estimate:
    """Expect three calls for each document; two of them carry its passages.

    Files are not opened: their sizes bound the text, and a PDF is taken for a long one.
    """
    passages = sum(min(_text_bytes(uri), BUDGET) for uri in uris) // _BYTES_PER_TOKEN
    return Estimate(
        documents=len(uris),
        llm_calls=CALLS_PER_DOCUMENT * len(uris),
        tokens_in=2 * passages + _QUESTIONS * len(uris),
        tokens_out=_ANSWERS * len(uris),
    )


def _text_bytes(uri: str) -> int:
    """An upper bound; 0 for what is not there, whose run will fail before it asks anything."""
    try:
        if uri.startswith(corpus.SCHEME):
            return len(corpus.read_agreement(uri.removeprefix(corpus.SCHEME)).text)
        path = Path(unquote(urlsplit(uri).path))
        return path.stat().st_size
    except (OSError, UnreadableDocument):
        return 0
