"""The context of a step: made cheaply, usable in a test without any service."""

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from models.errors import OnwardError, ValueMismatch
from tasks import Context, Effect, Refused, Tool, step, tool_registry
from tasks.errors import CallNameNeeded, CallRefused


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


class Double(Tool[int, int]):
    name, effect = "test.double", Effect.ONCE

    def execute(self, request: int, *, key: str) -> int:
        assert key.startswith("run-under-test:step-under-test:test.double:")
        if request < 0:
            raise Refused("no negative numbers")
        return 2 * request


class Slowly(Tool[int, int]):
    name, effect = "test.slowly", Effect.ONCE

    async def execute(self, request: int, *, key: str) -> int:  # type: ignore[override]
        await asyncio.sleep(0)
        return 3 * request


@pytest.fixture(scope="module", autouse=True)
def no_tools_left() -> Iterator[None]:
    yield
    for name in ("test.double", "test.slowly"):
        tool_registry._tools.pop(name, None)


@step
def doubling(ctx: Context, number: int) -> int:
    try:
        return ctx.call(Double(), number)
    except Refused:
        return 0


@step
async def gathering(ctx: Context, numbers: list[int]) -> list[int]:
    return await asyncio.gather(
        *(ctx.acall(Slowly(), number, name=f"of {number}") for number in numbers)
    )


def test_a_step_that_calls_tools_is_tested_as_a_function() -> None:
    assert doubling(Context.for_test(), 21) == 42
    assert doubling(Context.for_test(), -1) == 0


def test_a_test_answers_in_place_of_a_tool() -> None:
    asked: list[tuple[str, Any]] = []

    def call(tool: Tool[Any, Any], request: Any) -> int:
        asked.append((tool.name, request))
        return 7

    assert doubling(Context.for_test(call=call), 21) == 7
    assert asked == [("test.double", 21)]


def test_a_test_sees_refused_what_a_run_would_refuse() -> None:
    with pytest.raises(ValueMismatch, match=r"the result of test\.double"):
        doubling(Context.for_test(call=lambda *_: "seven"), 21)
    with pytest.raises(ValueMismatch, match=r"the request of test\.double"):
        doubling(Context.for_test(), "many")  # type: ignore[arg-type]


def test_async_steps_and_tools_are_tested_the_same_way() -> None:
    assert asyncio.run(gathering(Context.for_test(), [1, 2])) == [3, 6]

    async def calling_within_a_loop(ctx: Context) -> int:
        return ctx.call(Slowly(), 1)

    assert asyncio.run(calling_within_a_loop(Context.for_test())) == 3


def test_a_test_sees_that_names_are_needed() -> None:
    ctx = Context.for_test()

    async def nameless() -> None:
        ctx.call(Double(), 1)
        await asyncio.gather(ctx.acall(Double(), 1), _beside(ctx))

    with pytest.raises(CallNameNeeded):
        asyncio.run(nameless())


async def _beside(ctx: Context) -> int:
    return await ctx.acall(Double(), 2)


def test_a_session_is_what_the_test_hands_in() -> None:
    assert Context.for_test(session=lambda: "a session").session == "a session"
    with pytest.raises(CallRefused, match=r"Context\.for_test\(session=\.\.\.\) takes one"):
        _ = Context.for_test().session
