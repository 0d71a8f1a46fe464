"""The price table: exact, by name or beginning, and clear about what it cannot read."""

import os
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from models.settings import settings
from tasks.prices import DEFAULT_MAX_OUTPUT, PricesError, cost_of, price_of, reserve_for, table


@pytest.fixture
def prices(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    settings.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    settings.cache_clear()


def use(prices: pytest.MonkeyPatch, text: str) -> None:
    prices.setenv("ONWARD_PRICES", text)
    settings.cache_clear()


def test_a_call_priced_030_reserves_exactly_030(prices: pytest.MonkeyPatch) -> None:
    use(prices, '{"gpt-x": {"call": 0.30}}')
    assert reserve_for("gpt-x", 1234, 77).cost == Decimal("0.30")
    assert str(reserve_for("gpt-x", 1234, 77).cost) == "0.30"
    assert sum([reserve_for("gpt-x", 5, 5).cost or 0] * 3) == Decimal("0.90")


def test_tokens_are_priced_per_million_and_never_rounded(prices: pytest.MonkeyPatch) -> None:
    use(prices, '{"gpt-x": {"input": 2.5, "output": 10, "call": 0.000001}}')
    assert cost_of("gpt-x", 1, 1) == Decimal("0.0000135")
    assert cost_of("gpt-x", 123_456_789_012_345, 3) == Decimal("308641972.530893500")
    assert cost_of("gpt-x", 0, 0) == Decimal("0.000001")


def test_many_small_costs_add_up_to_the_cent(prices: pytest.MonkeyPatch) -> None:
    use(prices, '{"m": {"input": 0.1, "output": 0.2}}')
    total = sum(cost_of("m", 1, 1) or Decimal(0) for _ in range(1_000_000 // 1000))
    assert total == Decimal("0.0003000")


@pytest.mark.parametrize(
    ("model", "call"),
    [
        ("gpt-x", "1"), ("gpt-x-2030-01-01", "2"), ("gpt-x-mini", "3"), ("gpt-x-mini-2", "3"),
        ("gpt", None), ("GPT-x", None), (None, None), ("", None),
    ],
)  # fmt: skip
def test_the_exact_name_wins_then_the_longest_beginning(
    prices: pytest.MonkeyPatch, model: str | None, call: str | None
) -> None:
    use(prices, '{"gpt-x*": {"call": 2}, "gpt-x-mini*": {"call": 3}, "gpt-x": {"call": 1}}')
    assert cost_of(model, 9, 9) == (None if call is None else Decimal(call))


def test_a_star_alone_is_every_model(prices: pytest.MonkeyPatch) -> None:
    use(prices, '{"*": {"call": 1}}')
    assert cost_of("anything", 0, 0) == 1


def test_what_a_request_may_cost_at_most(prices: pytest.MonkeyPatch) -> None:
    use(prices, '{"long": {"output": 1, "max_output": 9000}, "plain": {"output": 1}}')
    assert reserve_for("long", 100, 50).tokens == 150
    assert reserve_for("long", 100, None).tokens == 9100
    assert reserve_for("plain", 100, None).tokens == 100 + DEFAULT_MAX_OUTPUT
    assert reserve_for("plain", 100, None).cost == Decimal(DEFAULT_MAX_OUTPUT) / 1_000_000
    unknown = reserve_for("other", 100, 10)
    assert (unknown.tokens, unknown.cost) == (110, None)


def test_what_nothing_bounds_is_a_guess(prices: pytest.MonkeyPatch) -> None:
    use(
        prices,
        '{"long": {"output": 1, "max_output": 9000}, "plain": {"output": 1}, "ocr": {"call": 1}}',
    )
    assert reserve_for("plain", 100, None).guessed == {"tokens", "cost"}
    assert reserve_for("other", 100, None).guessed == {"tokens", "cost"}
    assert reserve_for("ocr", 100, None).guessed == {"tokens"}  # its length costs nothing
    bounded = (("long", None), ("plain", 50), ("plain", 0), ("other", 50))
    assert not any(reserve_for(model, 100, most).guessed for model, most in bounded)


def test_without_a_table_no_price_is_known(prices: pytest.MonkeyPatch) -> None:
    use(prices, "")
    assert table() == {}
    assert cost_of("gpt-x", 1, 1) is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("prices.toml", '["gpt-x*"]\ninput = 2.5\ncall = 0.30\n'),
        ("prices.json", '{"gpt-x*": {"input": 2.5, "call": 0.30}}'),
    ],
)
def test_a_file_is_read_and_read_again_once_it_is_edited(
    prices: pytest.MonkeyPatch, tmp_path: Path, name: str, text: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    use(prices, str(path))
    assert cost_of("gpt-x-1", 1_000_000, 0) == Decimal("2.80")
    assert cost_of("new", 0, 0) is None
    path.write_text(text.replace("gpt-x*", "new*"))
    os.utime(path, ns=(1, 1))
    assert cost_of("new", 1_000_000, 0) == Decimal("2.80")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "cannot be used"),
        ('{"a": 3}', "model 'a' must be an object"),
        ('{"a": {}}', "model 'a' must be an object"),
        ('{"a": {"max_output": 5}}', "it has no price"),
        ('{"a": {"inptu": 5}}', "has 'inptu'"),
        ('{"a": {"input": "5"}}', "input must be a number of US dollars, not '5'"),
        ('{"a": {"input": true}}', "input must be a number"),
        ('{"a": {"call": -1}}', "call must be from 0"),
        ('{"a": {"call": 1e-20000}}', "more than 12 decimals"),
        ('{"a": {"input": 0.1234567890123}}', "more than 12 decimals"),
        ('{"a": {"call": NaN}}', "call must be a number"),
        ('{"a": {"call": 1, "max_output": 0}}', "max_output must be a whole number"),
        ('{"a*b": {"call": 1}}', "* stands at the end"),
        ("/nowhere/prices.toml", "No such file"),
    ],
)
def test_what_cannot_be_a_price_table_is_refused_with_its_place(
    prices: pytest.MonkeyPatch, text: str, says: str
) -> None:
    use(prices, text)
    with pytest.raises(PricesError, match=r"ONWARD_PRICES") as refused:
        price_of("a")
    assert says in str(refused.value)
    assert "Nothing was sent." in str(refused.value)


def test_half_of_an_edit_leaves_the_table_as_it_was(
    prices: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "prices.json"
    path.write_text('{"gpt-x": {"call": 0.30}}')
    use(prices, str(path))
    assert cost_of("gpt-x", 0, 0) == Decimal("0.30")
    path.write_text('{"gpt-x": {"ca')
    assert cost_of("gpt-x", 0, 0) == Decimal("0.30")
    path.unlink()
    assert cost_of("gpt-x", 0, 0) == Decimal("0.30")


def test_a_request_is_not_sent_without_a_table_that_was_asked_for(
    prices: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use(prices, str(tmp_path / "missing.toml"))
    with pytest.raises(PricesError, match=r"missing\.toml"):
        reserve_for("gpt-x", 1, 1)
