"""The real framework in a real worker; and what it refuses."""

import pytest

from tests.adapters.proof import AFTER, Desk


@pytest.mark.parametrize("after", AFTER)
def test_killed_after_a_recorded_call_asks_nothing_twice(desk: Desk, after: str) -> None:
    desk.check("openai-agents", after)
