"""What an exception out of a body means, and how it is put into words."""

import pytest

from models.errors import OnwardError, UnserialisableValue
from models.journal.errors import CommitUnknown, JournalUnavailable, LeaseLost, RolledBack
from tasks.options import RetryPolicy
from tasks.outcomes import Displaced, Failed, Interrupted, describe, judge, name, refuse

THRICE = RetryPolicy(max_retries=3, default_retry_delay=7.0)


def verdict(error: BaseException, *, retry: RetryPolicy = THRICE, failures: int = 0) -> object:
    return judge(error, retry=retry, failures=failures, seed="run:read")


@pytest.mark.parametrize("kind", [LeaseLost, JournalUnavailable, CommitUnknown])
def test_a_lost_lease_or_journal_writes_nothing(kind: type[OnwardError]) -> None:
    assert verdict(kind("gone")) == Displaced("gone")


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit()])
def test_a_shutdown_is_not_the_steps_fault(error: BaseException) -> None:
    found = verdict(error)
    assert isinstance(found, Interrupted)
    assert (found.error_type, found.crashed) == ("shutdown", False)


def test_a_process_out_of_memory_counts_as_a_crash() -> None:
    assert verdict(MemoryError("no room")) == Interrupted(
        "MemoryError", "MemoryError: no room", crashed=True
    )


@pytest.mark.parametrize(
    ("failures", "delay"), [(0, 7.0), (1, 7.0), (2, 7.0), (3, None), (4, None)]
)
def test_a_failure_is_retried_as_often_as_allowed(failures: int, delay: float | None) -> None:
    assert verdict(ValueError("no"), failures=failures) == Failed(
        "ValueError", "ValueError: no", delay
    )


def test_without_retries_the_first_failure_is_final() -> None:
    assert verdict(ValueError("no"), retry=RetryPolicy()) == Failed(
        "ValueError", "ValueError: no", None
    )


@pytest.mark.parametrize(("failures", "again"), [(0, True), (4, True), (5, False)])
def test_what_postgres_undid_is_tried_again_whatever_the_policy(failures: int, again: bool) -> None:
    found = verdict(RolledBack("met another"), retry=RetryPolicy(), failures=failures)
    assert isinstance(found, Failed)
    assert (found.delay is not None) == again
    assert again == (found.delay is not None and found.delay <= 2.0**failures)


def test_only_named_kinds_are_retried() -> None:
    policy = RetryPolicy(
        max_retries=9, autoretry_for=(OSError,), dont_autoretry_for=(FileNotFoundError,)
    )
    assert verdict(ConnectionError("x"), retry=policy) == Failed(
        "ConnectionError", "ConnectionError: x", 10.0
    )
    for error in (FileNotFoundError("x"), ValueError("x")):
        found = verdict(error, retry=policy)
        assert isinstance(found, Failed)
        assert found.delay is None


def test_the_delay_grows_with_the_failures_so_far() -> None:
    policy = RetryPolicy(max_retries=9, retry_backoff=True, retry_jitter=False)
    delays = []
    for failures in range(4):
        found = verdict(ValueError("no"), retry=policy, failures=failures)
        assert isinstance(found, Failed)
        delays.append(found.delay)
    assert delays == [1.0, 2.0, 4.0, 8.0]


def test_a_value_that_cannot_be_recorded_is_refused_at_once() -> None:
    error = UnserialisableValue("result", "$.x", type_name="set", advice="use a list")
    found = refuse(error)
    assert (found.error_type, found.delay) == ("unserialisable_output", None)
    assert found.error == str(error)


def test_names_and_words_of_errors() -> None:
    assert name(ValueError("x")) == "ValueError"
    assert name(LeaseLost("x")) == LeaseLost.error_type
    assert describe(LeaseLost("a sentence.")) == "a sentence."
    assert describe(ValueError("a\x00b\x1b[31m")) == "ValueError: a\\x00b\\x1b[31m"
