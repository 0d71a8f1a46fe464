"""The holder's verbs about effects that neither its own call nor its body can bring to an end."""

from typing import LiteralString

from models import database
from models.journal import sql
from models.journal.effect_values import Holder
from models.journal.values import Claimed

#: Guarded like every write about a send: others may have taken the effect up.
_ASK_PERSON: LiteralString = """
WITH asked AS (
    UPDATE effect e SET state = 'unknown', call_over = true, person = %(reason)s, error = %(reason)s,
        doubted_at = onward_now(), due_at = onward_now(), revision = e.revision + 1
    WHERE e.key = %(key)s AND e.token = %(token)s AND e.state = 'intended'
    RETURNING e.run_id, e.step_key, e.token
)
INSERT INTO event (run_id, step_key, token, kind, detail)
SELECT run_id, step_key, token, 'effect_needs_person', %(key)s || ': ' || %(reason)s FROM asked"""

#: Nobody will send it again, so whoever judges it next has to look, or to ask a person.
_LEFT_OVER: LiteralString = f"""
WITH held AS MATERIALIZED (SELECT 1 FROM live l WHERE {sql.HELD} FOR NO KEY UPDATE OF l), left_over AS (
    UPDATE effect e SET state = 'unknown', doubted_at = coalesce(e.doubted_at, onward_now()),
        resend_until = CASE WHEN e.resend_until IS NOT NULL THEN least(e.resend_until, onward_now()) END,
        due_at = onward_now(), revision = e.revision + 1
    FROM held
    WHERE e.run_id = %(run_id)s AND e.step_key = %(step_key)s AND e.undoes IS NULL
      AND e.state IN ('intended', 'unknown')
    RETURNING e.key
), told AS (
    INSERT INTO event (run_id, step_key, token, kind, detail)
    SELECT %(run_id)s, %(step_key)s, %(token)s, 'effect_unknown',
           key || ': an earlier attempt may have sent it, and this one ended without asking for it'
    FROM left_over
)
SELECT key FROM left_over ORDER BY key"""


def ask_person(key: str, claimed: Holder, *, reason: str) -> None:
    """It happened, but what it came to cannot be recorded: only a person can say."""
    database.fetch(_ASK_PERSON, {"key": key, "token": claimed.token, "reason": reason})


def tools_called(claimed: Claimed) -> set[str]:
    """The tools that did something in earlier attempts of this step, or may have, or whose refusal was a choice."""
    rows = database.fetch(
        "SELECT tool FROM effect WHERE run_id = %(run_id)s AND step_key = %(step_key)s AND undoes IS NULL"
        " AND (state IN ('intended', 'unknown') OR state IN ('refused', 'absent') AND passed)"
        " UNION SELECT tool FROM effect_settlement WHERE run_id = %(run_id)s AND step_key = %(step_key)s"
        " AND undoes IS NULL AND effect_class <> 'pure'",
        {"run_id": claimed.run_id, "step_key": claimed.step_key},
    )
    return {row[0] for row in rows}


def was_passed(key: str) -> bool:
    """Whether an effect did not happen and the body went on from that, so that it stands."""
    row = database.fetch_one(
        "SELECT 1 FROM effect WHERE key = %(key)s AND state IN ('refused', 'absent') AND passed",
        {"key": key},
    )
    return row is not None


def left_over(claimed: Claimed) -> list[str]:
    """Effects of earlier attempts that are in doubt as the step is about to end; they have to be looked up now.

    One whose key the provider still honours is simply sent again, but only when the body asks for it.
    """
    rows = database.fetch(
        _LEFT_OVER,
        {
            "run_id": claimed.run_id, "branch": claimed.branch, "step_key": claimed.step_key,
            "token": claimed.token, "owner": claimed.owner,
        },
    )  # fmt: skip
    return [row[0] for row in rows]
