"""Answers as they stand in the record, and the text in a stream while it comes."""

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tasks.llm.values import OnChunk
from tasks.recorder import sse
from tasks.recorder.reading import fields

_log = logging.getLogger("onward.llm")


def whole(
    headers: Iterable[tuple[str, str]],
    body: bytes,
    gathered: Callable[[Iterable[Mapping[str, Any]]], dict[str, Any]],
) -> dict[str, Any]:
    """The answer that a body holds, in whichever of the two forms it came.

    Some services send one object where a stream was asked for, or the other way round, or name another type:
    what the recorder took for an answer is read as the recorder reads it, and not as an SDK expects it.
    """
    kind = next((value for name, value in headers if name.lower() == "content-type"), "")
    if "event-stream" in kind.lower():
        return gathered(sse.read(body).values)
    return fields(json.loads(body))


class Deltas:
    """Reads server-sent events as they arrive, cut anywhere, and hands on the text in them.

    A listener that fails is not called again: the answer is paid for, and goes to the record all the same.
    """

    def __init__(self, delta: Callable[[Mapping[str, Any]], str], on_chunk: OnChunk) -> None:
        self._delta, self._on_chunk = delta, on_chunk
        self._rest = b""
        self._failed = False

    def __call__(self, data: bytes) -> None:
        if self._failed:
            return
        try:
            self._hand_on(data)
        except Exception:
            self._failed = True
            _log.exception("on_chunk failed: it hears no more of this answer, which is recorded")

    def _hand_on(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if text := self._text(line.strip()):
                self._on_chunk(text)

    def _text(self, line: bytes) -> str:
        if not line.startswith(b"data:"):
            return ""
        try:
            event = json.loads(line.removeprefix(b"data:"))
        except (ValueError, RecursionError):
            return ""  # the end mark, or half an event: the recorder judges the whole
        return self._delta(event) if isinstance(event, Mapping) else ""
