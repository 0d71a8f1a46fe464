"""What the journal says about the runs of a certification. Reads only."""

from collections.abc import Sequence
from dataclasses import dataclass

from models import database
from models.journal import history
from models.journal.history import StepView
from ops.testing.certify.counting import Subject
from ops.testing.certify.wire import suffix


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a run stands."""

    state: str
    reason: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class EffectSeen:
    """One effect of a run as the journal has it."""

    name: str  #: its key without the run's id
    step_key: str
    tool: str
    effect_class: str
    state: str
    source: str  #: of its settlement: the answer, a look-up, a late answer, a person
    person: str  #: why a person is asked

    @property
    def subject(self) -> Subject:
        return Subject(self.name, self.step_key, self.tool, self.effect_class)


def standings(run_ids: Sequence[str]) -> dict[str, Standing]:
    """Where these runs stand now."""
    rows = database.fetch(
        "SELECT run_id, state, coalesce(reason, ''), coalesce(detail, '') FROM run"
        " WHERE run_id = ANY(%(run_ids)s)",
        {"run_ids": list(run_ids)},
    )
    return {row[0]: Standing(*row[1:]) for row in rows}


def effects(run_id: str) -> list[EffectSeen]:
    """What the run asked the outside world to change, undoings and pure calls left out."""
    rows = database.fetch(
        """
        SELECT key, step_key, tool, effect_class, state, coalesce(source, ''), coalesce(person, '')
        FROM effects WHERE run_id = %(run_id)s AND undoes IS NULL AND effect_class <> 'pure'
        ORDER BY created_at, key""",
        {"run_id": run_id},
    )
    return [EffectSeen(suffix(row[0], run_id), *row[1:]) for row in rows]


def blocked_steps(run_id: str) -> frozenset[str]:
    """Steps of a run that stand still until somebody acts."""
    rows = database.fetch(
        "SELECT step_key FROM live WHERE run_id = %(run_id)s AND block_reason IS NOT NULL",
        {"run_id": run_id},
    )
    return frozenset(row[0] for row in rows)


def steps(run_id: str) -> list[StepView]:
    """The steps of a run, those that it added to its plan included."""
    return history.list_steps(run_id)
