"""Calls by hand: what a worker's recorder asks of the journal, and the rows as a test sees them."""

from decimal import Decimal
from typing import Any, LiteralString

from models.journal import call_sql, calls, wallet_sql, wallets
from models.journal.call_values import Charge, Exceeded, NewCall, Place, Reservation, Reserved
from models.journal.values import Claimed
from tests.support.journal import Journal

ENDPOINT = "https://models.example/v1"
HERE = Place(0, "", 0)

#: What a wallet says is what its holds and charges add up to, its children's included. Finds those that do not.
WRONG_BOOKS = """
WITH RECURSIVE above AS (
    SELECT wallet_id AS leaf, wallet_id, parent_id FROM wallet
    UNION ALL SELECT a.leaf, w.wallet_id, w.parent_id FROM above a JOIN wallet w ON w.wallet_id = a.parent_id
), booked AS (
    SELECT a.wallet_id, x.* FROM above a JOIN (
        SELECT wallet_id AS leaf, tokens AS held, cost AS held_cost, 1 AS holds, 0 AS spent, 0 AS spent_cost,
               0 AS calls, 0 AS lost, 0 AS lost_cost FROM hold
        UNION ALL
        SELECT wallet_id, 0, 0, 0, tokens, coalesce(cost, 0), 1, CASE WHEN recovery THEN tokens ELSE 0 END,
               CASE WHEN recovery THEN coalesce(cost, 0) ELSE 0 END
        FROM spend) x ON x.leaf = a.leaf
), total AS (
    SELECT wallet_id, sum(held) AS held, sum(held_cost) AS held_cost, sum(holds) AS holds, sum(spent) AS spent,
           sum(spent_cost) AS spent_cost, sum(calls) AS calls, sum(lost) AS lost, sum(lost_cost) AS lost_cost
    FROM booked GROUP BY wallet_id
)
SELECT w.*, t.* FROM wallet w LEFT JOIN total t ON t.wallet_id = w.wallet_id
WHERE (w.held_tokens, w.held_cost, w.held_calls, w.spent_tokens, w.spent_cost, w.spent_calls, w.recovery_tokens,
       w.recovery_cost)
    IS DISTINCT FROM (coalesce(t.held, 0), coalesce(t.held_cost, 0), coalesce(t.holds, 0),
                      coalesce(t.spent, 0), coalesce(t.spent_cost, 0), coalesce(t.calls, 0),
                      coalesce(t.lost, 0), coalesce(t.lost_cost, 0))"""


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


def charge_strays(limit: int = 100) -> int:
    """Charge what claims that are over still hold, of so many steps; how many holds."""
    return wallets.charge_strays(wallets.strays(limit=limit))


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


_PLACE = {
    "generation": 0, "scope": "", "position": 3, "hold_generation": 0, "hold_scope": "", "hold_position": 3,
    "made_by": 1, "send": 0,
}  # fmt: skip
_MONEY = {
    "tokens": 100, "cost": Decimal("0.1"), "asked_tokens": 100, "asked_cost": Decimal("0.1"), "judged": 5,
    "charged": True, "spent_tokens": 5, "spent_cost": Decimal("0.01"), "recovery": False, "seconds": 1.0,
}  # fmt: skip
_ANSWER = {
    "kind": "model", "digest": "d", "method": "POST", "url": "u", "endpoint": "e", "dialect": "x", "model": "m",
    "model_answered": "m", "request": "{}", "status": 200, "headers": "{}", "answer": "{}", "answer_digest": "d",
    "state": "complete", "response_id": None, "tokens_in": 1, "tokens_out": 1, "attempt": 1, "worker": "w",
    "ago": 1.0, "verdict": "accepted", "reason": None,
}  # fmt: skip


def hot_statements(claimed: dict[str, Any]) -> dict[str, tuple[LiteralString, dict[str, Any]]]:
    """What a model call costs the journal, with parameters of one of a step's many calls."""
    params = claimed | _PLACE | _MONEY | _ANSWER
    return {
        "reserve": (wallet_sql.RESERVE, params),
        "check a wallet": (wallet_sql.CHECK, params),
        "settle a hold": (wallet_sql.SETTLE, params),
        "charge earlier claims": (wallet_sql.CHARGE_EARLIER, params),
        "record a read": (call_sql.RECORD, params),
        "record and settle": (call_sql.RECORD_AND_SETTLE, params),
        "judge": (call_sql.JUDGE, params),
        "history of a step": (call_sql.HISTORY, params),
        "an answer": (call_sql.ANSWER, params),
    }


#: Every run has a wallet below that of one batch, and every running step calls on record and one on its way.
FILL = """
INSERT INTO wallet (wallet_id, kind) VALUES ('night', 'batch');
INSERT INTO wallet (wallet_id, kind, parent_id) SELECT run_id, 'run', 'night' FROM run;
UPDATE run SET wallet_id = run_id;
INSERT INTO recorded_call (run_id, step_key, scope, position, kind, digest, method, url, endpoint, dialect,
    request, status, headers, answer, answer_digest, state, token, attempt, worker, started_at)
SELECT run_id, step_key, '', n, 'model', 'd', 'POST', 'u', 'e', 'x', '{}', 200, '{}', 'a', 'd', 'complete', 1, 1,
       'w', onward_now() FROM live, generate_series(0, 2) n;
INSERT INTO call_verdict (run_id, step_key, scope, position, verdict, token)
SELECT run_id, step_key, scope, position, 'accepted', 1 FROM recorded_call;
INSERT INTO hold (run_id, step_key, scope, position, token, send, wallet_id, tokens)
SELECT run_id, step_key, '', 3, 1, 0, run_id, 100 FROM live;
INSERT INTO spend (run_id, step_key, scope, position, token, send, wallet_id, tokens)
SELECT run_id, step_key, '', position, 1, 0, run_id, 100 FROM recorded_call;
UPDATE wallet SET held_tokens = 100, held_calls = 1 WHERE kind = 'run';
INSERT INTO call_reset (run_id, step_key, kind, token, reason) SELECT run_id, step_key, 'pardon', 1, '-' FROM live;
INSERT INTO attempt (run_id, step_key, token, outcome, attempt, branch) SELECT run_id, step_key, n, 'expired', n, '0'
FROM live, generate_series(2, 5) n"""
