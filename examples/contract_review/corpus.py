"""The default input: 137 real agreements, read from the installed package ``licensedcode-data``.

They are end-user licences, software licence agreements and terms of service that vendors published.
Each text is its vendor's, so none is kept in this repository.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from examples.contract_review.decoding import tidy
from examples.contract_review.errors import UnreadableDocument

SCHEME = "corpus:"
SIZE = 137
LEAST_CHARACTERS = 4_000  #: shorter texts are notices rather than agreements
MOST_CHARACTERS = 60_000  #: longer ones would be reviewed on a small part only
_CATEGORIES = ("Commercial", "Proprietary Free")
_AGREEMENT = re.compile(
    r"\b(eula|sla|agreement|terms|tou|tos|end[- ]user|subscription|purchase)\b", re.IGNORECASE
)
_FRONT_MATTER = re.compile(r"\A---\n(.*?)\n---\n", re.DOTALL)
_FIELD = re.compile(r"^([a-z_]+): *(.+)$", re.MULTILINE)
_NAME = re.compile(r"[a-z0-9][a-z0-9._+-]*")


@dataclass(frozen=True, slots=True)
class Agreement:
    """One text of the package with what its front matter says."""

    name: str
    title: str
    text: str
    category: str = ""
    language: str = "en"


@lru_cache(maxsize=1)
def default_uris() -> tuple[str, ...]:
    """The 137 documents, the same in every call and on every machine.

    From all agreements that qualify, in the order of their names, evenly spaced ones are taken, so
    that a vendor with twenty dated versions of its terms does not fill the batch.
    """
    names = [
        agreement.name
        for agreement in map(_parse, sorted(_folder().glob("*.LICENSE")))
        if _fits(agreement)
    ]
    if len(names) < SIZE:
        raise UnreadableDocument(
            "the default documents",
            f"licensedcode-data holds {len(names)} agreements that qualify, and {SIZE} are needed",
            "Install the version in requirements.lock.",
        )
    return tuple(f"{SCHEME}{names[index * len(names) // SIZE]}" for index in range(SIZE))


def read_agreement(name: str) -> Agreement:
    """One agreement by its name, which is also its file's name in the package."""
    path = _folder() / f"{name}.LICENSE"
    if not _NAME.fullmatch(name) or not path.is_file():
        raise UnreadableDocument(
            f"{SCHEME}{name}", "licensedcode-data has no such text", "Check the name."
        )
    return _parse(path)


def _fits(agreement: Agreement) -> bool:
    return (
        agreement.category in _CATEGORIES
        and agreement.language == "en"
        and LEAST_CHARACTERS <= len(agreement.text) <= MOST_CHARACTERS
        and _AGREEMENT.search(agreement.title) is not None
    )


def _folder() -> Path:
    spec = find_spec("licensedcode")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        if (folder := Path(place) / "data" / "licenses").is_dir():
            return folder
    raise UnreadableDocument(
        "the default documents",
        "the package licensedcode-data is not installed",
        "pip install 'onward[review]'",
    )


def _parse(path: Path) -> Agreement:
    raw = path.read_text("utf-8", errors="replace")
    front = _FRONT_MATTER.match(raw)
    fields = dict(_FIELD.findall(front.group(1))) if front else {}
    fields = {name: value.strip().strip("'\"") for name, value in fields.items()}
    return Agreement(
        name=path.stem,
        title=fields.get("name", path.stem),
        text=tidy(raw[front.end() :] if front else raw),
        category=fields.get("category", ""),
        language=fields.get("language", "en"),
    )
