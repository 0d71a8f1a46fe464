"""What shows that a journal went back in time, and what does not."""

from datetime import UTC, datetime

import pytest

from models.journal.rewinds import Pulse, Server
from recovery.rewind import judge

HERE = Server("7300000000000000001", 1)
LAST = Pulse(10, HERE, datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize("remembered", [None, 0, 9, 10])
def test_a_broker_that_remembers_no_more_shows_nothing(remembered: int | None) -> None:
    assert judge(LAST, remembered, now=HERE) is None


def test_a_broker_that_remembers_more_shows_a_loss() -> None:
    told = judge(LAST, 14, now=HERE)
    assert told == "the broker remembers beat 14 of this journal, whose own last beat is 10"


@pytest.mark.parametrize(
    ("now", "told"),
    [
        (Server("7300000000000000002", 1), "another database system (7300000000000000002)"),
        (Server("7300000000000000001", 2), "on timeline 2 and was on 1"),
    ],
)
@pytest.mark.parametrize("remembered", [None, 10])
def test_another_server_may_lack_something(now: Server, told: str, remembered: int | None) -> None:
    found = judge(LAST, remembered, now=now)
    assert found is not None
    assert told in found


def test_a_server_that_does_not_say_who_it_is_shows_nothing() -> None:
    assert judge(LAST, 10, now=Server()) is None
    assert judge(Pulse(10, Server(), LAST.at), 10, now=HERE) is None
    assert judge(LAST, 11, now=Server()) is not None


def test_the_first_beat_of_a_journal_shows_nothing() -> None:
    assert judge(None, None, now=HERE) is None
    assert judge(None, 99, now=HERE) is None
