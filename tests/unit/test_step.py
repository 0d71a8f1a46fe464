"""``@step``: what it accepts, what it refuses while importing, and how a bound step is called."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel

from models.settings import settings
from tasks import Context, Then, step
from tasks.binding import NO_INPUT
from tasks.errors import BindingError, DefinitionError
from tasks.options import RetryPolicy, per_second, retry_delay
from tasks.step import BoundStep, Step, bind_step


class Clause(BaseModel):
    number: int
    text: str = ""


def plain(ctx: Context, uri: str) -> str:
    return uri


def bound(step_: Step[..., Any]) -> BoundStep:
    return bind_step(step_, workflow="review", version="3")


CTX = Context.for_test()


def test_a_step_stays_callable_and_keeps_its_name() -> None:
    made = step(plain)
    assert made(CTX, "x") == "x"
    assert (made.local_name, made.__name__, made.name_in("review")) == (
        "plain",
        "plain",
        "review.plain",
    )
    assert step(name="shared.load")(plain).name_in("review") == "shared.load"


def test_async_steps_are_awaited_by_their_author_and_run_to_completion_by_us() -> None:
    @step
    async def slow(ctx: Context, doc: str) -> str:
        await asyncio.sleep(0)
        return doc.upper()

    assert asyncio.run(slow(CTX, "a")) == "A"
    assert bound(slow).call(CTX, ["a"], {}) == "A"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"acks_late": True}, "unknown option 'acks_late'; known are"),
        ({"max_retry": 3}, "did you mean 'max_retries'"),
        ({"max_retries": -1}, "max_retries=-1 must be a whole number of 0 or more"),
        ({"max_retries": None}, "max_retries=None"),
        ({"max_retries": True}, "max_retries=True"),
        ({"default_retry_delay": -1}, "default_retry_delay=-1"),
        ({"retry_backoff": "yes"}, "retry_backoff='yes'"),
        ({"autoretry_for": (1,)}, "must be a tuple of exception classes"),
        ({"soft_time_limit": 10, "time_limit": 5}, "killed before it is warned"),
        ({"time_limit": 0}, "time_limit=0 must be a number of seconds above 0"),
        ({"rate_limit": "fast"}, "write '10/s', '30/m' or '100/h'"),
        ({"rate_limit": "0/m"}, "would never let the step run"),
        ({"queue": "a b"}, "queue='a b' must be"),
        ({"kind": ""}, "kind='' must be"),
        ({"lookup": plain}, "only together with untracked=True"),
        ({"untracked": 1}, "must be True or False"),
        ({"name": "onward.gather"}, "reserved"),
        ({"name": "a/b"}, "a name has letters"),
    ],
)
def test_wrong_options_are_refused_by_step_option_and_value(
    options: dict[str, Any], says: str
) -> None:
    with pytest.raises(DefinitionError) as refused:
        step(**options)(plain)
    assert "step plain (" in str(refused.value)
    assert says in str(refused.value)


def no_context(uri: str) -> str:
    return uri


def keyword_context(*, ctx: Context) -> None:
    return None


def everything_positional(ctx: Context, uri: str, /) -> str:
    return uri


def yields(ctx: Context) -> Any:
    yield 1


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (no_context, r"write def no_context\(ctx: Context, ...\)"),
        (keyword_context, "first parameter of a step is the context"),
        (everything_positional, "'uri' is positional-only"),
        (yields, "yields; a step returns one value"),
        (lambda ctx: ctx, "a lambda has no name"),
        (partial(plain, uri="x"), "decorates a function"),
        (Clause, "decorates a function"),
        ("read", "decorates a function"),
    ],
)
def test_functions_that_cannot_be_steps_are_refused(function: Any, says: str) -> None:
    with pytest.raises(DefinitionError, match=says):
        step(function)


def test_values_arrive_typed_wherever_they_were_bound() -> None:
    @step
    def judge(
        ctx: Context, /, doc: Clause, *rest: int, strict: bool = False, **notes: Clause
    ) -> Any:
        return doc, rest, strict, notes

    clause = {"number": 1, "text": "t"}
    value = bound(judge).call(CTX, [2, 3], {"strict": True, "note": clause}, piped=clause)
    assert value == (Clause(number=1, text="t"), (2, 3), True, {"note": Clause(number=1, text="t")})


def test_none_piped_in_is_a_value() -> None:
    @step
    def seen(ctx: Context, value: str | None = "default") -> str | None:
        return value

    assert bound(seen).call(CTX, [], {}, piped=None) is None
    assert bound(seen).call(CTX, [], {}, piped=NO_INPUT) == "default"


@pytest.mark.parametrize(
    ("args", "kwargs", "says"),
    [
        ([], {}, "missing a required argument: 'uri'; it takes: uri"),
        (["a", "b"], {}, "too many positional arguments"),
        (["a"], {"uri": "b"}, "multiple values"),
        (["a"], {"deep": 1}, "'deep'"),
        ([7], {}, "step plain: uri does not fit"),
    ],
)
def test_values_that_do_not_fit_are_refused_before_the_body_starts(
    args: list[Any], kwargs: dict[str, Any], says: str
) -> None:
    with pytest.raises(BindingError) as refused:
        bound(step(plain)).call(CTX, args, kwargs)
    assert says in str(refused.value)


def test_a_type_error_of_the_body_is_the_bodys_own() -> None:
    @step
    def broken(ctx: Context) -> int:
        return len(5)  # type: ignore[arg-type]

    with pytest.raises(TypeError, match="has no len"):
        bound(broken).call(CTX, [], {})


def test_then_is_not_part_of_what_is_recorded() -> None:
    def loop(ctx: Context) -> "int | Then[int]":
        return 1

    def two(ctx: Context) -> Then[int] | Clause:
        return Clause(number=1)

    def bare(ctx: Context) -> Then:  # type: ignore[type-arg]
        raise NotImplementedError

    annotations: list[tuple[Callable[..., Any], Any]] = [(loop, int), (two, Clause | int)]
    for function, recorded in annotations:
        assert step(function).result_annotation == recorded
    assert step(bare).result_annotation is Any


def test_an_annotation_that_cannot_be_resolved_is_named() -> None:
    def vague(ctx: Context, doc: "Missing") -> str:  # type: ignore[name-defined]  # noqa: F821
        return str(doc)

    with pytest.raises(DefinitionError, match=r"step vague: an annotation cannot be read.*Missing"):
        bound(step(vague))


def test_limits_left_out_come_from_the_settings_and_stay_in_order() -> None:
    default = bound(step(plain))
    assert default.time_limit == settings().step_time_limit
    assert default.soft_time_limit == settings().step_soft_time_limit
    for options in ({"time_limit": 10}, {"soft_time_limit": 5000}):
        one = bound(step(**options)(plain))  # type: ignore[call-overload]
        assert 0 < one.soft_time_limit < one.time_limit


@pytest.mark.parametrize(
    ("rate", "a_second"), [("10/s", 10), ("30/m", 0.5), ("36/h", 0.01), (2, 2.0), (None, None)]
)
def test_rates_are_read_as_celery_spells_them(rate: Any, a_second: float | None) -> None:
    assert per_second(rate, owner="step") == a_second


def test_delays_grow_are_capped_and_jittered_the_same_for_the_same_step() -> None:
    fixed = RetryPolicy(default_retry_delay=7)
    assert [retry_delay(fixed, n) for n in (1, 9)] == [7, 7]
    exact = RetryPolicy(retry_backoff=3, retry_backoff_max=20, retry_jitter=False)
    assert [retry_delay(exact, n) for n in (1, 2, 3, 4, 5000)] == [3, 6, 12, 20, 20]
    jittered = RetryPolicy(retry_backoff=True)
    drawn = {retry_delay(jittered, 4, seed=f"run-{n}") for n in range(50)}
    assert len(drawn) > 40
    assert all(4 <= delay <= 8 for delay in drawn)
    assert retry_delay(jittered, 4, seed="run-1") == retry_delay(jittered, 4, seed="run-1")


def test_only_the_named_errors_are_retried() -> None:
    policy = RetryPolicy(autoretry_for=(OSError,), dont_autoretry_for=(FileNotFoundError,))
    assert policy.retries(TimeoutError())
    assert not policy.retries(FileNotFoundError())
    assert not policy.retries(ValueError())
    assert not RetryPolicy().retries(KeyboardInterrupt())
