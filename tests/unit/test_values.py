"""The codec: what it keeps, what it refuses and how it says so."""

import json
import math
import sys
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import IntEnum, StrEnum
from fractions import Fraction
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from pydantic import BaseModel, TypeAdapter

from models.errors import OutputTooLarge, UndecodableValue, UnserialisableValue
from models.long_texts import LONG
from models.values import decode, encode
from tests.support.shown import shown

BERLIN = ZoneInfo("Europe/Berlin")
LITERAL = "\\u0000"  # six characters, not a NUL


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Text(str):
    __slots__ = ()


class Pair(NamedTuple):
    left: int
    right: int


class Model(BaseModel):
    x: int


class FixedZone(tzinfo):
    def utcoffset(self, _moment: datetime | None, /) -> timedelta:
        return timedelta(hours=1)

    def dst(self, _moment: datetime | None, /) -> timedelta:
        return timedelta(0)

    def tzname(self, _moment: datetime | None, /) -> str:
        return "FIX"


KEPT: list[object] = [
    None,
    True,
    0,
    -0.0,
    1.0,
    0.1,
    1e-308,
    2**63,
    10**600,
    -(10**5000),
    math.inf,
    -math.inf,
    "",
    "ab\x00cd",
    LITERAL,
    "\ud800",
    "\ud83d\ude00",  # two lone halves
    "\U0001f600",  # the one character they would fuse into
    "\udc00\ud83d\ude00\U0001f600\ud83d",
    "合同",
    {"k\x00": 1, "\ud83d\ude00": 2, LITERAL: 3},
    [],
    {},
    (),
    [[], {}, ()],
    (1, (2, [3])),
    {3, 1},
    {(1, 2), "a", None},
    frozenset({frozenset({1}), 2}),
    {1: "a", None: "b", (1, 2): "c", True.real + 1: "d"},
    {"1": "a", 1: "b"},
    {"$tuple": [1, 2]},
    {"$dict": [["a", 1]]},
    {"$ref": "#/x"},
    {"$ref": 1, "$tuple": [1]},
    {"$": {"$set": {"$x": (1,)}}},
    '{"$tuple":[1]}',
    Decimal("1.10"),
    Decimal("-0"),
    Decimal("1E+400"),
    Decimal("Infinity"),
    datetime(2026, 3, 1, tzinfo=UTC),
    datetime(2026, 3, 1, 12, 30, 1, 5),  # noqa: DTZ001 - users have naive times
    datetime(2026, 3, 1, tzinfo=timezone(timedelta(hours=-3, minutes=-30))),
    date(2026, 2, 28),
    time(1, 2, 3, 4),
    time(1, 2, tzinfo=UTC),
    timedelta(days=-1, microseconds=1),
    b"",
    b"\xff\x00",
    UUID(int=5),
]


def same(before: object, after: object) -> bool:
    """Equal and of the same types all the way down, in the same order where order is kept."""
    return type(before) is type(after) and repr(before) == repr(after) and before == after


@pytest.mark.parametrize("value", KEPT, ids=shown)
def test_comes_back_as_it_was(value: Any) -> None:
    for placed in (value, [value], {"k": value}, {"k": (value, [value])}):
        text = encode(placed)
        json.loads(text)
        assert text.isascii()
        assert "\x00" not in text
        back = decode(text)
        assert back == placed
        if not isinstance(
            value, set | frozenset | int
        ):  # equal, yet printed otherwise or not at all
            assert same(placed, back)


def test_c01_nan_comes_back_as_nan_beside_what_was_fine() -> None:
    back = decode(encode({"score": math.nan, "best": math.inf, "ok": 0.5}))
    assert isinstance(back, dict)
    assert math.isnan(back["score"])
    assert (back["best"], back["ok"]) == (math.inf, 0.5)


@pytest.mark.parametrize("fold", [0, 1])
def test_zone_and_fold_are_kept(fold: int) -> None:
    moment = datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=fold)
    back = decode(encode(moment))
    assert isinstance(back, datetime)
    assert back.tzinfo is BERLIN
    assert back.fold == fold
    assert back.utcoffset() == moment.utcoffset()
    naive = moment.replace(tzinfo=None)
    wall = decode(encode([time(2, 30, tzinfo=BERLIN, fold=fold), naive]))
    assert isinstance(wall, list)
    assert wall[0].tzinfo is BERLIN
    assert [moment.fold for moment in wall] == [fold, fold]


def test_the_zone_that_pydantic_parses_into_becomes_a_plain_offset() -> None:
    parsed = TypeAdapter(datetime).validate_python("2026-03-01T00:00:00+02:00")
    back = decode(encode(parsed))
    assert isinstance(back, datetime)
    assert back == parsed
    assert type(back.tzinfo) is timezone


def test_order_of_keys_is_kept_and_order_of_sets_does_not_matter() -> None:
    assert encode({"b": 1, "a": 2}) == '{"b":1,"a":2}'
    assert encode({"x", "y", "z"}) == '{"$set":["x","y","z"]}'


REFUSED: list[tuple[object, str, str]] = [
    ({"findings": [0, {"score": Fraction(1, 3)}]}, "$.findings[1].score", "fractions.Fraction"),
    ([Colour.RED], "$[0]", "Colour"),
    ({"a": Level.HIGH}, "$.a", "Level"),
    (Text("x"), "$", "Text"),
    ({"a b": (1, {2: object()})}, '$["a b"][1][2]', "object"),
    ({"k\x00": Model(x=1)}, '$["k\\u0000"]', "Model"),
    ([OrderedDict()], "$[0]", "OrderedDict"),
    (Pair(1, 2), "$", "Pair"),
    (range(3), "$", "range"),
    (bytearray(b"x"), "$", "bytearray"),
    (1j, "$", "complex"),
    ({Colour.RED: 1}, "$['red']", "Colour"),
    (datetime(2026, 1, 1, tzinfo=FixedZone()), "$", "FixedZone"),
    (datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1), "CET")), "$", "timezone"),
]


@pytest.mark.parametrize(("value", "path", "type_name"), REFUSED, ids=shown)
def test_refuses_by_path_and_type(value: object, path: str, type_name: str) -> None:
    with pytest.raises(UnserialisableValue) as caught:
        encode(value, subject="the result of step review.read")
    assert caught.value.path == path
    assert type_name in caught.value.type_name
    message = str(caught.value)
    assert message.startswith("the result of step review.read cannot be recorded: ")
    assert message.isascii()
    assert message.isprintable()


def nest(depth: int, wrap: Callable[[object], object]) -> object:
    value: object = []
    for _ in range(depth):
        value = wrap(value)
    return value


@pytest.mark.parametrize(
    "wrap", [lambda v: [v], lambda v: {"k": v}, lambda v: (v,), lambda v: {1: v}]
)
def test_depth_has_one_limit_for_every_container(wrap: Callable[[object], object]) -> None:
    deepest = nest(99, wrap)
    assert decode(encode(deepest)) == deepest
    for depth in (100, 200, 5000):
        with pytest.raises(UnserialisableValue, match="nested deeper than 100 levels"):
            encode(nest(depth, wrap))


def test_circles_are_named() -> None:
    loop: dict[str, Any] = {"a": []}
    loop["a"].extend([loop, loop])
    with pytest.raises(UnserialisableValue, match="a value that contains it") as caught:
        encode(loop)
    assert caught.value.path == "$.a[0]"
    shared = [1]
    assert decode(encode([shared, shared])) == [[1], [1]]


def test_a_stack_that_is_nearly_full_gets_an_error_of_ours() -> None:
    def dig(room: int) -> str:
        return encode(nest(90, lambda v: (v,))) if room == 0 else dig(room - 1)

    with pytest.raises(UnserialisableValue, match="too deep for this stack"):
        dig(sys.getrecursionlimit() - 200)


def test_the_limit_is_in_bytes_and_the_error_names_the_largest_field() -> None:
    value = {"meta": "x" * 40, "pages": [{"text": "y"}, {"text": "é" * 100, "n": 1}]}
    size = len(encode(value))
    assert encode(value, limit=size) == encode(value)
    with pytest.raises(OutputTooLarge) as caught:
        encode(value, subject="the result of step read", limit=size - 1)
    error = caught.value
    assert (error.path, error.field_size, error.size) == ("$.pages[1].text", 602, size)
    assert f"takes {size:,} bytes" in str(error)
    with pytest.raises(OutputTooLarge) as caught:
        encode("x" * 10, limit=4)
    assert caught.value.path == "$"


@pytest.mark.parametrize(
    "text",
    ["", "{", "NaN", '{"$uuid":5}', '{"$later":1}', '{"$datetime":["2026-01-01","Mars/Base",0]}',
     '{"$decimal":"x"}', '{"$bytes":"%"}', '{"$dict":[1]}', '{"$set":[[]]}', "[" * 5000],
)  # fmt: skip
def test_text_that_was_not_ours_is_refused(text: str) -> None:
    with pytest.raises(UndecodableValue, match="cannot be read"):
        decode(text)


@pytest.mark.parametrize("unit", ["a", "\\", '"', "\n", "é", "\x7f", "\ud83d\ude00", "\ud800"])
def test_a_long_text_is_written_and_read_as_a_short_one(unit: str) -> None:
    """Long ones are encoded in pieces, and plain ones read without a parser."""
    for padding in ("b" * (LONG - 3), "b" * (LONG - 2)):
        value = padding + unit * 7
        assert decode(encode(value)) == value
        text = encode([value])
        assert text.startswith('["') or text.startswith('[{"$str"')
        assert encode(value) == text[1:-1]
