"""Effects by hand: what a worker's ledger asks of the journal, and the rows as a test sees them."""

from typing import Any

import psycopg
from psycopg import sql

from models.digests import digest_text
from models.journal import effects
from models.journal.effect_values import Granted, Intent, Promise, Sender, Standing
from models.journal.values import Claimed
from models.states import EffectClass
from tests.support.journal import Journal, Worker, row_of, submit_run

KEY = "run:a:registry.file:1"
DIGEST = "sha256:request"
SENDER = Sender("start-1", "worker-1", 4242, 4243, "host:1")

QUERYABLE = Promise(
    effect_class=EffectClass.QUERYABLE, timeout=10.0, max_request_lifetime=60.0, consistency_window=20.0
)  # fmt: skip
IDEMPOTENT = Promise(
    effect_class=EffectClass.IDEMPOTENT, timeout=10.0, key_retention=3600.0, max_request_lifetime=60.0
)  # fmt: skip
ONCE = Promise(effect_class=EffectClass.ONCE, timeout=10.0)
PURE = Promise(effect_class=EffectClass.PURE, timeout=10.0)


def asking(key: str = KEY, promise: Promise = QUERYABLE, **changes: Any) -> Intent:
    """One call's intent."""
    facts: dict[str, Any] = {
        "tool": "registry.file", "tool_version": "2", "request": '{"servers":1}',
        "request_digest": DIGEST, "send_within": 5.0, **changes,
    }  # fmt: skip
    return Intent(key=key, promise=promise, **facts)


def intend(claimed: Claimed, intent: Intent | None = None) -> Standing:
    return effects.intend(intent or asking(), claimed, SENDER)


def send(claimed: Claimed, intent: Intent | None = None) -> Granted:
    """An intent that must be granted."""
    standing = intend(claimed, intent)
    assert isinstance(standing, Granted), standing
    return standing


def at_work() -> Claimed:
    """A run's first step, claimed."""
    return Worker().take(submit_run(row_of("a", "b")), "a")


def again(journal: Journal, claimed: Claimed) -> Claimed:
    """The next attempt of a step whose owner has fallen silent."""
    journal.lose()
    journal.make(claimed.run_id, claimed.branch, state="pending", due_at="2000-01-01Z")
    return Worker("worker-2", "start-2").take(claimed.run_id, claimed.step_key, claimed.branch)


def effect(journal: Journal, key: str = KEY) -> dict[str, Any]:
    """An open effect's row."""
    (row,) = journal.rows("SELECT * FROM effect WHERE key = %s", key)
    return row


def settlement(journal: Journal, key: str = KEY) -> dict[str, Any]:
    (row,) = journal.rows("SELECT * FROM effect_settlement WHERE key = %s", key)
    return row


def put(journal: "Journal | psycopg.Connection[Any]", *, key: str = KEY, **values: Any) -> None:
    """Put an effect into a state that others' verbs lead to."""
    names = sql.SQL(", ").join(
        sql.SQL("{} = {}").format(sql.Identifier(name), sql.Literal(value))
        for name, value in values.items()
    )
    _link(journal).execute(
        sql.SQL("UPDATE effect SET {}, revision = revision + 1 WHERE key = {}").format(
            names, sql.Literal(key)
        )
    )


def settle_as(
    journal: "Journal | psycopg.Connection[Any]", outcome: str, *, key: str = KEY, **facts: Any
) -> None:
    """End an effect the way a look-up or a person does."""
    values = {
        "outcome": outcome, "source": "person", "reason": None,
        "result": '"found"' if outcome == "settled" else None, **facts,
    }  # fmt: skip
    statement = sql.SQL(
        "WITH gone AS (DELETE FROM effect WHERE key = {} RETURNING *)"
        " INSERT INTO effect_settlement ({}, {}, result_digest) SELECT {}, {}, {} FROM gone"
    )
    _link(journal).execute(
        statement.format(
            sql.Literal(key),
            sql.SQL(effects.KEPT),
            sql.SQL(", ").join(map(sql.Identifier, values)),
            sql.SQL(effects.KEPT),
            sql.SQL(", ").join(map(sql.Literal, values.values())),
            sql.Literal(digest_text(values["result"] or "")),
        )
    )  # fmt: skip


def stories(journal: Journal, run_id: str) -> list[tuple[str, str]]:
    """(kind, what is said after the key) of every event about an effect."""
    found = journal.rows(
        "SELECT kind, detail FROM event WHERE run_id = %s AND kind LIKE 'effect%%' ORDER BY event_id",
        run_id,
    )
    return [(row["kind"], row["detail"].partition(": ")[2]) for row in found]


def _link(journal: "Journal | psycopg.Connection[Any]") -> "psycopg.Connection[Any]":
    return journal.look if isinstance(journal, Journal) else journal
