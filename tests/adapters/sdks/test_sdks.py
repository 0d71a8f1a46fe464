"""The plain SDKs in a real worker: the loops of the examples, killed."""

import pytest

from tests.adapters.proof import AFTER, Desk


@pytest.mark.parametrize("label", ["openai-sdk", "anthropic-sdk"])
@pytest.mark.parametrize("after", AFTER)
def test_killed_after_a_recorded_call_asks_nothing_twice(
    desk: Desk, label: str, after: str
) -> None:
    desk.check(label, after)
