"""The state machines as data."""

from models.states import (
    SETTLED_RUN_STATES,
    TERMINAL_RUN_STATES,
    TERMINAL_STEP_STATES,
    TRANSITIONS,
    RunState,
    StepState,
    is_edge,
    mermaid,
)

S = StepState


def test_every_state_has_its_edges() -> None:
    assert set(TRANSITIONS) == set(StepState)


def test_terminal_states_lead_nowhere_and_the_others_somewhere() -> None:
    assert {state for state in S if not TRANSITIONS[state]} == TERMINAL_STEP_STATES


def test_every_state_is_reached_from_pending() -> None:
    reached, front = {S.PENDING}, [S.PENDING]
    while front:
        for after in TRANSITIONS[front.pop()] - reached:
            reached.add(after)
            front.append(after)
    assert reached == set(StepState)


def test_nothing_completes_without_having_run() -> None:
    assert {before for before in S if is_edge(before, S.COMPLETED)} == {S.RUNNING, S.UNKNOWN}


def test_nothing_runs_but_what_was_pending() -> None:
    assert {before for before in S if is_edge(before, S.RUNNING)} == {S.PENDING}


def test_everything_that_is_not_over_can_be_cancelled() -> None:
    assert {before for before in S if is_edge(before, S.CANCELLED)} == set(S) - TERMINAL_STEP_STATES


def test_staying_is_no_edge() -> None:
    assert not any(is_edge(state, state) for state in S)


def test_a_settled_run_is_over_or_waits_for_a_person() -> None:
    assert {RunState.FAILED, RunState.BLOCKED} == SETTLED_RUN_STATES - TERMINAL_RUN_STATES
    assert RunState.COMPLETED in TERMINAL_RUN_STATES


def test_the_diagram_draws_every_edge_once() -> None:
    lines = mermaid().splitlines()
    edges = {f"    {before} --> {after}" for before in S for after in TRANSITIONS[before]}
    ends = {f"    {state} --> [*]" for state in TERMINAL_STEP_STATES}
    assert lines[0] == "stateDiagram-v2"
    assert lines[1] == "    [*] --> pending"
    assert sorted(lines[2:]) == sorted(edges | ends)
