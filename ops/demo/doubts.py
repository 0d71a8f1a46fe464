"""Effects of the batch that came into doubt, by the journal's evidence. Reads only."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from models import database
from ops.demo.evidence import HeldStep, short

_DOUBTED = """
SELECT s.run_id, s.key, s.source, s.sends, extract(epoch FROM s.settled_at - d.at)::float8,
       (SELECT count(*) FROM event k WHERE k.run_id = s.run_id AND starts_with(k.detail, s.key || ': ')
           AND (k.kind IN ('effect_looked', 'effect_absent')
                OR k.kind = 'effect_settled' AND s.source = 'lookup')),
       substr(d.detail, length(s.key) + 3)
FROM effect_settlement s JOIN run r ON r.run_id = s.run_id,
LATERAL (SELECT e.at, e.detail FROM event e WHERE e.run_id = s.run_id AND e.kind = 'effect_unknown'
         AND starts_with(e.detail, s.key || ': ') ORDER BY e.event_id LIMIT 1) d
WHERE r.batch_id = %(batch_id)s AND s.outcome = 'settled' ORDER BY d.at"""

_OPEN = """
SELECT count(*) FROM effect e JOIN run r ON r.run_id = e.run_id
WHERE r.batch_id = %(batch_id)s AND e.state IN ('intended', 'unknown')"""

_LOST = """
SELECT e.run_id, p.branch, e.step_key, p.kind, e.token, coalesce(split_part(a.worker, '@', 1), ''), 0, 0, e.at
FROM event e JOIN plan p ON p.run_id = e.run_id AND p.step_key = e.step_key
LEFT JOIN attempt a ON a.run_id = e.run_id AND a.step_key = e.step_key AND a.token = e.token
WHERE e.run_id = ANY(%(runs)s) AND e.kind = 'effect_unknown' AND e.at > %(since)s ORDER BY e.event_id"""

_TOLD = """
SELECT event_id, kind, detail FROM event
WHERE run_id = %(run_id)s AND kind IN ('effect_unknown', 'effect_looked', 'effect_absent', 'effect_settled')
  AND event_id > %(after)s ORDER BY event_id"""


@dataclass(frozen=True, slots=True)
class Doubt:
    """One effect that came into doubt, and how that ended."""

    run_id: str
    key: str
    settled_by: str  #: answer (sent again), lookup, late_answer
    sends: int
    seconds: float  #: in doubt
    looks: int
    cause: str

    @property
    def ended(self) -> str:
        """In words."""
        if self.settled_by == "lookup":
            return "found by asking, not sent again"
        if self.settled_by == "late_answer":
            return "its own late answer counted"
        return "proven absent, then sent again" if self.sends > 1 else "answered after all"

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "seconds": round(self.seconds, 2)}


def doubts(batch_id: str) -> list[Doubt]:
    """Every effect of the batch that was in doubt and is settled."""
    return [Doubt(*row) for row in database.fetch(_DOUBTED, {"batch_id": batch_id})]


def still_open(batch_id: str) -> int:
    """Effects of the batch whose outcome nobody knows now."""
    return int(database.fetch(_OPEN, {"batch_id": batch_id})[0][0])


def lost_answers(runs: Sequence[str], since: datetime) -> list[tuple[HeldStep, datetime]]:
    """The steps of these runs that reported an answer lost, and when; one each."""
    rows = database.fetch(_LOST, {"runs": list(runs), "since": since})
    first = {row[0]: (HeldStep(*row[:8]), row[8]) for row in reversed(rows)}
    return list(first.values())


class Story:
    """What the journal says about one doubtful effect, line by line as it happens."""

    def __init__(self, run_id: str, filing: str) -> None:
        self._run_id, self._filing, self._after = run_id, filing, 0

    def more(self) -> list[str]:
        """The lines that are new."""
        rows = database.fetch(_TOLD, {"run_id": self._run_id, "after": self._after})
        self._after = max([self._after, *(row[0] for row in rows)])
        told = [line for _, kind, detail in rows for line in self._words(kind, detail)]
        return [f"{short(self._run_id)}: {line}" for line in told]

    def _words(self, kind: str, detail: str) -> list[str]:
        said = detail.partition(": ")[2]
        match kind:
            case "effect_unknown":
                lost = f"{self._filing} is filed, and its answer was lost: nobody here knows"
                return [lost, f"what the step saw: {said}"]
            case "effect_settled":
                return [
                    f"the registry was asked: {said}",
                    f"{self._filing} is the result, and nothing was sent again",
                ]
            case _:
                return [f"the registry was asked: {said}"]
