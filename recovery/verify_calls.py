"""Are the answers of a run's model calls and reads still those that were recorded?"""

from models.journal import calls
from recovery.findings import Finding


def look(run_id: str) -> list[Finding]:
    """Answers whose text has changed: an attempt would go on from what nobody ever said."""
    return [
        Finding(
            "answer_changed", step_key,
            f"the answer at position {place.position} of scope {place.scope!r} was recorded as {digest}, and is "
            f"another text now",
        )
        for step_key, place, digest in calls.changed(run_id)
    ]  # fmt: skip
