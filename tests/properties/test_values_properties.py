"""Whatever the codec takes comes back the same, and digests depend on meaning alone."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from models.digests import digest
from models.ids import MAX_KEY, idempotency_key, task_id
from models.survival import first_difference
from models.values import Typed, decode, encode

# Every code point, surrogates included, and what looks like our own tags.
TEXT = st.text(st.characters(codec=None)) | st.sampled_from(
    ["", "$tuple", "$dict", "$", "\\u0000", "\x00", "\ud83d\ude00", '{"$tuple":[]}']
)
ZONES = st.sampled_from(
    [
        None,
        UTC,
        timezone(-timedelta(hours=3, minutes=30)),
        ZoneInfo("Europe/Berlin"),
        ZoneInfo("Asia/Shanghai"),
    ]
)
SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(2**2047, 2**2049),
    st.floats(),
    TEXT,
    st.binary(),
    st.decimals(),
    st.uuids(),
    st.dates(),
    st.times(timezones=ZONES),
    st.datetimes(timezones=ZONES),
    st.timedeltas(),
)


def hashable(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3)


def is_a_key(value: Any) -> bool:
    """A set may hold many NaN, none of them equal to any, and a signalling one has no hash."""
    return not value.is_nan() if isinstance(value, Decimal) else bool(value == value)  # noqa: PLR0124


KEYS = st.recursive(SCALARS.filter(is_a_key), hashable, max_leaves=4)


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(TEXT, inner, max_size=4),
        st.dictionaries(KEYS, inner, max_size=3),
        st.sets(KEYS, max_size=3),
    )


VALUES = st.recursive(SCALARS, containers, max_leaves=12)


@given(VALUES)
def test_what_is_recorded_comes_back(value: Any) -> None:
    text = encode(value)
    assert text.isascii()
    assert text.isprintable()
    json.loads(text)
    back = decode(text)
    assert first_difference(value, back) is None
    assert encode(back) == text  # canonical: the same text again


@given(st.dictionaries(TEXT, st.integers(), max_size=6))
def test_order_of_keys_is_recorded_and_not_digested(value: dict[str, int]) -> None:
    back = decode(encode(value))
    assert isinstance(back, dict)
    assert list(back) == list(value)
    assert digest(dict(reversed(value.items()))) == digest(value)


@given(VALUES, VALUES)
def test_other_text_has_the_same_digest_only_by_another_spelling(one: Any, other: Any) -> None:
    if digest(one) == digest(other):
        assert encode(respelled(one)) == encode(respelled(other))
    else:
        assert encode(one) != encode(other)


def respelled(value: Any) -> Any:
    """One spelling for every number, and no order of keys: what a digest may ignore."""
    kind = type(value)
    if kind in (int, float, Decimal):
        return spelled(Decimal(repr(value)) if kind is float else Decimal(value))
    if kind is dict:
        return {encode(respelled(key)): respelled(item) for key, item in sorted_items(value)}
    if kind in (list, tuple, set, frozenset):
        return kind(map(respelled, value))
    return value


def spelled(number: Decimal) -> str:
    if number.is_nan():
        return "number nan"
    if number.is_infinite():
        return f"number {number}"
    numerator, denominator = number.as_integer_ratio()
    return f"number {numerator:x}/{denominator:x}"


def sorted_items(value: dict[Any, Any]) -> list[tuple[Any, Any]]:
    return sorted(value.items(), key=lambda item: encode(respelled(item[0])))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_is_the_decimal_it_is_written_as(value: float) -> None:
    assert digest(value) == digest(Decimal(repr(value)))


@dataclass
class Leaf:
    data: bytes
    note: str | None


class Model(BaseModel):
    price: Decimal
    at: datetime
    id: UUID
    pair: tuple[int, float]
    leaves: dict[str, Leaf]
    anything: Any


MODELS = st.builds(
    Model,
    price=st.decimals(allow_nan=False, allow_infinity=False),
    at=st.datetimes(timezones=ZONES),
    id=st.uuids(),
    pair=st.tuples(st.integers(), st.floats()),
    leaves=st.dictionaries(
        TEXT, st.builds(Leaf, data=st.binary(), note=st.none() | st.text()), max_size=3
    ),
    anything=VALUES,
)
MODEL = Typed(Model)


@given(MODELS)
def test_models_come_back_with_their_types(model: Model) -> None:
    text, seen = MODEL.round_trip(model)
    assert first_difference(model, seen) is None
    assert MODEL.dump(seen) == text


PARTS = st.tuples(TEXT, TEXT, TEXT, st.none() | st.integers())


@given(PARTS, PARTS)
def test_keys_of_two_intents_differ(
    one: tuple[str, str, str, int | None], other: tuple[str, str, str, int | None]
) -> None:
    keys = {idempotency_key(*one), idempotency_key(*other)}
    assert len(keys) == len({one, other})
    assert all(len(key) <= MAX_KEY and key.isascii() for key in keys)


@given(st.tuples(TEXT, TEXT, st.integers(1)), st.tuples(TEXT, TEXT, st.integers(1)))
def test_task_ids_of_two_attempts_differ(
    one: tuple[str, str, int], other: tuple[str, str, int]
) -> None:
    assert len({task_id(*one), task_id(*other)}) == len({one, other})
    assert all(char.isalnum() or char in "-._=:~" for char in task_id(*one))
