"""From bytes to text when nothing says which encoding: marks first, then evidence, then a choice.

Kept here, small and exact, because general detectors guess differently from one installed set of
packages to the next, and the text's digest is part of the record.
"""

import codecs
import re
import unicodedata

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16: its mark begins with UTF-16's
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\ufeff\ud800-\udfff]")
_ODD = ("Cc", "Cn", "Co", "Cs")  # control, unassigned, private, surrogate
_HIGH_PAIR = re.compile(rb"[\xa1-\xfe][\xa1-\xfe]")
_HIGH_BYTE = re.compile(rb"[\x80-\xff]")


def decode(data: bytes) -> str | None:
    """The text, or None when the bytes are not text in any encoding tried here."""
    text = _decoded(data)
    return text if text is not None and _is_readable(text) else None


def _decoded(data: bytes) -> str | None:
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _strict(data, encoding)
    if (wide := _unmarked_utf16(data)) is not None:
        return _strict(data, wide)
    if b"\x00" in data:
        return None
    for encoding in ("utf-8", *_by_evidence(data)):
        if (text := _strict(data, encoding)) is not None:
            return text
    return data.decode("latin-1")


def _is_readable(text: str) -> bool:
    """Nearly all characters are assigned ones that print: any bytes decode, but not to that."""
    sample = text[:4096]
    odd = sum(unicodedata.category(char) in _ODD and char not in "\t\n\r\f\x85" for char in sample)
    return odd <= len(sample) / 50


def tidy(text: str) -> str:
    """One form for the same text: NFC, LF line ends, no control characters, no lone surrogates."""
    text = (
        text.replace("\r\n", "\n").replace("\r", "\n").replace("\x0c", "\n\n").replace("\x85", "\n")
    )
    return unicodedata.normalize("NFC", _CONTROL.sub("", text)).strip()


def _strict(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        return None


def _unmarked_utf16(data: bytes) -> str | None:
    """UTF-16 without a mark: every other byte of Latin text is NUL, and so is each line end's."""
    head = data[:4096]
    even, odd = head[0::2].count(0), head[1::2].count(0)
    if max(even, odd) < max(2, len(head) // 20):
        return None
    return "utf-16-be" if even > odd else "utf-16-le"


def _by_evidence(data: bytes) -> tuple[str, ...]:
    """GB18030 when high bytes come in pairs, as Chinese does; else single bytes, as accents do.

    Both decode nearly anything, so success proves nothing. In Chinese text four fifths or more of
    the high bytes stand in pairs of the GB 2312 range; in Western text accents stand alone.
    """
    high = len(_HIGH_BYTE.findall(data))
    paired = 2 * len(_HIGH_PAIR.findall(data))
    return ("gb18030", "cp1252") if high and paired >= 0.8 * high else ("cp1252", "gb18030")
