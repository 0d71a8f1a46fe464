"""How state machines run over a real journal."""

from hypothesis import HealthCheck, Phase
from hypothesis import settings as hypothesis_settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.support.journal import Journal


def play(
    machine: type[RuleBasedStateMachine], journal: Journal, *, examples: int, moves: int
) -> None:
    """Play games of so many moves, the same ones each time. ``machine`` is made with the journal."""
    journal.freeze()

    class Here(machine):  # type: ignore[valid-type, misc]
        def __init__(self) -> None:
            super().__init__(journal)

    run_state_machine_as_test(
        Here,
        settings=hypothesis_settings(
            max_examples=examples,
            stateful_step_count=moves,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
            # Not shrunk: 40 moves are readable, and shrinking takes minutes on a real database.
            phases=(Phase.explicit, Phase.reuse, Phase.generate),
        ),
    )
