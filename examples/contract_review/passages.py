"""A document cut into passages, passages into sentences, and text made comparable."""

import re
import unicodedata

PASSAGE_LENGTH = 1_200  #: characters; longer paragraphs are split at the ends of sentences
HEADING_LENGTH = 90  #: characters; a short block without a full stop belongs to the text below it

CJK = r"\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef\u3001-\u303f"
_BETWEEN_CJK = re.compile(rf"(?<=[{CJK}])[^\S\n]*\n\s*(?=[{CJK}])")
_SENTENCE = re.compile(r"(?<=[.!?;])\s+(?=[A-Z0-9(\"“'‘])|(?<=[。！？；])")
_NUMBER_ONLY = re.compile(r"[\W\d]*(?:[A-Za-z][.)])?")
_QUOTES = str.maketrans(
    {"“": '"', "”": '"', "„": '"', "‘": "'", "’": "'", "–": "-", "—": "-", "`": "'"}
)


def split_passages(text: str) -> list[str]:
    """Paragraphs in order, white space collapsed, headings joined with what they head."""
    passages: list[str] = []
    heading = ""
    for block in re.split(r"\n\s*\n", text):
        flat = collapse(block)
        if not flat:
            continue
        if _is_heading(flat):
            heading = f"{heading} {flat}".strip()
            continue
        passages += _bounded(f"{heading} {flat}".strip())
        heading = ""
    return passages + (_bounded(heading) if heading else [])


def sentences(passage: str) -> list[str]:
    """The sentences of a passage; a number such as ``7.`` stays with what follows it."""
    result: list[str] = []
    carried = ""
    for part in _SENTENCE.split(passage):
        piece = f"{carried} {part}".strip() if carried else part.strip()
        if _NUMBER_ONLY.fullmatch(piece):
            carried = piece
        else:
            result.append(piece)
            carried = ""
    return [*result, carried] if carried else result


def collapse(text: str) -> str:
    """White space as single spaces, and none where a line ended between two Chinese characters."""
    return " ".join(_BETWEEN_CJK.sub("", text).split())


def comparable(text: str) -> str:
    """A form in which a quotation equals its origin whatever its spaces, marks and case."""
    return "".join(unicodedata.normalize("NFKC", text).translate(_QUOTES).casefold().split())


def _is_heading(flat: str) -> bool:
    return len(flat) <= HEADING_LENGTH and not flat.endswith((".", "。", ";", "；", ":", "：", ","))


def _bounded(text: str) -> list[str]:
    """Pieces of at most PASSAGE_LENGTH, split at sentences, or anywhere in an endless one."""
    if len(text) <= PASSAGE_LENGTH:
        return [text]
    pieces = [""]
    for sentence in sentences(text):
        for start in range(0, len(sentence), PASSAGE_LENGTH):
            part = sentence[start : start + PASSAGE_LENGTH]
            if len(pieces[-1]) + len(part) >= PASSAGE_LENGTH:
                pieces.append("")
            pieces[-1] = f"{pieces[-1]} {part}".strip()
    return [piece for piece in pieces if piece]
