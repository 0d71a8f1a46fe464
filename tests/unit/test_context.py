"""The context of a step: made cheaply, usable in a test without any service."""

import logging

import pytest

from models.errors import OnwardError
from tasks import Context


def test_a_step_can_be_tested_without_services() -> None:
    seen: list[tuple[float, float | None, str | None]] = []
    ctx = Context.for_test(run_id="run-1", report_progress=lambda *args: seen.append(args))
    ctx.progress(1, 3, note="first")
    assert seen == [(1, 3, "first")]
    Context.for_test().progress(1)


def test_keys_are_the_same_in_every_attempt_and_differ_by_name_and_ordinal() -> None:
    first, again = (Context.for_test(step_key="file#2", attempt=n) for n in (1, 2))
    assert first.idempotency_key("filing") == again.idempotency_key("filing")
    keys = {first.idempotency_key("filing", n) for n in (None, 0, 1)}
    assert len(keys | {first.idempotency_key("mail")}) == 4


def test_outside_the_trust_window_no_key_is_given() -> None:
    def refuse() -> None:
        raise OnwardError("the lease is not trusted")

    with pytest.raises(OnwardError, match="not trusted"):
        Context.for_test(require_trust=refuse).idempotency_key("filing")


def test_log_lines_carry_run_step_and_attempt(caplog: pytest.LogCaptureFixture) -> None:
    ctx = Context.for_test(run_id="run-1", step_key="read", attempt=2)
    with caplog.at_level(logging.INFO, logger="onward.step"):
        ctx.log.info("hello")
    record = vars(caplog.records[0])
    assert (record["run_id"], record["step_key"], record["attempt"]) == ("run-1", "read", 2)
    assert ctx.log is ctx.log
