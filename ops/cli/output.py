"""What commands say: tables and sentences for people, one JSON value for programs, notes on stderr."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Annotated, Any, TextIO, TypeAlias

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from models.messages import printable
from models.redaction import redact

Json: TypeAlias = Annotated[bool, typer.Option("--json", help="One JSON value on standard output.")]

_PIPED_WIDTH = 200  #: columns of a table that nobody's terminal bounds


class Redacting:
    """A stream that writes no secret this process knows."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write what may be shown of a text."""
        self._stream.write(redact(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def emit(value: object, *, as_json: bool, show: Callable[[], None]) -> None:
    """Write a command's answer: ``value`` as JSON, or what ``show`` makes of it."""
    if as_json:
        sys.stdout.write(json.dumps(plain(value), ensure_ascii=False) + "\n")
        sys.stdout.flush()
    else:
        show()


def plain(value: object) -> Any:
    """A value in JSON's own types. Times are ISO 8601."""
    match value:
        case Enum():
            return value.value
        case datetime():
            return value.isoformat()
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case str() | int() | float() | bool() | None:
            return value
        case _ if is_dataclass(value) and not isinstance(value, type):
            return plain(asdict(value))
        case Iterable():
            return [plain(item) for item in value]
        case _:
            return str(value)


def console(*, error: bool = False) -> Console:
    """A console of the moment's stdout or stderr: no markup, since errors of users are full of brackets."""
    stream = sys.stderr if error else sys.stdout
    width = None if stream.isatty() else _PIPED_WIDTH
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


def say(text: str) -> None:
    """A sentence on stdout."""
    console().print(printable(text), soft_wrap=True)


def note(text: str) -> None:
    """A sentence on stderr, also with ``--json``."""
    console(error=True).print(printable(text), soft_wrap=True)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table on stdout. The first column identifies and is never folded."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for place, column in enumerate(columns):
        made.add_column(column, no_wrap=place == 0, overflow="fold")
    for row in rows:
        made.add_row(*(Text(_cell(cell)) for cell in row))
    console().print(made)


def facts(pairs: Iterable[tuple[str, object]]) -> None:
    """Names and values on stdout, those without a value left out. Never folded: values are copied."""
    shown = [(name, _cell(value)) for name, value in pairs if value not in (None, "")]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        console().print(Text.assemble((f"{name:<{width}}", "bold"), f" {value}"), soft_wrap=True)


def seconds_between(start: datetime | None, end: datetime | None) -> str:
    """``1.4 s``, or nothing."""
    return "" if start is None or end is None else f"{(end - start) / timedelta(seconds=1):.1f} s"


def _cell(value: object) -> str:
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    return "" if value is None else printable(redact(str(value)))
