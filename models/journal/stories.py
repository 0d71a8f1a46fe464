"""What became of effects, as people read it: one by one, and as the lines of a story. Reads only.

A story is put together from what the journal keeps anyway: the intent (``effect``, ``effect_settlement``),
late answers (``effect_evidence``), and the events that the verbs about effects leave, whose detail begins
with the effect's key.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString

from models import database
from models.artifacts.payloads import shown
from models.journal.artifacts import WRAPPED
from models.journal.errors import JournalError
from models.states import EffectState

_SHOWN = 200  #: characters of a result in a story


class UnknownEffect(JournalError):
    """There is no effect of this key."""


@dataclass(frozen=True, slots=True)
class EffectView:
    """One effect with the one state people mean. ``person``: why somebody has to decide."""

    key: str
    run_id: str
    step_key: str
    tool: str
    tool_version: str
    effect_class: str
    undoes: str | None
    state: str
    person: str | None
    error: str | None
    sends: int
    checks: int | None
    worker: str
    attempt: int
    created_at: datetime
    sent_at: datetime | None
    doubted_at: datetime | None
    due_at: datetime | None
    settled_at: datetime | None
    source: str | None
    actor: str
    result: str | None


_COLUMNS: LiteralString = """key, run_id, step_key, tool, tool_version, effect_class, undoes, state, person,
    error, sends, checks, worker, attempt, created_at, sent_at, doubted_at, due_at, settled_at, source, actor,
    result"""


@dataclass(frozen=True, slots=True)
class Happening:
    """One thing that happened to a run, wherever the journal keeps it."""

    at: datetime
    kind: str
    step_key: str | None
    attempt: int | None
    token: int | None
    worker: str | None
    detail: str
    actor: str
    effect: str | None = None  #: the key of the effect that it is about


def _told(column: LiteralString) -> LiteralString:
    """The beginning of a result; the database cannot read what is encrypted."""
    return f"CASE WHEN starts_with({column}, '{WRAPPED}') THEN '(encrypted)' ELSE left({column}, {_SHOWN}) END"


#: The lines of the stories of one run: at, place, kind, step_key, attempt, token, worker, detail, actor,
#: effect. ``place`` orders what has one instant: claim 1, the body's calls below 2, the attempt's end 2.
#: Who sent first is not kept once somebody has sent again, and settlements tell what their events tell.
LINES: LiteralString = f"""
    SELECT created_at AS at, 1.1 AS place, 'effect_intended' AS kind, step_key,
           CASE WHEN sends = 1 THEN attempt END AS attempt, CASE WHEN sends = 1 THEN token END AS token,
           CASE WHEN sends = 1 THEN worker END AS worker,
           'to ' || CASE WHEN undoes IS NULL THEN 'call ' ELSE 'undo ' END || tool || ' (' || effect_class
               || ', version ' || tool_version || ')' AS detail, 'onward' AS actor, key AS effect
    FROM (SELECT created_at, step_key, sends, attempt, token, worker, undoes, tool, effect_class, tool_version,
                 key FROM effect WHERE run_id = %(run_id)s
          UNION ALL
          SELECT created_at, step_key, sends, attempt, token, worker, undoes, tool, effect_class, tool_version,
                 key FROM effect_settlement WHERE run_id = %(run_id)s AND effect_class <> 'pure') intents
    UNION ALL
    SELECT first_sent_at, 1.2, 'effect_sent', step_key, CASE WHEN sends = 1 THEN attempt END,
           CASE WHEN sends = 1 THEN token END, CASE WHEN sends = 1 THEN worker END,
           'the request may have left from here on', coalesce(CASE WHEN sends = 1 THEN worker END, 'onward'), key
    FROM (SELECT first_sent_at, created_at, step_key, sends, attempt, token, worker, key
          FROM effect WHERE run_id = %(run_id)s
          UNION ALL
          SELECT first_sent_at, created_at, step_key, sends, attempt, token, worker, key
          FROM effect_settlement WHERE run_id = %(run_id)s AND effect_class <> 'pure') sent
    WHERE first_sent_at >= created_at
    UNION ALL
    SELECT v.at, 3.1, 'effect_late_answer', o.step_key, NULL, v.token, v.worker,
           'an owner that had lost the step answered, which is kept as evidence: ' || {_told("v.result")},
           v.worker, v.key
    FROM (SELECT key, step_key FROM effect WHERE run_id = %(run_id)s
          UNION ALL SELECT key, step_key FROM effect_settlement WHERE run_id = %(run_id)s) o
    JOIN effect_evidence v ON v.key = o.key
    UNION ALL
    SELECT at, CASE kind WHEN 'effect_sent_again' THEN 1.2 WHEN 'effect_refused' THEN 1.4 ELSE 3 END, kind,
           step_key, NULL, token, NULL, CASE kind WHEN 'effect_not_asked_again'
               THEN 'an earlier attempt did it, and the finished body did not ask for it: it can be undone'
               ELSE substr(detail, length(split_part(detail, ': ', 1)) + 3) END,
           actor, split_part(detail, ': ', 1)
    FROM event WHERE run_id = %(run_id)s AND starts_with(kind, 'effect_')
      AND kind NOT IN ('effect_settled', 'effect_late_answer')
    UNION ALL
    SELECT settled_at, CASE source WHEN 'answer' THEN 1.5 ELSE 3.5 END, 'effect_' || outcome, step_key,
           CASE source WHEN 'answer' THEN attempt END, token, CASE source WHEN 'answer' THEN worker END,
           CASE WHEN outcome = 'abandoned' THEN 'given up by ' || actor
                WHEN effect_class = 'pure' THEN tool || ' answered; it is not asked again'
                WHEN source = 'answer' THEN 'answered'
                WHEN source = 'lookup' THEN 'found by asking, not sent again'
                WHEN source = 'late_answer' THEN 'its late answer counts, not sent again'
                ELSE 'found by ' || actor || ', not sent again' END
           || CASE WHEN sends > 1 THEN ' after ' || sends || ' sends' ELSE '' END
           || coalesce(' (' || nullif(reason, '') || ')', '') || coalesce(': ' || {_told("result")}, ''),
           CASE source WHEN 'answer' THEN worker ELSE actor END, key
    FROM effect_settlement WHERE run_id = %(run_id)s"""

_STORY: LiteralString = f"""
SELECT at, kind, step_key, attempt, token, worker, detail, actor, effect FROM ({LINES}) lines
WHERE %(key)s::text IS NULL OR effect = %(key)s
ORDER BY at, token NULLS LAST, place"""


def get_effect(key: str) -> EffectView:
    """One effect. Raises ``UnknownEffect``."""
    row = database.fetch_one(f"SELECT {_COLUMNS} FROM effects WHERE key = %(key)s", {"key": key})
    if row is None:
        raise UnknownEffect(
            f"There is no effect {key!r}; `onward effects list` shows those that exist."
        )
    return _view(row)


def list_effects(
    *, run_id: str | None = None, state: EffectState | None = None, needs_person: bool = False,
    limit: int = 50,
) -> list[EffectView]:  # fmt: skip
    """Effects, newest first. Calls that change nothing outside are not among them."""
    rows = database.fetch(
        f"""
        SELECT {_COLUMNS} FROM effects
        WHERE effect_class <> 'pure' AND (%(run_id)s::text IS NULL OR run_id = %(run_id)s)
          AND (%(state)s::text IS NULL OR state = %(state)s)
          AND (NOT %(needs_person)s OR person IS NOT NULL)
        ORDER BY created_at DESC, key LIMIT %(limit)s""",
        {"run_id": run_id, "state": state, "needs_person": needs_person, "limit": limit},
    )
    return [_view(row) for row in rows]


def in_doubt(run_ids: Collection[str]) -> list[EffectView]:
    """Effects of these runs that may have happened, oldest first."""
    rows = database.fetch(
        f"SELECT {_COLUMNS} FROM effects WHERE run_id = ANY(%(run_ids)s) AND state = 'unknown'"
        " ORDER BY created_at, key",
        {"run_ids": list(run_ids)},
    )
    return [_view(row) for row in rows]


def story(run_id: str, key: str | None = None) -> list[Happening]:
    """What happened to a run's effects, or to one of them, in the order of time."""
    return [Happening(*row) for row in database.fetch(_STORY, {"run_id": run_id, "key": key})]


def _view(row: database.Row) -> EffectView:
    facts = (*row[:-1], shown(row[-1]))
    return EffectView(*facts)
