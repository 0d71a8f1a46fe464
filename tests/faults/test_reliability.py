"""A few kills of ``make reliability``, and a planted double effect, which it has to find."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from tests.reliability.kills import Kind
from tests.reliability.session import play
from tests.reliability.stage import AGENTS, TIMES, deaths_seen, set_up
from tests.support.world import World

SEED = 7


@pytest.fixture(scope="module")
def world(make_world: Callable[..., AbstractContextManager[World]]) -> Iterator[World]:
    with make_world(agents=AGENTS, env=TIMES) as world:
        set_up(world, workers=1)
        yield world


def test_a_few_kills_leave_everything_once_or_with_a_person(world: World) -> None:
    before = deaths_seen(world)
    outcome = play(world, Kind.ONCE, kills=4, seed=SEED, say=print)
    assert outcome.violations == ()
    assert len(outcome.between) >= 4
    assert outcome.told >= 2, "nothing waited for a person"
    assert deaths_seen(world) - before == len(outcome.shots)


def test_a_tool_that_promises_too_much_is_found(world: World) -> None:
    outcome = play(world, Kind.IDEMPOTENT, kills=4, seed=SEED, say=print, tool="planted")
    twice = [sentence for verdict in outcome.verdicts for sentence in verdict.twice]
    assert len(twice) >= 2
    assert "was made 2 times" in twice[0]
    assert set(twice) <= set(outcome.violations)
