"""Server-sent events, as far as model services use them: ``data`` fields, one JSON value or a mark each."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

DONE = "[DONE]"


@dataclass(slots=True)
class Events:
    """What a recorded stream holds, in order."""

    values: list[dict[str, Any]] = field(default_factory=list)
    done: bool = False  #: the mark that ends OpenAI's streams was there
    malformed: bool = False  #: an event, other than a last one that was cut, is no JSON object


def read(body: bytes) -> Events:
    """Every event of a stream. An event without the blank line that ends it was cut off: it is not there."""
    events = Events()
    for data in _datas(body.decode("utf-8", "replace")):
        if data == DONE:
            events.done = True
            continue
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            events.malformed = True
            continue
        if isinstance(value, dict):
            events.values.append(value)
        else:
            events.malformed = True
    return events


def _datas(text: str) -> Iterator[str]:
    *lines, tail = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    data: list[str] = []
    for line in lines:
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif not line and data:
            yield "\n".join(data)
            data = []
    if DONE in (tail[5:].strip(), *data):  # some services end without the last blank line
        yield DONE
