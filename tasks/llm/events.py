"""The text in a stream while it comes: bytes in, pieces of text out."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from tasks.llm.values import OnChunk


class Deltas:
    """Reads server-sent events as they arrive, cut anywhere, and hands on the text in them."""

    def __init__(self, delta: Callable[[Mapping[str, Any]], str], on_chunk: OnChunk) -> None:
        self._delta, self._on_chunk = delta, on_chunk
        self._rest = b""

    def __call__(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if text := self._text(line.strip()):
                self._on_chunk(text)

    def _text(self, line: bytes) -> str:
        if not line.startswith(b"data:"):
            return ""
        try:
            event = json.loads(line.removeprefix(b"data:"))
        except ValueError:
            return ""  # the end mark, or half an event: the recorder judges the whole
        return self._delta(event) if isinstance(event, Mapping) else ""
