"""Request digests: what makes two requests one, and what keeps them apart."""

import math
import os
import subprocess
import sys
from collections.abc import Set
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import pytest

from models.digests import digest, digest_text
from models.errors import UnserialisableValue
from models.values import decode, encode
from tests.support.shown import shown

ROOT = Path(__file__).parents[2]

ALIKE: list[tuple[object, object]] = [
    ({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1}),
    ({1: "a", "x": 2}, {"x": 2, 1.0: "a"}),
    ([1], [1.0]),
    ([1], [Decimal("1.000")]),
    (100, Decimal("1E+2")),
    (10**15, 1e15),
    (10**5000, Decimal(10) ** 5000),
    (0.1, Decimal("0.10")),
    (1e-7, Decimal("0.0000001")),
    (0, -0.0),
    (Decimal("-0.00"), 0),
    (math.nan, -math.nan),
    (math.nan, Decimal("sNaN")),
    (math.inf, Decimal("Infinity")),
    ({"x", "y"}, {"y", "x"}),
]

APART: list[tuple[object, object]] = [
    ({"servers": 1}, {"servers": 10}),
    (1, True),
    (0, False),
    (0, None),
    (1, "1"),
    (1, -1),
    (math.inf, -math.inf),
    (math.nan, "nan"),
    (0.1, Decimal("0.1000000000000000055")),
    (2**53, 2**53 + 1),
    ({"a": None}, {}),
    ([1, 2], [2, 1]),
    ([1, 2], (1, 2)),
    ({1}, frozenset({1})),
    ({"$number": "1e0"}, 1),
    ({"1": 1}, {1: 1}),
    ({"a": "\ud83d\ude00"}, {"a": "\U0001f600"}),
    (b"a", "a"),
    (
        datetime(2026, 1, 1, tzinfo=UTC),
        datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))),
    ),
]


@pytest.mark.parametrize(("one", "other"), ALIKE, ids=shown)
def test_c27_another_spelling_is_the_same_request(one: object, other: object) -> None:
    assert digest(one) == digest(other)
    assert digest(decode(encode(one))) == digest(one)


@pytest.mark.parametrize(("one", "other"), APART, ids=shown)
def test_c27_another_meaning_is_another_request(one: object, other: object) -> None:
    assert digest(one) != digest(other)


REQUEST = {
    "servers": 1,
    "requested_at": "10:00",
    "trace": {"id": "a", "kind": "k"},
    "items": [{"sku": "x", "token": "t1"}],
}
LATER = {
    "items": [{"token": "t2", "sku": "x"}],
    "trace": {"kind": "k", "id": "b"},
    "requested_at": "10:07",
    "servers": 1.0,
}


@pytest.mark.parametrize(
    ("without", "alike"),
    [
        ({"requested_at", "trace.id", "items.token"}, True),
        ({"requested_at", "trace", "items"}, True),
        ({"requested_at", "trace.id"}, False),
        ({"requested_at", "id", "token"}, False),  # a bare name is a top-level field
        (frozenset(), False),
    ],
)
def test_c27_volatile_fields_are_left_out_by_path(without: Set[str], alike: bool) -> None:
    assert (digest(REQUEST, without=without) == digest(LATER, without=without)) is alike


def test_c27_leaving_fields_out_does_not_hide_the_rest() -> None:
    more = {**REQUEST, "servers": 10}
    assert digest(REQUEST, without={"requested_at"}) != digest(more, without={"requested_at"})


def test_foreign_values_are_refused_by_path() -> None:
    with pytest.raises(UnserialisableValue, match=r"the request cannot be recorded: \$\.a\[0\]"):
        digest({"a": [object()]})


def test_text_digests_are_of_the_stored_bytes() -> None:
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert digest_text("") == f"sha256:{empty}"
    assert digest_text("\ud800") != digest_text("?")


PROGRAM = """
from models.digests import digest, digest_text
from models.messages import safe_repr
from models.values import encode
value = {"tags": {"a", "b", "c", "d"}, "pairs": frozenset({(1, "x"), (2, "y")}), "n": 1.5}
print(digest(value), digest_text(encode(value)))
"""


def test_digests_are_the_same_in_every_process() -> None:
    """``hash()`` is salted per process, and so is the order in which a set is walked."""
    seen = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert len(seen) == 1
