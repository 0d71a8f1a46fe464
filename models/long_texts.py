"""JSON of long texts, so that no other thread has to wait for it: heartbeats run in one, and a text may have 300 MB."""

import json
from typing import Final

LONG: Final = 1 << 20  #: characters from which this pays, and that are encoded at a time

_dumps = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode


def quoted(text: str) -> str:
    """What the encoder makes of a text, made in pieces: while it works it lets no other thread run."""
    pieces = (_dumps(text[at : at + LONG])[1:-1] for at in range(0, len(text), LONG))
    return "".join(('"', *pieces, '"'))


def is_bare(text: str) -> bool:
    """Whether it is JSON of one string without escapes, which needs no parser."""
    return (
        text.startswith('"')
        and text.isascii()
        and "\\" not in text
        and text.find('"', 1) == len(text) - 1
        and text.isprintable()
    )
