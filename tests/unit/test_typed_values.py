"""Annotated values: what survives under its annotation, and what is refused at once."""

import re
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from inspect import Parameter
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, Optional, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PrivateAttr, computed_field
from typing_extensions import TypedDict  # before 3.12, pydantic refuses the one of typing

from models.errors import (
    OnwardError,
    OutputTooLarge,
    UnserialisableValue,
    UnsupportedAnnotation,
    ValueMismatch,
)
from models.values import Typed, encode, schema_of

T = TypeVar("T")


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Point(Enum):
    ORIGIN = (0, 0)


class Inner(BaseModel):
    x: int


class Derived(Inner):
    extra: str = "lost"


class Box(BaseModel, Generic[T]):
    value: T


class Pair(NamedTuple):
    left: int
    right: Decimal


class Row(TypedDict, total=False):
    name: str
    price: Decimal


@dataclass
class Leaf:
    colour: Colour
    data: bytes


@dataclass
class Tree:
    leaf: Leaf
    rest: list["Tree"] = field(default_factory=list)


@dataclass
class Loose:
    value: Any


class Everything(BaseModel):
    price: Decimal
    at: datetime
    blob: bytes
    id: UUID
    box: Box[Inner]
    pair: tuple[int, str]
    tree: Tree
    row: Row
    colour: Colour
    level: Level
    point: Point
    path: Path
    address: IPv4Address
    either: int | str | None = None
    ratio: float = float("nan")


class Aliased(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    inner: tuple[Inner, ...] = Field(alias="Inner")
    colour: Colour = Colour.RED
    _cache: int = PrivateAttr(default=0)

    @computed_field  # type: ignore[prop-decorator]  # mypy knows no decorated properties
    @property
    def count(self) -> int:
        return len(self.inner)


class Hidden(BaseModel):
    shown: int
    hidden: int = Field(exclude=True)


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"


def everything() -> Everything:
    return Everything(
        price=Decimal("1.10"),
        at=datetime(2026, 3, 1, tzinfo=ZoneInfo("Europe/Berlin")),
        blob=b"\xff\x00",
        id=UUID(int=5),
        box=Box[Inner](value=Inner(x=1)),
        pair=(1, "a\x00"),
        tree=Tree(Leaf(Colour.RED, b"\xfe"), [Tree(Leaf(Colour.RED, b""))]),
        row={"price": Decimal("2.50"), "name": "x"},
        colour=Colour.RED,
        level=Level.HIGH,
        point=Point.ORIGIN,
        path=Path("/tmp/a"),
        address=IPv4Address("10.0.0.1"),
        either="5",
    )


SURVIVING: list[tuple[object, object]] = [
    (Everything, everything()),
    (list[Everything], [everything()]),
    (Aliased, Aliased.model_validate({"Inner": (Inner(x=1),)})),
    (Optional[Inner], None),  # noqa: UP045 - both spellings of it are users'
    (Inner | None, Inner(x=2)),
    (Cat | Dog, Dog()),
    (Annotated[Cat | Dog, Field(discriminator="kind")], Dog()),
    (Box[Box[Inner]], Box[Box[Inner]](value=Box[Inner](value=Inner(x=1)))),
    (dict[Colour, Inner], {Colour.RED: Inner(x=1)}),
    (dict[tuple[int, int], set[UUID]], {(1, 2): {UUID(int=1), UUID(int=2)}}),
    (Pair, Pair(1, Decimal("1.0"))),
    (deque[int], deque([1, 2])),
    (defaultdict[str, int], defaultdict(int, {"a": 1})),
    (OrderedDict[str, int], OrderedDict(b=1, a=2)),
    (Counter[str], Counter("aab")),
    (Sequence[int], (1, 2)),
    (list[datetime], [datetime(2026, 3, 1, tzinfo=UTC)]),
    (dict[str, Any], {"a": (1, Decimal("1.10"), {b"x"})}),
    (list, [1, (2,)]),
    (None, None),
    (bool, True),
    (int | float, 1),
    (int | str, "5"),
    (Any, {"a": UUID(int=1)}),
    (object, (1,)),
    (Parameter.empty, {1: 2}),
]


@pytest.mark.parametrize(("annotation", "value"), SURVIVING, ids=lambda item: ascii(item)[:40])
def test_survives_under_its_annotation(annotation: object, value: object) -> None:
    typed = Typed(annotation)
    text, seen = typed.round_trip(value)
    assert text.isascii()
    assert typed.dump(value) == text
    for back in (seen, typed.load(text)):
        assert type(back) is type(value)
        assert repr(back) == repr(value)
    assert typed.dump(seen) == text  # recorded again after a resume, it is the same text


def test_c02_types_and_values_are_those_of_a_resumed_run() -> None:
    text, live = Typed(Everything).round_trip(everything())
    resumed = Typed(Everything).load(text)
    assert isinstance(live, Everything)
    assert isinstance(resumed, Everything)
    assert [type(item) for _, item in live] == [type(item) for _, item in resumed]
    assert str(live.price) == str(resumed.price) == "1.10"
    assert type(resumed.box) is Box[Inner]


def test_an_int_for_a_float_is_that_float_from_the_start() -> None:
    assert repr(Typed(float).round_trip(1)[1]) == "1.0"
    assert (
        repr(Typed(Box[float]).round_trip(Box[float].model_construct(value=1))[1])
        == "Box[float](value=1.0)"
    )


def plus_one(value: int) -> int:
    return value + 1


class Grows(BaseModel):
    n: Annotated[int, AfterValidator(plus_one)]


REFUSED: list[tuple[object, object, type[OnwardError], str]] = [
    (Inner, Derived(x=1), ValueMismatch, "Derived would come back as"),
    (Inner, "text", ValueMismatch, "expected `Inner`"),
    (Inner, None, ValueMismatch, "Inner"),
    (Inner, {"x": 1}, ValueMismatch, "expected `Inner`"),
    (Box, Box(value=Inner(x=1)), ValueMismatch, r"\$.value: an? .*Inner would come back as a dict"),
    (Loose, Loose(Colour.RED), ValueMismatch, r"\$.value: an? .*Colour would come back as a str"),
    (Loose, Loose(3 + 1j), UnserialisableValue, r"\$.value is a complex"),
    (dict[str, Any], {"a": Inner(x=1)}, UnserialisableValue, r"\$.a is an? .*Inner"),
    (Hidden, Hidden(shown=1, hidden=2), ValueMismatch, r"\$.hidden: Field required"),
    (Grows, Grows(n=1), ValueMismatch, r"\$.n: 2 would come back as 3"),
    (int, "5", ValueMismatch, "valid integer, not '5'"),
    (int, True, ValueMismatch, "valid integer, not True"),
    (list[int], (1, 2), ValueMismatch, "valid list"),
    (list[Decimal], [1.5], ValueMismatch, "expected `decimal`"),
    (Decimal, Decimal("NaN"), ValueMismatch, "finite number"),
    (Row, {"name": 1}, ValueMismatch, r"\$\.name: expected `str`, not 1"),
    (Any, Inner(x=1), UnserialisableValue, "annotate the step's result type"),
    (Parameter.empty, Colour.RED, UnserialisableValue, "a kind of str"),
]


@pytest.mark.parametrize(
    ("annotation", "value", "error", "match"), REFUSED, ids=lambda item: ascii(item)[:30]
)
def test_refuses_what_would_not_come_back(
    annotation: object, value: object, error: type[OnwardError], match: str
) -> None:
    typed = Typed(annotation, subject="the result of step review.read")
    with pytest.raises(error, match=match) as caught:
        typed.dump(value)
    assert str(caught.value).startswith("the result of step review.read ")
    assert str(caught.value).isascii()


def test_circular_and_deep_models_are_refused_in_words() -> None:
    tree = Tree(Leaf(Colour.RED, b""))
    tree.rest.append(tree)
    with pytest.raises(ValueMismatch, match=r"[Cc]ircular"):
        Typed(Tree).dump(tree)
    deep = Tree(Leaf(Colour.RED, b""))
    for _ in range(400):
        deep = Tree(Leaf(Colour.RED, b""), [deep])
    with pytest.raises(OnwardError):
        Typed(Tree).dump(deep)


def test_size_is_checked_with_the_field_named() -> None:
    with pytest.raises(OutputTooLarge) as caught:
        Typed(Box[str]).dump(Box[str](value="x" * 100), limit=50)
    assert (caught.value.path, caught.value.limit) == ("$.value", 50)


def test_arguments_are_validated_against_their_annotation() -> None:
    typed = Typed(list[Inner], subject="argument 'clauses' of step review.analyse")
    assert typed.validate([{"x": 1}]) == [Inner(x=1)]
    with pytest.raises(ValueMismatch, match=re.escape("$[1].x: ")) as caught:
        typed.validate([{"x": 1}, {"x": "no"}])
    assert caught.value.path == "$[1].x"
    assert "argument 'clauses' of step review.analyse does not fit" in str(caught.value)


def test_an_annotation_nothing_could_be_rebuilt_from_is_refused_at_once() -> None:
    class Opaque:
        pass

    for annotation in (Opaque, list[Opaque], "Undefined", list["Undefined"]):  # type: ignore[name-defined]  # noqa: F821 - undefined on purpose
        with pytest.raises(UnsupportedAnnotation, match="the result of step read is annotated"):
            Typed(annotation, subject="the result of step read")


def test_schema_ignores_prose_and_keeps_fields_called_like_prose() -> None:
    class Titled(BaseModel):
        """A docstring that will be reworded."""

        title: str = Field(description="words")
        description: int = 3

    assert schema_of(Titled) == {
        "properties": {
            "title": {"type": "string"},
            "description": {"type": "integer", "default": 3},
        },
        "required": ["title"],
        "type": "object",
    }


@pytest.mark.parametrize(
    "annotation", [*(annotation for annotation, _ in SURVIVING), complex, type("Opaque", (), {})]
)
def test_every_annotation_has_a_schema_that_can_be_digested(annotation: object) -> None:
    assert encode(schema_of(annotation)) == encode(schema_of(annotation))


def test_schemas_tell_interfaces_apart() -> None:
    assert schema_of(Parameter.empty) == {}
    assert schema_of(Inner) != schema_of(Derived)
    assert schema_of(list[int]) != schema_of(list[str])
