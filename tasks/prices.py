"""What a request to a model costs, from the table in ``ONWARD_PRICES``. Decimals all the way: 0.30 is 0.30.

    {"gpt-x*": {"input": 2.5, "output": 10, "max_output": 4096}, "ocr-1": {"call": 0.30}}

``input`` and ``output`` are US dollars per million tokens, ``call`` US dollars per request; ``max_output`` is how
long an answer can get when the request does not say. A name that ends in ``*`` stands for all that begin so; the
exact name wins, then the longest beginning.
"""

import json
import logging
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import lru_cache
from pathlib import Path
from typing import Any

from models.errors import OnwardError
from models.journal.call_values import Limit
from models.messages import safe_repr, shorten
from models.settings import settings

#: Tokens of an answer that nothing else bounds: a guess, by which no limit can be kept.
DEFAULT_MAX_OUTPUT = 4096
_log = logging.getLogger("onward.prices")
_MILLION = -6  #: as a power of ten
_DIGITS = 60  #: no sum of prices a person writes is ever rounded at this length
_FIELDS = ("input", "output", "call")
_LARGEST, _FINEST = Decimal(1_000_000), Decimal("1e-12")


class PricesError(OnwardError):
    """The price table cannot be read, or says something that is no price."""

    error_type = "prices_unreadable"


@dataclass(frozen=True, slots=True)
class Price:
    """One line of the table. What it does not name is free."""

    input: Decimal = Decimal(0)  #: USD per million tokens
    output: Decimal = Decimal(0)
    call: Decimal = Decimal(0)  #: USD per request
    max_output: int | None = None

    def of(self, tokens_in: int, tokens_out: int) -> Decimal:
        """What a request of this size costs, exactly."""
        with localcontext() as exact:
            exact.prec = _DIGITS
            tokens = tokens_in * self.input + tokens_out * self.output
            return self.call + tokens.scaleb(_MILLION) if tokens else self.call


@dataclass(frozen=True, slots=True)
class Worst:
    """What a request may cost at most."""

    tokens: int
    cost: Decimal | None  #: None: the table has no price for its model
    guessed: frozenset[Limit] = frozenset()  #: those of the two that nothing bounds


def cost_of(model: str | None, tokens_in: int, tokens_out: int) -> Decimal | None:
    """What a request did cost; None when the table has no price for the model."""
    price = price_of(model)
    return None if price is None else price.of(tokens_in, tokens_out)


def reserve_for(model: str | None, tokens_in_upper: int, max_output: int | None) -> Worst:
    """What to set aside before a request leaves. ``max_output`` is the request's own limit; None: it has none.

    Raises ``PricesError`` when the table cannot be read.
    """
    price = price_of(model)
    longest = max_output if max_output is not None or price is None else price.max_output
    tokens_out = DEFAULT_MAX_OUTPUT if longest is None else longest
    cost = None if price is None else price.of(tokens_in_upper, tokens_out)
    guessed: set[Limit] = set()
    if longest is None:
        guessed = {"tokens", "cost"} if price is None or price.output else {"tokens"}
    return Worst(tokens_in_upper + tokens_out, cost, frozenset(guessed))


def price_of(model: str | None) -> Price | None:
    """The line of the table that fits a model's name."""
    if model is None:
        return None
    found = table()
    if model in found:
        return found[model]
    begins = (name for name in found if name.endswith("*") and model.startswith(name[:-1]))
    longest = max(begins, key=len, default=None)
    return None if longest is None else found[longest]


def table() -> Mapping[str, Price]:
    """The price table. A file that was edited is read again: a run blocked for want of a price then goes on."""
    source = settings().prices.strip()
    if not source:
        return {}
    if source.startswith("{"):
        return _parsed(source, "ONWARD_PRICES", is_toml=False)
    try:
        seen = os.stat(source)
        found = _read(source, seen.st_mtime_ns, seen.st_size, seen.st_ino)
    except (OSError, PricesError) as error:
        return _last_good(source, error)
    _good[source] = found
    return found


def _last_good(source: str, error: OSError | PricesError) -> Mapping[str, Price]:
    """Half of an edit must not cost an answer that came meanwhile: its price is that of the table before."""
    if source in _good:
        _log.warning("The price table is used as it was before: %s", error)
        return _good[source]
    if isinstance(error, PricesError):
        raise error
    raise _unreadable(source, error.strerror or str(error)) from error


_good: dict[str, Mapping[str, Price]] = {}  #: by path: what it held when it could be read last


@lru_cache(maxsize=4)
def _read(path: str, *_seen: int) -> Mapping[str, Price]:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, str(error)) from error
    return _parsed(text, path, is_toml=path.endswith(".toml"))


@lru_cache(maxsize=4)
def _parsed(text: str, source: str, *, is_toml: bool) -> Mapping[str, Price]:
    try:
        read: Any = (
            tomllib.loads(text, parse_float=Decimal)
            if is_toml
            else json.loads(text, parse_float=Decimal)
        )
    except ValueError as error:
        raise _unreadable(source, str(error)) from error
    if not isinstance(read, dict):
        raise _unreadable(source, "it must be an object of models")
    return {name: _price(name, line, source) for name, line in read.items()}


def _price(name: str, line: object, source: str) -> Price:
    where = f"model {safe_repr(name)}"
    if "*" in name[:-1]:
        raise _unreadable(source, f"{where}: * stands at the end of a name only")
    if not isinstance(line, dict) or not line:
        raise _unreadable(source, f"{where} must be an object with input, output or call")
    if unknown := sorted(set(line) - {*_FIELDS, "max_output"}):
        raise _unreadable(
            source, f"{where} has {unknown[0]!r}; known are input, output, call, max_output"
        )
    priced = {
        field: _dollars(line[field], f"{where}: {field}", source)
        for field in _FIELDS
        if field in line
    }
    if not priced:
        raise _unreadable(source, f"{where} has neither input nor output nor call: it has no price")
    longest = line.get("max_output")
    if longest is not None and (type(longest) is not int or longest < 1):
        raise _unreadable(source, f"{where}: max_output must be a whole number of tokens")
    return Price(**priced, max_output=longest)


def _dollars(given: object, where: str, source: str) -> Decimal:
    if isinstance(given, bool) or not isinstance(given, int | Decimal):
        raise _unreadable(source, f"{where} must be a number of US dollars, not {safe_repr(given)}")
    price = Decimal(given)
    if not price.is_finite() or not 0 <= price <= _LARGEST:
        raise _unreadable(source, f"{where} must be from 0 to {_LARGEST:,}, not {given}")
    if price % _FINEST:
        raise _unreadable(source, f"{where} has more than 12 decimals: {given}")
    return price


def _unreadable(source: str, why: str) -> PricesError:
    return PricesError(
        f"The price table (ONWARD_PRICES, {shorten(source)}) cannot be used: {why}. Nothing was sent."
    )
