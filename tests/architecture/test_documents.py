"""What is written for people is finished, and leads where it says."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.architecture.source import ROOT

PLACEHOLDER = re.compile(r"@@\w*")
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
INLINE_CODE = re.compile(r"`[^`\n]*`")
#: `[text](target)`, `![text](target)` and `[name]: target`.
TARGET = re.compile(r"\]\(\s*<?([^)\s>]+)|^\[[^\]]+\]:\s*(\S+)", re.MULTILINE)
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//")


def documents() -> list[Path]:
    written = [
        ROOT / "README.md",
        ROOT / "CHANGELOG.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
    ]
    assert len(written) > 5
    return sorted(written)


def prose(text: str) -> str:
    """A document without its code, in which brackets mean something else."""
    return INLINE_CODE.sub("", FENCED.sub("", text))


def targets(document: Path) -> Iterator[str]:
    """Where its links and images lead, as far as that is in this checkout."""
    for match in TARGET.finditer(prose(document.read_text(encoding="utf-8"))):
        target = match[1] or match[2]
        if not ELSEWHERE.match(target):
            yield target


@cache
def anchors(document: Path) -> set[str]:
    """The names that the headings of a document have as links."""
    headings = re.findall(
        r"^#+ (.+)$", FENCED.sub("", document.read_text(encoding="utf-8")), re.MULTILINE
    )
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }


def leads_somewhere(document: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    there = document if not path else (document.parent / path).resolve()
    if not there.exists() or not there.is_relative_to(ROOT):
        return False
    return not anchor or there.suffix != ".md" or anchor in anchors(there)


def test_no_document_has_a_placeholder() -> None:
    unfinished = [
        f"{document.relative_to(ROOT)}:{number}: {found[0]}"
        for document in documents()
        for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), start=1)
        if (found := PLACEHOLDER.search(line))
    ]
    assert not unfinished, unfinished


def test_every_link_and_image_of_a_document_resolves() -> None:
    dead = [
        f"{document.relative_to(ROOT)}: {target}"
        for document in documents()
        for target in targets(document)
        if not leads_somewhere(document, target)
    ]
    assert not dead, dead
