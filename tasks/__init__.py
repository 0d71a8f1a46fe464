"""What an agent is written with. Importing it imports neither Celery nor a database driver."""

from tasks import shadowing as _shadowing  # noqa: F401 - first: it refuses what the others would meet
from tasks.artifacts import Artifact
from tasks.budgets import Budget
from tasks.canvas import group
from tasks.context import Context
from tasks.secrets import Secret
from tasks.tools import (
    Absent,
    Effect,
    Found,
    Freshness,
    NotSent,
    Read,
    Refused,
    Tool,
    Unanswered,
    Undecided,
    tool,
)
from tasks.workflow import Then, step, workflow

__all__ = [
    "Absent",
    "Artifact",
    "Budget",
    "Context",
    "Effect",
    "Found",
    "Freshness",
    "NotSent",
    "Read",
    "Refused",
    "Secret",
    "Then",
    "Tool",
    "Unanswered",
    "Undecided",
    "group",
    "step",
    "tool",
    "workflow",
]
