"""Calls by hand: what a worker's recorder asks of the journal, and the rows as a test sees them."""

from decimal import Decimal
from typing import Any

from models.journal import calls, wallets
from models.journal.call_values import Charge, Exceeded, NewCall, Place, Reservation, Reserved
from models.journal.values import Claimed
from tests.support.journal import Journal

ENDPOINT = "https://models.example/v1"
HERE = Place(0, "", 0)


def at_position(position: int, scope: str = "", generation: int = 0) -> Place:
    return Place(generation, scope, position)


def asked(place: Place = HERE, **changes: Any) -> NewCall:
    """One answered call."""
    facts: dict[str, Any] = {
        "kind": "model", "digest": "sha256:request", "method": "POST", "url": f"{ENDPOINT}/chat/completions",
        "endpoint": ENDPOINT, "dialect": "openai.chat", "model": "gpt-x", "model_answered": "gpt-x",
        "request": '{"messages":[]}', "status": 200, "headers": "{}", "answer": '{"choices":[]}',
        "state": "complete", "tokens_in": 7, "tokens_out": 5, "started_at_ago": 2.0, **changes,
    }  # fmt: skip
    return NewCall(place=place, **facts)


def reservation(
    place: Place = HERE, *, send: int = 0, tokens: int = 100, cost: str | None = "0.10"
) -> Reservation:
    return Reservation(
        place=place,
        send=send,
        tokens=tokens,
        cost=None if cost is None else Decimal(cost),
        model="gpt-x",
    )


def hold(claimed: Claimed, asked_for: Reservation | None = None) -> Reservation:
    """A reservation that must be granted."""
    made = asked_for or reservation()
    assert wallets.reserve(claimed, made) == Reserved()
    return made


def exceeded(claimed: Claimed, asked_for: Reservation | None = None) -> Exceeded:
    """A reservation that must be refused."""
    found = wallets.reserve(claimed, asked_for or reservation())
    assert isinstance(found, Exceeded), found
    return found


def charge(tokens: int = 12, cost: str | None = "0.02", seconds: float = 2.0) -> Charge:
    return Charge(tokens, None if cost is None else Decimal(cost), seconds)


def record(claimed: Claimed, call: NewCall | None = None, **settling: Any) -> None:
    """Record an answer without money, unless the test says more."""
    facts = {"reservation": None, "charge": None, **settling}
    calls.record(claimed, call or asked(), worker="worker-1", **facts)


def wallet(journal: Journal, wallet_id: str) -> dict[str, Any]:
    (row,) = journal.rows("SELECT * FROM wallet WHERE wallet_id = %s", wallet_id)
    return row


def amounts(journal: Journal, wallet_id: str) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """(tokens, cost, calls) that are held, and that are spent."""
    row = wallet(journal, wallet_id)
    held, spent = (
        tuple(row[f"{name}_{what}"] for what in ("tokens", "cost", "calls"))
        for name in ("held", "spent")
    )
    return held, spent
