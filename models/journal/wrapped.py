"""Recorded texts of a run that stand elsewhere or are encrypted: the database cannot digest them. Reads only."""

from dataclasses import dataclass, field
from typing import LiteralString

from models import database


@dataclass(slots=True)
class Wrapped:
    """Texts as they are recorded, by what they belong to; plain ones only where others belong to them."""

    run_input: str | None = None
    outputs: dict[str, str] = field(default_factory=dict)  #: by step key
    arguments: dict[str, str] = field(default_factory=dict)  #: by step key
    inputs: dict[str, list[str]] = field(default_factory=dict)  #: by step key: pieces, to be joined
    results: dict[str, str] = field(default_factory=dict)  #: by effect key
    calls: dict[str, list[str]] = field(default_factory=dict)  #: by step key


def _wrapped(column: LiteralString) -> LiteralString:
    return "starts_with(" + column + ", '{\"$onward-')"


_RUN: LiteralString = f"SELECT input FROM run WHERE run_id = %(run_id)s AND {_wrapped('input')}"
_OUTPUTS: LiteralString = (
    f"SELECT step_key, output FROM step WHERE run_id = %(run_id)s AND {_wrapped('output')}"
)
_ARGUMENTS: LiteralString = (
    f"SELECT step_key, arguments FROM plan WHERE run_id = %(run_id)s AND {_wrapped('arguments')}"
)
_RESULTS: LiteralString = (
    f"SELECT key, result FROM effect_settlement WHERE run_id = %(run_id)s AND {_wrapped('result')}"
)
_CALLS: LiteralString = f"""
SELECT step_key, t.text FROM recorded_call c CROSS JOIN LATERAL (VALUES (c.request), (c.answer)) t(text)
WHERE c.run_id = %(run_id)s AND {_wrapped("t.text")}"""

#: What ``tasks.inputs`` digests, in pieces: the arguments, then what was piped.
_INPUTS: LiteralString = f"""
SELECT s.step_key, p.input = 'gather', p.arguments, g.texts
FROM step s
JOIN plan p ON p.run_id = %(run_id)s AND p.step_key = s.step_key
LEFT JOIN step i ON i.run_id = %(run_id)s AND i.step_key = s.prev_key
CROSS JOIN LATERAL (
    SELECT CASE p.input WHEN 'gather' THEN ARRAY(
        SELECT m.output FROM step m WHERE m.run_id = %(run_id)s AND m.joins = s.step_key ORDER BY m.join_index)
    ELSE ARRAY[coalesce(i.output, '')] END AS texts) g
WHERE s.run_id = %(run_id)s AND s.state = 'completed' AND ({_wrapped("p.arguments")} OR EXISTS (
    SELECT 1 FROM unnest(g.texts) t(text) WHERE {_wrapped("t.text")}))"""


def of_run(run_id: str) -> Wrapped:
    """Every such text of a run."""
    params = {"run_id": run_id}
    found = Wrapped()
    for (text,) in database.fetch(_RUN, params):
        found.run_input = text
    for statement, texts in (
        (_OUTPUTS, found.outputs), (_ARGUMENTS, found.arguments), (_RESULTS, found.results),
    ):  # fmt: skip
        texts.update((row[0], row[1]) for row in database.fetch(statement, params))
    for step_key, text in database.fetch(_CALLS, params):
        found.calls.setdefault(step_key, []).append(text)
    for step_key, gathers, arguments, texts in database.fetch(_INPUTS, params):
        found.inputs[step_key] = [arguments, "\n", *(_as_list(texts) if gathers else texts)]
    return found


def _as_list(texts: list[str]) -> list[str]:
    pieces = ["["]
    for place, text in enumerate(texts):
        pieces += [",", text] if place else [text]
    return [*pieces, "]"]
