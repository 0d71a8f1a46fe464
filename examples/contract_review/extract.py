"""Text from .txt, .md, .html, .pdf and .docx files, or one clear reason why there is none.

The extraction libraries are imported where they are used: a run over plain text needs none.
"""

import io
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from examples.contract_review.decoding import decode, tidy
from examples.contract_review.errors import UnreadableDocument

if TYPE_CHECKING:
    from bs4 import Tag
    from docx.document import Document as DocxDocument

FILE_LIMIT = 50 * 1024 * 1024  #: bytes; larger files are scans or not contracts
UNPACKED_LIMIT = (
    200 * 1024 * 1024
)  #: bytes a .docx may unpack to: it is a zip, and zips can be bombs
LEAST_CHARACTERS = 40  #: without white space; below this there is no contract to review

_BLOCKS = re.compile(
    r"address|article|aside|blockquote|d[dlt]|div|fig(?:caption|ure)|footer|form|h[1-6r]|header|li|"
    r"main|nav|[ou]l|p|pre|section|t(?:able|d|h|r)"
)


def extract_text(path: Path) -> str:
    """The text of a file of a supported type; UnreadableDocument says why there is none."""
    extractor = _EXTRACTORS.get(path.suffix.lower())
    if extractor is None:
        raise UnreadableDocument(
            path.name,
            f"files of type {path.suffix or '(none)'} are not supported",
            f"Convert it to one of {', '.join(SUPPORTED)}.",
        )
    text = tidy(extractor(path, _load(path)))
    if len("".join(text.split())) < LEAST_CHARACTERS:
        advice = (
            "A scan has to go through OCR first."
            if path.suffix.lower() == ".pdf"
            else "Is it the right file?"
        )
        raise UnreadableDocument(path.name, "it holds hardly any text", advice)
    return text


def _load(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise UnreadableDocument(
                path.name, f"there is no such file in {path.parent}", "Was it moved?"
            )
        size = path.stat().st_size
        if size > FILE_LIMIT:
            raise UnreadableDocument(
                path.name,
                f"it has {size // 2**20} MiB, and {FILE_LIMIT // 2**20} are the limit",
                "Split it.",
            )
        return path.read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise UnreadableDocument(path.name, reason, "Check that the worker may read it.") from error


def _plain(path: Path, data: bytes) -> str:
    text = decode(data)
    if text is None:
        raise UnreadableDocument(
            path.name, "it is not text in any known encoding", "Save it as UTF-8."
        )
    return text


def _html(path: Path, data: bytes) -> str:
    from bs4 import BeautifulSoup  # noqa: PLC0415  # plain text need not wait for it
    from bs4.dammit import EncodingDetector  # noqa: PLC0415  # plain text need not wait for it

    declared = EncodingDetector.find_declared_encoding(data, is_html=True)
    try:
        markup = data.decode(declared) if declared else _plain(path, data)
    except (LookupError, UnicodeDecodeError):  # a declaration can be wrong, and often is
        markup = _plain(path, data)
    soup = BeautifulSoup(markup, "html.parser")
    for hidden in soup(["script", "style", "noscript", "template", "head"]):
        hidden.decompose()
    for line in soup.find_all("br"):
        line.replace_with("\n")
    for block in soup.find_all(_is_block):
        block.insert_before("\n\n")
        block.append("\n\n")
    return re.sub(r"\s*\n\s*\n\s*", "\n\n", soup.get_text())


def _is_block(tag: "Tag") -> bool:
    return _BLOCKS.fullmatch(tag.name) is not None


def _pdf(path: Path, data: bytes) -> str:
    from pypdf import PdfReader  # noqa: PLC0415  # plain text need not wait for it

    try:
        reader = PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            raise UnreadableDocument(
                path.name, "it is encrypted", "Save a copy without a password."
            )
        return "\n\n".join(page.extract_text() for page in reader.pages)
    except UnreadableDocument:
        raise
    except Exception as error:  # pypdf meets damaged files with whatever its parser trips over
        raise _damaged(path, "PDF", error) from error


def _docx(path: Path, data: bytes) -> str:
    from docx import Document as open_docx  # noqa: PLC0415  # plain text need not wait for it

    if data.startswith(b"\xd0\xcf\x11\xe0"):  # an OLE container: Word's encryption, or the old .doc
        raise UnreadableDocument(
            path.name,
            "it is encrypted, or an old .doc under a new name",
            "Save it as .docx without a password.",
        )
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
        if unpacked > UNPACKED_LIMIT:
            raise UnreadableDocument(
                path.name, f"it unpacks to {unpacked // 2**20} MiB", "Remove its pictures."
            )
        return "\n\n".join(_docx_blocks(open_docx(io.BytesIO(data))))
    except UnreadableDocument:
        raise
    except Exception as error:  # a broken zip, missing parts, broken XML: one answer for all
        raise _damaged(path, ".docx", error) from error


def _docx_blocks(document: "DocxDocument") -> list[str]:
    """Paragraphs and table rows in the order in which they are read."""
    from docx.table import Table  # noqa: PLC0415  # plain text need not wait for it

    blocks: list[str] = []
    for item in document.iter_inner_content():
        if isinstance(item, Table):
            blocks += ["\t".join(cell.text for cell in row.cells) for row in item.rows]
        else:
            blocks.append(item.text)
    return blocks


def _damaged(path: Path, kind: str, error: Exception) -> UnreadableDocument:
    detail = str(error).strip().split("\n")[0][:200] or type(error).__name__
    return UnreadableDocument(
        path.name, f"it is not a sound {kind} file ({detail})", "Open it and save it again."
    )


_EXTRACTORS: dict[str, Callable[[Path, bytes], str]] = {
    ".txt": _plain,
    ".md": _plain,
    ".html": _html,
    ".htm": _html,
    ".pdf": _pdf,
    ".docx": _docx,
}
SUPPORTED = tuple(_EXTRACTORS)
